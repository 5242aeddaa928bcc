"""A load generator that costs next to nothing per message, so that what is measured is the broker.

Publishers and consumers are processes of their own. A publisher writes the same pre-encoded bytes again and again; a
consumer knows how long each delivery will be and counts bytes. Both speak real AMQP for everything else, through the
blocking client's engine.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from dataclasses import dataclass
from multiprocessing.queues import Queue as ProcessQueue
from multiprocessing.synchronize import Event
from pathlib import Path

from warren.protocol.v091 import Engine, Properties, Role, encode_content, methods as m
from warren.protocol.v091.codec import encode_method

BATCH = 200  # messages per write
ACK_EVERY = 500  # deliveries per multiple acknowledgement
TIMEOUT = 180.0  # seconds for one run


@dataclass(frozen=True)
class Load:
    """What is sent: `count` transient messages of `size` bytes through one queue.

    `prefetch` 0: the consumer takes without acknowledging. `drain`: fill the queue first, then start the consumer.
    """

    name: str
    count: int
    size: int = 100
    prefetch: int = 0
    drain: bool = False


@dataclass(frozen=True)
class Result:
    """Messages per second from the first publish to the last delivery, and the broker's CPU per message."""

    per_second: float
    cpu_us: float


class Peer:
    """A raw connection: blocking calls before the load, plain bytes during it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Engine(Role.CLIENT)
        self.engine.send_header()
        self._wait(m.ConnectionStart)
        self._send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        tune = self._wait(m.ConnectionTune)
        assert isinstance(tune, m.ConnectionTune)
        self._send(0, m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, m.ConnectionOpen("/"))
        self._wait(m.ConnectionOpenOk)
        self.call(m.ChannelOpen(), m.ChannelOpenOk)

    def call(self, method: m.Method, reply: type[m.Method]) -> m.Method:
        self._send(1, method)
        return self._wait(reply)

    def _send(self, channel: int, method: m.Method) -> None:
        self.engine.send_method(channel, method)
        self.socket.sendall(self.engine.data_to_send())

    def _wait(self, reply: type[m.Method]) -> m.Method:
        self.socket.sendall(self.engine.data_to_send())
        while True:
            for _, event in self.engine.events():
                if isinstance(event, reply):
                    return event
                if isinstance(event, m.ConnectionClose | m.ChannelClose):
                    raise RuntimeError(f"{event.reply_code} {event.reply_text}")
            self.engine.receive_data(self.socket.recv(1 << 16))


def publish(port: int, queue: str, load: Load, start: Event, done: ProcessQueue[float]) -> None:
    peer = Peer(port)
    one = encode_method(1, m.BasicPublish("", queue)) + encode_content(1, Properties(), b"x" * load.size, 131_072)
    blob = one * BATCH
    start.wait()
    for _ in range(load.count // BATCH):
        peer.socket.sendall(blob)
    peer.call(m.QueueDeclare(queue, passive=True), m.QueueDeclareOk)  # answered when all before it is dealt with
    done.put(time.perf_counter())
    peer.socket.close()


def consume(port: int, queue: str, load: Load, start: Event, done: ProcessQueue[float]) -> None:
    peer = Peer(port)
    if load.prefetch:
        peer.call(m.BasicQos(0, load.prefetch), m.BasicQosOk)
    deliver = encode_method(1, m.BasicDeliver("c", 1, False, "", queue))
    each = len(deliver) + len(encode_content(1, Properties(), b"x" * load.size, 131_072))
    start.wait()
    peer.engine.send_method(1, m.BasicConsume(queue, "c", no_ack=not load.prefetch))
    peer.socket.sendall(peer.engine.data_to_send())
    missing = each * load.count + len(encode_method(1, m.BasicConsumeOk("c")))
    view, acked, total = bytearray(1 << 20), 0, missing
    while missing:
        missing -= peer.socket.recv_into(view)
        arrived = (total - missing) // each
        if load.prefetch and (arrived - acked >= ACK_EVERY or arrived == load.count):
            peer.socket.sendall(encode_method(1, m.BasicAck(arrived, multiple=True)))
            acked = arrived
    peer.call(m.BasicQos(0, 1), m.BasicQosOk)  # the last acknowledgement is dealt with
    done.put(time.perf_counter())
    peer.socket.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(port: int, pid: int, load: Load) -> Result:
    """Put one load on the broker at that port, whose process is `pid`."""
    context = multiprocessing.get_context("fork")
    control, queue = Peer(port), f"bench-{os.getpid()}"
    control.call(m.QueueDeclare(queue), m.QueueDeclareOk)
    filled, drained = context.Queue(), context.Queue()
    go, consume_now = context.Event(), context.Event()
    workers = [
        context.Process(target=publish, args=(port, queue, load, go, filled)),
        context.Process(target=consume, args=(port, queue, load, consume_now, drained)),
    ]
    for worker in workers:
        worker.start()
    time.sleep(0.5)  # let both log in: what is measured starts after that
    cpu, began = cpu_seconds(pid), time.perf_counter()
    if not load.drain:
        consume_now.set()
    go.set()
    filled.get(timeout=TIMEOUT)
    consume_now.set()
    seconds = drained.get(timeout=TIMEOUT) - began
    used = cpu_seconds(pid) - cpu
    for worker in workers:
        worker.join()
    control.call(m.QueueDelete(queue), m.QueueDeleteOk)
    control.socket.close()
    return Result(load.count / seconds, used * 1e6 / load.count)
