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

from warren.protocol.v091 import Engine, Properties, Role, Table, encode_content, methods as m
from warren.protocol.v091.codec import encode_method

BATCH = 200  # messages per write
ACK_EVERY = 500  # deliveries per multiple acknowledgement
WINDOW = 4000  # unconfirmed messages of a publisher
KEY = "key.0.blue"  # of every message
TIMEOUT = 180.0  # seconds for one run


@dataclass(frozen=True)
class Load:
    """What is sent: `count` transient messages of `size` bytes through one queue, or through `queues` of them at once.

    `prefetch` 0: the consumer takes without acknowledging. `drain`: fill the queue first, then start the consumer.
    `confirm`: the publisher has at most WINDOW unconfirmed. `exchange`: the type of an exchange on the way;
    `bindings`: how many it has besides the one that matches.
    """

    name: str
    count: int
    size: int = 100
    prefetch: int = 0
    drain: bool = False
    confirm: bool = False
    exchange: str = ""
    bindings: int = 0
    queues: int = 1

    @property
    def properties(self) -> Properties:
        return Properties(headers={"colour": "red"}) if self.exchange == "headers" else Properties()


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

    def confirmed(self, so_far: int) -> int:
        """Wait for confirms; the number up to which all are confirmed, a broker that confirms in order given."""
        while not (events := self.engine.events()):
            self.engine.receive_data(self.socket.recv(1 << 16))
        for _, event in events:
            if isinstance(event, m.BasicAck):
                so_far = max(so_far, event.delivery_tag)
        return so_far

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


def publish(port: int, name: str, load: Load, start: Event, done: ProcessQueue[float]) -> None:
    peer = Peer(port)
    method = m.BasicPublish(name, KEY) if load.exchange else m.BasicPublish("", f"{name}-0")
    one = encode_method(1, method) + encode_content(1, load.properties, b"x" * load.size, 131_072)
    blob = one * BATCH
    if load.confirm:
        peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    start.wait()
    sent = confirmed = 0
    while sent < load.count:
        peer.socket.sendall(blob)
        sent += BATCH
        while load.confirm and (sent - confirmed > WINDOW or (sent == load.count and confirmed < sent)):
            confirmed = peer.confirmed(confirmed)
    peer.call(m.QueueDeclare(f"{name}-0", passive=True), m.QueueDeclareOk)  # answered when all before it is dealt with
    done.put(time.perf_counter())
    peer.socket.close()


def consume(port: int, name: str, load: Load, start: Event, done: ProcessQueue[float]) -> None:
    peer = Peer(port)
    if load.prefetch:
        peer.call(m.BasicQos(0, load.prefetch), m.BasicQosOk)
    address = (name, KEY) if load.exchange else ("", f"{name}-0")
    deliver = encode_method(1, m.BasicDeliver("0", 1, False, *address))
    each = len(deliver) + len(encode_content(1, load.properties, b"x" * load.size, 131_072))
    start.wait()
    missing, count = 0, load.count * load.queues
    for number in range(load.queues):
        peer.engine.send_method(1, m.BasicConsume(f"{name}-{number}", str(number), no_ack=not load.prefetch))
        missing += len(encode_method(1, m.BasicConsumeOk(str(number))))
    peer.socket.sendall(peer.engine.data_to_send())
    missing += each * count
    view, acked, total = bytearray(1 << 20), 0, missing
    while missing:
        missing -= peer.socket.recv_into(view)
        arrived = (total - missing) // each
        if load.prefetch and (arrived - acked >= ACK_EVERY or arrived == count):
            peer.socket.sendall(encode_method(1, m.BasicAck(arrived, multiple=True)))
            acked = arrived
    peer.call(m.BasicQos(0, 1), m.BasicQosOk)  # the last acknowledgement is dealt with
    done.put(time.perf_counter())
    peer.socket.close()


def declare(peer: Peer, name: str, load: Load) -> None:
    """The queues, and the exchange with its bindings."""
    for number in range(load.queues):
        peer.call(m.QueueDeclare(f"{name}-{number}"), m.QueueDeclareOk)
    if not load.exchange:
        return
    peer.call(m.ExchangeDeclare(name, load.exchange), m.ExchangeDeclareOk)
    for number in range(load.queues):
        match: Table = {"x-match": "all", "colour": "red"} if load.exchange == "headers" else {}
        peer.call(m.QueueBind(f"{name}-{number}", name, KEY, arguments=match), m.QueueBindOk)
    for number in range(1, load.bindings + 1):
        key = f"key.{number}.*" if load.exchange == "topic" else str(number)
        other: Table = {"x-match": "all", "colour": str(number)} if load.exchange == "headers" else {}
        peer.call(m.QueueBind(f"{name}-0", name, key, arguments=other), m.QueueBindOk)


def clear(peer: Peer, name: str, load: Load) -> None:
    for number in range(load.queues):
        peer.call(m.QueueDelete(f"{name}-{number}"), m.QueueDeleteOk)
    if load.exchange:
        peer.call(m.ExchangeDelete(name), m.ExchangeDeleteOk)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(port: int, pid: int, load: Load) -> Result:
    """Put one load on the broker at that port, whose process is `pid`."""
    context = multiprocessing.get_context("fork")
    control, name = Peer(port), f"bench-{os.getpid()}"
    declare(control, name, load)
    filled, drained = context.Queue(), context.Queue()
    go, consume_now = context.Event(), context.Event()
    workers = [
        context.Process(target=publish, args=(port, name, load, go, filled)),
        context.Process(target=consume, args=(port, name, load, consume_now, drained)),
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
    clear(control, name, load)
    control.socket.close()
    return Result(load.count / seconds, used * 1e6 / load.count)
