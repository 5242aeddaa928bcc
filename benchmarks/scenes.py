"""Cases of benchmarks/broker.py that are not one load through one queue: many queues, many connections, round trips,
declarations, connections that come and go, and memory. Each checks that what it sent has arrived.
"""

from __future__ import annotations

import os
import re
import resource
import select
import statistics
import struct
import time
from pathlib import Path

from load import (
    BATCH,
    KEY,
    TIMEOUT,
    WINDOW,
    Load,
    Peer,
    Result,
    Stage,
    consume,
    cpu_seconds,
    delivery_size,
    measure,
    publication,
)

from harebell.protocol.v091 import Content, Properties, methods as m

REPLY_TO = "amq.rabbitmq.reply-to"
STAMP = struct.Struct(">I96x")  # the number of a request, in a body of 100 bytes
PAGES_SETTLE = 0.5  # seconds for a broker to give back unused memory


def many_queues(port: int, pid: int, *, queues: int, rounds: int, connections: int) -> Result:
    """`rounds` messages to each of so many queues in turn; a consumer for each. As many publishers as consumers.

    A write has BATCH messages or more, whatever the number of queues.
    """
    control = Peer(port)
    names = [f"bench-{os.getpid()}-{number:05}" for number in range(queues)]
    for name in names:
        control.call(m.QueueDeclare(name), m.QueueDeclareOk)
    shares = [names[number::connections] for number in range(connections)]
    each = delivery_size("00000", "", names[0], Properties(), 100)

    def publish(share: list[str], stage: Stage) -> None:
        peer = Peer(port)
        blob = b"".join(publication("", name, Properties(), 100) for name in share)
        together = max(1, min(rounds, BATCH // len(share)))
        stage.ready()
        for start in range(0, rounds, together):
            peer.socket.sendall(blob * min(together, rounds - start))
        peer.message_count(share[0])
        peer.close()

    def consume(share: list[str], stage: Stage) -> None:
        peer = Peer(port)
        for name in share:
            peer.call(m.BasicConsume(name, name[-5:], no_ack=True), m.BasicConsumeOk)
        view, missing = bytearray(1 << 20), each * rounds * len(share)
        stage.ready()
        while missing:
            missing -= peer.socket.recv_into(view)
        peer.close()

    workers = [lambda stage, share=share: publish(share, stage) for share in shares]
    workers += [lambda stage, share=share: consume(share, stage) for share in shares]
    measured = measure(pid, workers)
    for name in names:
        control.wait_count(name, 0)
        control.call(m.QueueDelete(name), m.QueueDeleteOk)
    control.close()
    return measured.result(queues * rounds)


def many_connections(port: int, pid: int, *, connections: int, rounds: int, batch: int) -> Result:
    """Each connection publishes `batch` messages to its own queue and takes them back, again and again."""

    def work(stage: Stage) -> None:
        peers, blobs = [Peer(port) for _ in range(connections)], []
        names = [f"bench-{os.getpid()}-{number:05}" for number in range(connections)]
        for peer, name in zip(peers, names, strict=True):
            peer.call(m.QueueDeclare(name, exclusive=True), m.QueueDeclareOk)
            peer.call(m.BasicConsume(name, "0", no_ack=True), m.BasicConsumeOk)
            blobs.append(publication("", name, Properties(), 100) * batch)
        expected = delivery_size("0", "", names[0], Properties(), 100) * batch
        view = bytearray(1 << 16)
        stage.ready()
        for _ in range(rounds):
            for peer, blob in zip(peers, blobs, strict=True):
                peer.socket.sendall(blob)
            for peer in peers:
                missing = expected
                while missing:
                    missing -= peer.socket.recv_into(view)
        for peer in peers:
            peer.close()

    return measure(pid, [work]).result(connections * rounds * batch)


def drain(port: int, pid: int, *, count: int, durable: bool, prefetch: int = 0) -> Result:
    """Consume `count` messages that wait in a queue; the measurement begins when all are there.

    `durable`: persistent messages, in a durable queue, and confirmed. For 1,000,000 messages: `--only drain --scale 5`.
    """
    name, properties = f"bench-{os.getpid()}", (Properties(delivery_mode=2 if durable else 1),)
    peer = Peer(port)
    peer.call(m.QueueDeclare(f"{name}-0", durable=durable), m.QueueDeclareOk)
    fill(peer, f"{name}-0", properties[0], count)
    load = Load(count, prefetch=prefetch, variants=properties)
    measured = measure(pid, [lambda stage: consume(port, name, load, stage)])
    peer.wait_count(f"{name}-0", 0)
    peer.call(m.QueueDelete(f"{name}-0"), m.QueueDeleteOk)
    peer.close()
    return measured.result(count)


def fill(peer: Peer, queue: str, properties: Properties, count: int, size: int = 100) -> None:
    """Publish so many messages; all of them are confirmed."""
    peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    each, before = 200, peer.confirmed
    blob = publication("", queue, properties, size) * each
    for sent in range(before + each, before + count + 1, each):
        peer.socket.sendall(blob)
        while sent - peer.confirmed > WINDOW or (sent == before + count and peer.confirmed < sent):
            peer.take_confirms()
    peer.wait_count(queue, count)


def round_trips(port: int, pid: int, *, per_second: int, seconds: float, direct: bool) -> Result:
    """Requests at a fixed rate, answered by one responder, to the direct reply-to or to a queue for replies.

    A round trip counts from the moment at which its request was due, so a stall counts for all requests behind it.
    """
    name, count = f"bench-{os.getpid()}", int(per_second * seconds)
    control = Peer(port)
    control.call(m.QueueDeclare(name), m.QueueDeclareOk)

    def answer(stage: Stage) -> None:
        peer = Peer(port)
        peer.call(m.BasicConsume(name, "0", no_ack=True), m.BasicConsumeOk)
        stage.ready()
        answered = 0
        while answered < count:
            out = []
            for _, event in peer.events():
                if isinstance(event, Content):
                    out.append(publication("", event.properties.reply_to or "", Properties(), 0, event.body))
            peer.socket.sendall(b"".join(out))
            answered += len(out)
        stage.wait_filled()
        peer.close()

    def ask(stage: Stage) -> list[float]:
        peer, replies = Peer(port), REPLY_TO
        if not direct:
            declared = peer.call(m.QueueDeclare("", exclusive=True), m.QueueDeclareOk)
            assert isinstance(declared, m.QueueDeclareOk)
            replies = declared.queue
        peer.call(m.BasicConsume(replies, "0", no_ack=True), m.BasicConsumeOk)
        front = publication("", name, Properties(reply_to=replies), 0, STAMP.pack(0))
        front = front[: front.rindex(STAMP.pack(0))]
        stage.ready()
        took: list[float] = []
        began, sent = time.perf_counter(), 0
        while len(took) < count:
            due = began + sent / per_second
            now = time.perf_counter()
            if sent < count and now >= due:
                peer.socket.sendall(front + STAMP.pack(sent) + b"\xce")
                sent += 1
            elif select.select([peer.socket], [], [], due - now if sent < count else TIMEOUT)[0]:
                for _, event in peer.events():
                    if isinstance(event, Content):
                        number = STAMP.unpack(event.body)[0]
                        took.append(time.perf_counter() - began - number / per_second)
        stage.filled()
        peer.close()
        return took

    measured = measure(pid, [answer, ask])
    took = next(got for got in measured.answers if isinstance(got, list))
    control.call(m.QueueDelete(name), m.QueueDeleteOk)
    control.close()
    cuts = statistics.quantiles(took, n=100)
    return Result(cpu_us=measured.cpu * 1e6 / count, p50=cuts[49] * 1000, p99=cuts[98] * 1000)


def confirms_one_by_one(port: int, pid: int, *, count: int) -> Result:
    """Publish a persistent message to a durable queue and wait for its confirm, again and again.

    `confirms.py` measures the disk alone. Harebell confirms after the sync; RabbitMQ's classic queues do not.
    """
    name, took = f"bench-{os.getpid()}", []
    peer = Peer(port)
    peer.call(m.QueueDeclare(name, durable=True), m.QueueDeclareOk)
    peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    blob = publication("", name, Properties(delivery_mode=2), 100)
    cpu = cpu_seconds(pid)
    for sent in range(1, count + 1):
        began = time.perf_counter()
        peer.socket.sendall(blob)
        while peer.confirmed < sent:
            peer.take_confirms()
        took.append(time.perf_counter() - began)
    cpu = cpu_seconds(pid) - cpu
    peer.wait_count(name, count)
    peer.call(m.QueueDelete(name), m.QueueDeleteOk)
    peer.close()
    cuts = statistics.quantiles(took, n=100)
    return Result(cpu_us=cpu * 1e6 / count, p50=cuts[49] * 1000, p99=cuts[98] * 1000)


def declarations(port: int, pid: int, *, queues: int) -> Result:
    """Declare so many queues, bind each, unbind it, delete it: one call after the other. Each is an operation."""

    def work(stage: Stage) -> None:
        peer, names = Peer(port), [f"bench-{os.getpid()}-{number:05}" for number in range(queues)]
        stage.ready()
        for name in names:
            peer.call(m.QueueDeclare(name), m.QueueDeclareOk)
        for name in names:
            peer.call(m.QueueBind(name, "amq.topic", f"{name}.*"), m.QueueBindOk)
        for name in names:
            peer.call(m.QueueUnbind(name, "amq.topic", f"{name}.*"), m.QueueUnbindOk)
        for name in names:
            peer.call(m.QueueDelete(name), m.QueueDeleteOk)
        peer.close()

    return measure(pid, [work]).result(4 * queues)


def connection_churn(port: int, pid: int, *, count: int) -> Result:
    """Connect, log in, open a channel, declare a queue, publish with a confirm, close: one after the other."""

    def work(stage: Stage) -> None:
        stage.ready()
        for _ in range(count):
            peer = Peer(port)
            declared = peer.call(m.QueueDeclare("", exclusive=True), m.QueueDeclareOk)
            assert isinstance(declared, m.QueueDeclareOk)
            peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            peer.socket.sendall(publication("", declared.queue, Properties(), 100))
            peer.wait(m.BasicAck)
            peer.wait_count(declared.queue, 1)
            peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
            peer.wait(m.ConnectionCloseOk)
            peer.close()

    return measure(pid, [work]).result(count)


def connection_memory(port: int, pid: int, *, count: int) -> Result:
    """The memory of an idle connection with one open channel."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= count + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 100), hard))
    before = memory(pid)
    peers = [Peer(port) for _ in range(count)]
    grown = memory(pid) - before
    for peer in peers:
        peer.close()
    return Result(size=grown / count)


def queue_memory(port: int, pid: int, *, count: int) -> Result:
    """The memory of an empty, unused queue with one binding."""
    peer, before = Peer(port), memory(pid)
    names = [f"bench-{os.getpid()}-{number:05}" for number in range(count)]
    for name in names:
        peer.call(m.QueueDeclare(name), m.QueueDeclareOk)
        peer.call(m.QueueBind(name, "amq.direct", KEY + name), m.QueueBindOk)
    grown = memory(pid) - before
    for name in names:
        peer.call(m.QueueDelete(name), m.QueueDeleteOk)
    peer.close()
    return Result(size=grown / count)


def backlog_memory(port: int, pid: int, *, count: int) -> Result:
    """The memory of a transient message of 100 bytes that waits in a queue."""
    peer, name = Peer(port), f"bench-{os.getpid()}"
    peer.call(m.QueueDeclare(name), m.QueueDeclareOk)
    before, blob = memory(pid), publication("", name, Properties(), 100) * 200
    for _ in range(count // 200):
        peer.socket.sendall(blob)
    peer.wait_count(name, count)
    grown = memory(pid) - before
    peer.call(m.QueueDelete(name), m.QueueDeleteOk)
    peer.close()
    return Result(size=grown / count)


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    time.sleep(PAGES_SETTLE)
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
