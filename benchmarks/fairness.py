"""How long one client waits while another one keeps the broker busy: Harebell and RabbitMQ in turn.

    python benchmarks/fairness.py [--only flood] [--only policy] [--scale 1.0] [--broker harebell] [--list] [--json F]

A probe publishes to a queue of its own every 10 ms and gets the message back, on a connection of its own, while another
client does what the row names. The table gives the probe's longest wait, its 99th percentile, and how long the other
client's work took. Rows that ask a service of the broker are for Harebell alone: RabbitMQ has none over AMQP.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from broker import BROKERS, STARTS, machine
from load import BURST, PERSISTENT, REPLIES, TRANSIENT, Loader, Peer, publication

from harebell.protocol.v091 import Content, Properties, Table, methods as m
from harebell.protocol.v091.codec import encode_method

INTERVAL = 0.01  # seconds between two operations of the probe
LEAD = 0.3  # seconds of the probe before and after the work
MANY = 10_000  # queues


@dataclass(frozen=True)
class Waits:
    """The probe's waits in one row, in milliseconds, and the seconds that the other client's work took."""

    maximum: float
    p99: float
    median: float
    seconds: float


Work = Callable[[], None]
Row = Callable[[int, float], Work]
"""Prepares a row on a broker's port, at a scale. Returns the work to measure."""


def unique(name: str) -> str:
    return f"fair-{name}-{time.monotonic_ns()}"


def flood(persistent: bool, *, confirm: bool = True, queues: int = 1, count: int = 1_000_000) -> Row:
    """Publish as fast as it goes: to one queue, or to many by one exchange."""

    def prepare(port: int, scale: float) -> Work:
        peer, name = Loader(port), unique("flood")
        names = [f"{name}-{number}" for number in range(queues)]
        peer.call(m.ExchangeDeclare(name, "fanout"), m.ExchangeDeclareOk)
        for queue in names:
            peer.declare(queue, durable=persistent)
            peer.call(m.QueueBind(queue, name, ""), m.QueueBindOk)
        if confirm:
            peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        message = publication(name, "", PERSISTENT if persistent else TRANSIENT, 10)
        per_write = BURST // len(message)
        writes = int(count * scale) // per_write + 1

        def work() -> None:
            sent = 0
            for _ in range(writes):
                peer.socket.sendall(message * per_write)
                sent += per_write
                while confirm and sent - peer.confirmed > 100_000:
                    peer.take_confirms()
            for queue in names:
                peer.message_count(queue)
                peer.call(m.QueueDelete(queue), m.QueueDeleteOk)
            peer.close()

        return work

    return prepare


def unacked(end: Callable[[Loader], None], left: float = 0.0, arguments: Table | None = None) -> Row:
    """End the deliveries of 1 M messages; so large a part of them is `left` in the queue."""

    def prepare(port: int, scale: float) -> Work:
        peer, queue, count = Loader(port), unique("unacked"), int(1_000_000 * scale)
        other = Loader(port)
        other.declare("fair-dead")
        other.declare(queue, arguments=arguments)
        other.fill(queue, count)
        peer.take(queue, count)

        def work() -> None:
            end(peer)
            other.wait_count(queue, int(count * left))
            peer.close()
            other.call(m.QueueDelete(queue), m.QueueDeleteOk)
            other.call(m.QueueDelete("fair-dead"), m.QueueDeleteOk)
            other.close()

        return work

    return prepare


def leave(peer: Loader) -> None:
    peer.socket.shutdown(socket.SHUT_RDWR)  # the probe's process has a copy of the descriptor
    peer.socket.close()


def settled(*methods: m.Method) -> Callable[[Loader], None]:
    return lambda peer: peer.write(*methods)


def came_back(look: Callable[[Loader, str], None]) -> Row:
    """Look at a queue to which 1 M messages came back."""

    def prepare(port: int, scale: float) -> Work:
        peer, taker, queue, count = Loader(port), Loader(port), unique("came-back"), int(1_000_000 * scale)
        peer.declare(queue)
        peer.fill(queue, count)
        taker.take(queue, count)
        leave(taker)
        peer.wait_count(queue, count)

        def work() -> None:
            look(peer, queue)
            peer.call(m.QueueDelete(queue), m.QueueDeleteOk)
            peer.close()

        return work

    prepare.harebell_only = True  # type: ignore[attr-defined]
    return prepare


def browse(peer: Loader, queue: str) -> None:
    """See the first messages of the queue."""
    peer.call(m.BasicQos(0, 100), m.BasicQosOk)
    peer.send(1, m.BasicConsume(queue, "b", arguments={"x-browse": True}))
    seen = 0
    while seen < 100:
        seen += sum(isinstance(event, Content) for _, event in peer.events())
    peer.call(m.BasicCancel("b"), m.BasicCancelOk)


def select(peer: Loader, queue: str) -> None:
    """Have a selector look at them for a while; it wants none."""
    peer.call(m.BasicConsume(queue, "s", arguments={"x-selector": "a = 1"}), m.BasicConsumeOk)
    time.sleep(3)
    peer.call(m.BasicCancel("s"), m.BasicCancelOk)


def lifetime(peer: Loader, scale: float) -> int:
    """Milliseconds in which this broker takes 1 M messages, and some more."""
    queue = unique("rate")
    peer.declare(queue)
    began = time.perf_counter()
    peer.fill(queue, int(100_000 * scale))
    took = time.perf_counter() - began
    peer.call(m.QueueDelete(queue), m.QueueDeleteOk)
    return int(15_000 * took) + 3000


def filled(*methods: Callable[[str], tuple[m.Method, type[m.Method]]], expires: bool = False,
           durable: bool = False) -> Row:  # fmt: skip
    """Call these methods on a queue of 1 M messages, or wait until it is empty, when they expire."""

    def prepare(port: int, scale: float) -> Work:
        peer, queue = Loader(port), unique("filled")
        peer.declare(queue, durable=durable, arguments={"x-message-ttl": lifetime(peer, scale)} if expires else None)
        peer.fill(queue, int(1_000_000 * scale), PERSISTENT if durable else TRANSIENT)

        def work() -> None:
            for make in methods:
                peer.call(*make(queue))
            if expires:
                peer.wait_count(queue, 0)
            peer.close()

        return work

    return prepare


def got(port: int, scale: float) -> Work:
    """Get from a queue of messages that expire, until they have."""
    peer, queue = Loader(port), unique("got")
    peer.declare(queue, arguments={"x-message-ttl": lifetime(peer, scale)})
    peer.fill(queue, int(1_000_000 * scale))

    def work() -> None:
        peer.socket.settimeout(60)
        while True:
            peer.send(1, m.BasicGet(queue, no_ack=True))
            if any(isinstance(event, m.BasicGetEmpty) for _, event in peer.events()):
                break
        peer.close()

    return work


def pipelined(make: Callable[[str, int], m.Method], count: int = MANY, *, queues: int = 0, exclusive: bool = False,
              then: Callable[[Loader, str], None] | None = None) -> Row:  # fmt: skip
    """Send `count` methods in one write, after the declaration of `queues` queues. `then` is measured in its place."""

    def prepare(port: int, scale: float) -> Work:
        peer, name = Loader(port), unique("pipelined")
        peer.call(m.ExchangeDeclare(name, "direct", durable=True), m.ExchangeDeclareOk)
        there = range(min(queues, max(1, int(queues * scale))))
        peer.write(*(m.QueueDeclare(f"{name}-{each}", durable=not exclusive, exclusive=exclusive) for each in there))
        methods = peer.encoded(make(name, number) for number in range(int(count * scale)))
        if then is not None:
            peer.socket.sendall(methods)
            peer.sync()

        def work() -> None:
            if then is not None:
                then(peer, name)
            else:
                peer.socket.sendall(methods)
                peer.sync()
            peer.close()

        return work

    return prepare


def auto_deleted(port: int, scale: float) -> Work:
    peer, name = Loader(port), unique("auto-delete")
    peer.call(m.ExchangeDeclare(name, "direct", durable=True), m.ExchangeDeclareOk)
    peer.call(m.QueueDeclare(name, durable=True, auto_delete=True), m.QueueDeclareOk)
    peer.call(m.BasicConsume(name, "c"), m.BasicConsumeOk)
    peer.socket.sendall(peer.encoded(m.QueueBind(name, name, str(number)) for number in range(int(20_000 * scale))))
    peer.sync()

    def work() -> None:
        peer.call(m.BasicCancel("c"), m.BasicCancelOk)
        peer.sync()
        peer.close()

    return work


def delete_first(peer: Loader, name: str) -> None:
    peer.call(m.QueueDelete(f"{name}-0"), m.QueueDeleteOk)


def close_channel(peer: Loader, name: str) -> None:
    peer.call(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)


def close_connection(peer: Loader, name: str) -> None:
    peer.send(0, m.ConnectionClose(200, "", 0, 0))
    peer.wait(m.ConnectionCloseOk)


def fan_out(port: int, scale: float) -> Work:
    peer, name, count = Loader(port), unique("wide"), int(MANY * scale)
    peer.call(m.ExchangeDeclare(name, "fanout", durable=True), m.ExchangeDeclareOk)
    for number in range(count):
        queue = f"{name}-{number}"
        peer.socket.sendall(peer.encoded([m.QueueDeclare(queue, durable=True), m.QueueBind(queue, name, "")]))
    peer.sync()

    def work() -> None:
        peer.confirm(publication(name, "", PERSISTENT, 10))
        peer.close()

    return work


def bound(peer: Loader, name: str, queues: int) -> None:
    """A fanout exchange of that name with so many queues."""
    peer.call(m.ExchangeDeclare(name, "fanout"), m.ExchangeDeclareOk)
    for number in range(queues):
        queue = f"{name}-{number}"
        peer.socket.sendall(peer.encoded([m.QueueDeclare(queue, exclusive=True), m.QueueBind(queue, name, "")]))
    peer.sync()


def letters(end: Callable[[Loader, str], None], arguments: Table | None = None) -> Row:
    """End 1,000 messages of a queue whose dead letters go to 1,000 queues."""

    def prepare(port: int, scale: float) -> Work:
        peer, name, count = Loader(port), unique("letters"), int(1000 * scale)
        bound(peer, name, count)
        peer.declare(name, arguments={"x-dead-letter-exchange": name, **(arguments or {})})
        peer.fill(name, count)

        def work() -> None:
            end(peer, name)
            peer.wait_count(f"{name}-0", count)
            peer.wait_count(f"{name}-{count - 1}", count)
            peer.call(m.QueueDelete(name), m.QueueDeleteOk)
            peer.close()

        return work

    return prepare


def reject_all(peer: Loader, name: str) -> None:
    """Take all messages, and reject them."""
    peer.take(name, peer.message_count(name))
    peer.write(m.BasicNack(0, multiple=True, requeue=False))


def long_headers(exchange: str = "") -> Row:
    """Reject 500 messages with 125 KB of headers, an expiration and a copy, whose dead letters go to one queue."""

    def prepare(port: int, scale: float) -> Work:
        peer, name, count = Loader(port), unique("headers"), int(500 * scale)
        dead = f"{name}-dead"
        peer.declare(dead)
        if exchange:
            peer.call(m.QueueBind(dead, exchange, arguments={"x-match": "any", "kind": "order"}), m.QueueBindOk)
        peer.declare(name, arguments={"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": dead})
        headers: Table = {"kind": "order", "CC": ["nowhere"], "numbers": list(range(24_000))}
        properties = Properties(headers=headers, expiration="600000")
        peer.fill(name, count, properties)
        peer.take(name, count, properties)

        def work() -> None:
            peer.write(m.BasicNack(0, multiple=True, requeue=False))
            peer.wait_count(dead, count)
            peer.call(m.QueueDelete(name), m.QueueDeleteOk)
            peer.call(m.QueueDelete(dead), m.QueueDeleteOk)
            peer.close()

        return work

    return prepare


def published(exchange: str, headers: Table) -> Row:
    """Publish 50 messages with such headers."""

    def prepare(port: int, scale: float) -> Work:
        peer, name, count = Loader(port), unique("published"), int(50 * scale)
        peer.declare(name)
        peer.call(m.QueueBind(name, exchange, name, arguments={"x-match": "any", "kind": "order"}), m.QueueBindOk)

        def work() -> None:
            peer.confirm(
                publication(exchange, name, Properties(headers={"kind": "order", **headers}), 10) * count, count
            )
            peer.wait_count(name, count)
            peer.close()

        return work

    return prepare


def alternate(port: int, scale: float) -> Work:
    peer, name, count = Loader(port), unique("alternate"), int(MANY * scale)
    bound(peer, name, count)
    arguments: Table = {"alternate-exchange": name}
    peer.call(m.ExchangeDeclare(f"{name}-first", "direct", arguments=arguments), m.ExchangeDeclareOk)

    def work() -> None:
        peer.confirm(publication(f"{name}-first", "nowhere", TRANSIENT, 10) * 20, 20)
        peer.close()

    return work


def delayed(port: int, scale: float) -> Work:
    """1,000 messages that are due at once, each for 1,000 queues."""
    peer, name, count = Loader(port), unique("delayed"), int(1000 * scale)
    bound(peer, name, count)
    arguments: Table = {"x-delayed-type": "fanout"}
    peer.call(m.ExchangeDeclare(f"{name}-late", "x-delayed-message", arguments=arguments), m.ExchangeDeclareOk)
    peer.call(m.ExchangeBind(name, f"{name}-late", ""), m.ExchangeBindOk)

    def work() -> None:
        peer.socket.sendall(publication(f"{name}-late", "", Properties(headers={"x-delay": 1000}), 10) * count)
        for number in (0, count - 1):
            peer.wait_count(f"{name}-{number}", count)
        peer.close()

    return work


delayed.harebell_only = True  # type: ignore[attr-defined]  # RabbitMQ's plug-in is not part of it


def single_active(port: int, scale: float) -> Work:
    """A single active consumer leaves, with 100,000 unacknowledged messages that the next one gets."""
    peer, other, queue, count = Loader(port), Loader(port), unique("single"), int(100_000 * scale)
    other.declare(queue, arguments={"x-single-active-consumer": True})
    other.fill(queue, count)
    peer.take(queue, count)

    def work() -> None:
        other.call(m.BasicConsume(queue, "next", no_ack=True), m.BasicConsumeOk)
        leave(peer)
        missing = count * 40
        view = bytearray(1 << 20)
        while missing > 0:
            missing -= other.socket.recv_into(view)
        other.close()

    return work


def enriched(port: int, scale: float) -> Work:
    """A message with an expiration goes to a queue of 1 M messages without any."""
    peer, queue, count = Loader(port), unique("enriched"), int(1_000_000 * scale)
    peer.declare(queue)
    peer.fill(queue, count)

    def work() -> None:
        peer.confirm(publication("", queue, Properties(expiration="600000"), 10))
        peer.wait_count(queue, count + 1)
        peer.close()

    return work


def limited(port: int, scale: float) -> Work:
    """A policy limits a queue of 1 M messages to 1,000."""
    peer, queue, count = Loader(port), unique("limited"), int(1_000_000 * scale)
    peer.declare(queue)
    peer.fill(queue, count)
    peer.call(m.BasicConsume(REPLIES, no_ack=True), m.BasicConsumeOk)

    def work() -> None:
        peer.ask(ADMINISTER, {**SET, "pattern": f"^{queue}$"})
        peer.wait_count(queue, 1000)
        peer.ask(ADMINISTER, {"do": "clear-policy", **POLICY})
        peer.close()

    return work


limited.harebell_only = True  # type: ignore[attr-defined]


def commit(durable: bool) -> Row:
    def prepare(port: int, scale: float) -> Work:
        peer, queue, count = Loader(port), unique("commit"), int(250_000 * scale)
        peer.declare(queue, durable=durable)
        peer.call(m.TxSelect(), m.TxSelectOk)
        message = publication("", queue, PERSISTENT if durable else TRANSIENT, 10)
        for start in range(0, count, 5000):
            peer.socket.sendall(message * min(5000, count - start))
        peer.sync()

        def work() -> None:
            peer.call(m.TxCommit(), m.TxCommitOk)
            peer.wait_count(queue, count)
            peer.close()

        return work

    return prepare


def body(size: int) -> Row:
    def prepare(port: int, scale: float) -> Work:
        peer, queue = Loader(port), unique("body")
        peer.declare(queue, durable=True)
        message = publication("", queue, PERSISTENT, int(size * scale))

        def work() -> None:
            peer.confirm(message)
            peer.call(m.QueueDelete(queue), m.QueueDeleteOk)
            peer.close()

        return work

    return prepare


def asked(service: str, *, do: dict[str, object] | None = None, before: dict[str, object] | None = None,
          queues: bool = True) -> Row:  # fmt: skip
    """Ask a service of a broker with many queues. "{definitions}" in a request stands for as many, with bindings."""

    def prepare(port: int, scale: float) -> Work:
        peer, count = Loader(port), int(MANY * scale)
        definitions = {
            "vhosts": [{"name": "fair"}],
            "queues": [_with_vhost(name=f"q{number}", durable=True) for number in range(count)],
            "bindings": [
                _with_vhost(source="amq.topic", destination=f"q{number}", destination_type="queue", routing_key=key)
                for number in range(count)
                for key in ("a.*", f"b.{number}")
            ],
        }
        peer.call(m.BasicConsume(REPLIES, no_ack=True), m.BasicConsumeOk)
        if queues:
            here = {**definitions, "vhosts": []}
            peer.ask("amq.administer", {"do": "import-definitions", "definitions": here, "vhost": "/"})
        if before is not None:
            peer.ask("amq.administer", _completed(before, definitions))
        request = _completed(do, definitions) if do is not None else None

        def work() -> None:
            peer.ask(service, request)
            peer.close()

        return work

    prepare.harebell_only = True  # type: ignore[attr-defined]
    return prepare


def _with_vhost(**entry: object) -> dict[str, object]:
    return {"vhost": "fair", **entry}


def _completed(request: dict[str, object], definitions: object) -> dict[str, object]:
    return {name: definitions if value == "{definitions}" else value for name, value in request.items()}


def _declare(name: str, number: int) -> m.Method:
    return m.QueueDeclare(f"{name}-{number}", durable=True)


POLICY: dict[str, object] = {"vhost": "/", "name": "fair"}
SET: dict[str, object] = {"do": "set-policy", **POLICY, "pattern": "^q", "definition": {"max-length": 1000}}
IMPORT: dict[str, object] = {"do": "import-definitions", "definitions": "{definitions}"}
ADMINISTER = "amq.administer"

ROWS: dict[str, Row] = {
    "flood of 10-byte messages, confirmed": flood(False),
    "flood of 10-byte messages, persistent, confirmed": flood(True),
    "flood to a fanout of 100 queues": flood(False, queues=100, count=20_000),
    "flood to a fanout of 100 durable queues": flood(True, queues=100, count=20_000),
    "leaves with 1 M unacknowledged": unacked(leave, left=1.0),
    "nacks 1 M, requeued": unacked(
        settled(m.BasicCancel("taken", no_wait=True), m.BasicNack(0, multiple=True, requeue=True)), left=1.0
    ),
    "nacks 1 M, dropped": unacked(settled(m.BasicNack(0, multiple=True, requeue=False))),
    "nacks 1 M, dead-lettered": unacked(
        settled(m.BasicNack(0, multiple=True, requeue=False)),
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "fair-dead"},
    ),
    "acknowledges 1 M, multiple": unacked(settled(m.BasicAck(0, multiple=True))),
    "purges 1 M": filled(lambda queue: (m.QueuePurge(queue), m.QueuePurgeOk)),
    "purges 1 M persistent": filled(lambda queue: (m.QueuePurge(queue), m.QueuePurgeOk), durable=True),
    "deletes a queue of 1 M": filled(lambda queue: (m.QueueDelete(queue), m.QueueDeleteOk)),
    "deletes a queue of 1 M persistent": filled(lambda queue: (m.QueueDelete(queue), m.QueueDeleteOk), durable=True),
    "lets 1 M expire": filled(expires=True),
    "gets from 1 M that expire": got,
    "declares 10,000 durable queues": pipelined(_declare),
    "binds 20,000 times": pipelined(lambda name, number: m.QueueBind(f"{name}-0", name, str(number)), 20_000, queues=1),
    "deletes 10,000 durable queues": pipelined(lambda name, number: m.QueueDelete(f"{name}-{number}"), queues=MANY),
    "deletes a queue of 20,000 bindings": pipelined(
        lambda name, number: m.QueueBind(f"{name}-0", name, str(number)), 20_000, queues=1,
        then=delete_first,
    ),
    "deletes an unused queue of 20,000 bindings": pipelined(
        lambda name, number: m.QueueBind(f"{name}-0", name, str(number)), 20_000, queues=1,
        then=lambda peer, name: peer.write(m.QueueDelete(f"{name}-0", if_unused=True)),
    ),
    "leaves an auto-delete queue of 20,000 bindings": auto_deleted,
    "deletes an exchange of 20,000 bindings": pipelined(
        lambda name, number: m.QueueBind(f"{name}-0", name, str(number)), 20_000, queues=1,
        then=lambda peer, name: peer.write(m.ExchangeDelete(name)),
    ),
    "closes with 10,000 exclusive queues": pipelined(
        lambda name, number: m.QueueDeclare(f"{name}-{number}", exclusive=True), then=close_connection
    ),
    "closes a channel with 10,000 consumers": pipelined(
        lambda name, number: m.BasicConsume(f"{name}-{number}", str(number)), queues=MANY, exclusive=True,
        then=close_channel,
    ),
    "persistent publish to a fanout of 10,000 queues": fan_out,
    "commits 250,000 messages": commit(False),
    "commits 250,000 persistent messages": commit(True),
    "publishes a persistent body of 128 MiB": body((128 << 20) - 1),
    "nacks 1,000, dead-lettered to 1,000 queues each": letters(reject_all),
    "lets 1,000 expire, dead-lettered to 1,000 queues each": letters(
        lambda peer, name: None, {"x-message-ttl": 1000}
    ),
    "nacks 500 with 125 KB of headers, dead-lettered": long_headers(),
    "nacks 500 with 125 KB of headers, dead-lettered by them": long_headers("amq.headers"),
    "publishes 50 with 125 KB of headers to a headers exchange": published(
        "amq.headers", {"numbers": list(range(24_000))}
    ),
    "publishes 50 with 20,000 keys in CC": published("amq.direct", {"CC": ["c"] * 20_000}),
    "1,000 delayed messages due at once, for 1,000 queues each": delayed,
    "publishes 20 to an alternate exchange of 10,000 queues": alternate,
    "a single active consumer leaves with 100,000": single_active,
    "publishes one that expires behind 1 M": enriched,
    "browses 1 M that came back": came_back(browse),
    "selects from 1 M that came back": came_back(select),
    "sets a limit for a queue of 1 M": limited,
    "sets a policy over 10,000 queues": asked(ADMINISTER, do=SET),
    "clears a policy over 10,000 queues": asked(ADMINISTER, do={"do": "clear-policy", **POLICY}, before=SET),
    "asks amq.stats at 10,000 queues": asked("amq.stats"),
    "asks amq.routes at 10,000 queues": asked("amq.routes"),
    "imports definitions of 10,000 queues": asked(ADMINISTER, do=IMPORT, queues=False),
    "exports definitions of 10,000 queues": asked(ADMINISTER, do={"do": "export-definitions"}),
    "deletes a vhost of 10,000 queues": asked(
        ADMINISTER, do={"do": "delete-vhost", "name": "fair"}, before=IMPORT, queues=False
    ),
}  # fmt: skip


def probe(port: int, ready: Event, stop: Event, answers: multiprocessing.Queue[list[tuple[float, float]]]) -> None:
    peer = Peer(port)
    queue = unique("probe")
    peer.call(m.QueueDeclare(queue, exclusive=True), m.QueueDeclareOk)
    request = publication("", queue, TRANSIENT, 10) + encode_method(1, m.BasicGet(queue, no_ack=True))
    waits: list[tuple[float, float]] = []
    while not stop.is_set():
        began = time.perf_counter()
        peer.socket.sendall(request)
        peer.content()
        took = time.perf_counter() - began
        waits.append((began, took))
        ready.set()
        time.sleep(max(0.0, INTERVAL - took))
    answers.put(waits)


def measure(port: int, row: Row, scale: float) -> Waits:
    context = multiprocessing.get_context("fork")
    work = row(port, scale)
    ready, stop, answers = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=probe, args=(port, ready, stop, answers), daemon=True)
    process.start()
    ready.wait(30)
    time.sleep(LEAD)
    began = time.perf_counter()
    work()
    ended = time.perf_counter()
    time.sleep(LEAD)
    stop.set()
    waits = [took * 1000 for at, took in answers.get(timeout=60) if at >= began - 0.05]
    process.join(10)
    ranked = sorted(waits)
    return Waits(ranked[-1], ranked[int(len(ranked) * 0.99)], statistics.median(ranked), ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose names hold it")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the work")
    parser.add_argument("--broker", choices=BROKERS, help="this one alone")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    os.environ.setdefault("HAREBELL_MAX_MESSAGE_SIZE", str(128 << 20))  # RabbitMQ 3.10's; ours is smaller
    rows = {name: row for name, row in ROWS.items() if not options.only or any(part in name for part in options.only)}
    if options.list:
        print("\n".join(rows))
        return
    brokers = (options.broker,) if options.broker else BROKERS
    print(f"{machine()}; milliseconds that the probe waited: longest, 99 %, median; seconds of the other's work\n")
    found: dict[str, dict[str, Waits]] = {}
    for name, row in rows.items():
        for broker in brokers:
            if broker != "harebell" and hasattr(row, "harebell_only"):
                continue
            with STARTS[broker]() as (port, _):
                try:
                    waits = found.setdefault(name, {})[broker] = measure(port, row, options.scale)
                except (RuntimeError, OSError) as error:
                    print(f"{name:57} {broker:9} failed: {error}", flush=True)
                    continue
                figures = f"{waits.maximum:9.1f} {waits.p99:9.1f} {waits.median:7.2f} {waits.seconds:8.2f}"
                print(f"{name:57} {broker:9} {figures}", flush=True)
    if options.json is not None:
        told = {name: {broker: asdict(waits) for broker, waits in each.items()} for name, each in found.items()}
        options.json.write_text(json.dumps({"machine": machine(), "rows": told}, indent=1) + "\n")


if __name__ == "__main__":
    main()
