"""What keeps a broker busy for long, in random order, and a probe that finds how long another client waits meanwhile.

Each act has a connection and things of its own, whose names begin with PREFIX: what a killed broker left of them is
deleted by the next act.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from harebell.protocol.v091 import Content, Properties, Table, methods as m
from tests.torture.peer import Ended, Peer
from tests.torture.workers import PAUSE, Stage, Worker

__all__ = ["ACTS", "Heavy", "Probe"]

PREFIX: Final = "heavy."
QUEUE: Final = PREFIX + "queue"
FAN: Final = PREFIX + "fan"
TOPIC: Final = PREFIX + "topic"
REPLIES: Final = "amq.rabbitmq.reply-to"
MESSAGES: Final = 20_000
QUEUES: Final = 200
BINDINGS: Final = 1_000
BODY: Final = 16 << 20  # bytes
INTERVAL: Final = 0.02  # seconds between two looks of the probe
PATIENCE: Final = 120.0
TRANSIENT, PERSISTENT = Properties(), Properties(delivery_mode=2)

Act = Callable[[Peer], Awaitable[None]]


async def _declare(peer: Peer, name: str = QUEUE, arguments: Table | None = None) -> None:
    await peer.call(m.QueueDeclare(name, durable=True, arguments=arguments or {}), m.QueueDeclareOk)


async def _fill(peer: Peer, properties: Properties = TRANSIENT, count: int = MESSAGES, exchange: str = "") -> None:
    key = "" if exchange else QUEUE
    for number in range(count):
        peer.publish(exchange, key, b"x" * 10, properties)
        if number % 500 == 0:
            await peer.drain()
            await peer.sleep(0)
    await peer.call(m.BasicQos(0, 0), m.BasicQosOk)


async def _take(peer: Peer) -> None:
    """Consume all there is, and acknowledge nothing."""
    taken = 0

    def receive(event: m.Method | Content) -> None:
        nonlocal taken
        taken += 1

    peer.receive = receive
    await peer.call(m.BasicConsume(QUEUE, "taker"), m.BasicConsumeOk)
    while taken < MESSAGES:
        await peer.sleep(PAUSE)


async def flood(peer: Peer) -> None:
    await _declare(peer)
    await _fill(peer)
    await peer.call(m.QueuePurge(QUEUE), m.QueuePurgeOk)


async def flood_persistent(peer: Peer) -> None:
    await _declare(peer)
    await _fill(peer, PERSISTENT)


async def leave(peer: Peer) -> None:
    await _declare(peer)
    await _fill(peer)
    await _take(peer)


def _settled(method: m.Method) -> Act:
    async def act(peer: Peer) -> None:
        await leave(peer)
        if getattr(method, "requeue", False):
            await peer.call(m.BasicCancel("taker"), m.BasicCancelOk)
        peer.send(method)
        await peer.call(m.BasicQos(0, 0), m.BasicQosOk)

    return act


async def dead_letter(peer: Peer) -> None:
    dead: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": PREFIX + "dead"}
    await _declare(peer, PREFIX + "dead")
    await _declare(peer, QUEUE, dead)
    await _fill(peer)
    await _take(peer)
    peer.send(m.BasicNack(0, multiple=True, requeue=False))
    await peer.call(m.QueueDelete(PREFIX + "dead"), m.QueueDeleteOk)


async def expire(peer: Peer) -> None:
    await _declare(peer)
    await _fill(peer, Properties(expiration="200"))
    await peer.sleep(0.5)
    await peer.call(m.BasicGet(QUEUE), m.BasicGetEmpty)


async def declare(peer: Peer) -> None:
    for number in range(QUEUES):
        peer.send(m.QueueDeclare(f"{PREFIX}{number}", durable=True, no_wait=True))
    for number in range(QUEUES):
        peer.send(m.QueueDelete(f"{PREFIX}{number}", no_wait=True))
    await peer.call(m.BasicQos(0, 0), m.BasicQosOk)


async def bind(peer: Peer) -> None:
    await _declare(peer)
    await peer.call(m.ExchangeDeclare(TOPIC, "topic", durable=True), m.ExchangeDeclareOk)
    for number in range(BINDINGS):
        peer.send(m.QueueBind(QUEUE, TOPIC, f"a.*.{number}.#", no_wait=True))
    await peer.call(m.ExchangeDelete(TOPIC), m.ExchangeDeleteOk)


async def fan_out(peer: Peer) -> None:
    await peer.call(m.ExchangeDeclare(FAN, "fanout", durable=True), m.ExchangeDeclareOk)
    for number in range(QUEUES):
        peer.send(m.QueueDeclare(f"{PREFIX}{number}", durable=True, no_wait=True))
        peer.send(m.QueueBind(f"{PREFIX}{number}", FAN, no_wait=True))
    await _fill(peer, PERSISTENT, 20, FAN)
    for number in range(QUEUES):
        peer.send(m.QueueDelete(f"{PREFIX}{number}", no_wait=True))
    await peer.call(m.ExchangeDelete(FAN), m.ExchangeDeleteOk)


async def commit(peer: Peer) -> None:
    await _declare(peer)
    await peer.call(m.TxSelect(), m.TxSelectOk)
    await _fill(peer, PERSISTENT)
    await peer.call(m.TxCommit(), m.TxCommitOk)


async def large_body(peer: Peer) -> None:
    await _declare(peer)
    peer.publish("", QUEUE, b"x" * BODY, PERSISTENT)
    await peer.drain()
    await peer.call(m.QueueDeclare(QUEUE, passive=True), m.QueueDeclareOk)


async def policy(peer: Peer) -> None:
    definition = {"max-length": 1_000_000}
    await _ask(peer, {"do": "set-policy", "vhost": "/", "name": "heavy", "pattern": "^heavy", "definition": definition})
    await _ask(peer, {"do": "clear-policy", "vhost": "/", "name": "heavy"})


async def statistics(peer: Peer) -> None:
    await _ask(peer, None)


async def _ask(peer: Peer, request: object) -> None:
    """Of an administrator; None: for the counts."""
    answers: list[bytes] = []

    def receive(event: m.Method | Content) -> None:
        assert isinstance(event, Content), event
        answers.append(event.body)

    peer.receive = receive
    await peer.call(m.BasicConsume(REPLIES, "replies", no_ack=True), m.BasicConsumeOk)
    service = "amq.stats" if request is None else "amq.administer"
    peer.publish("amq.system", service, json.dumps(request).encode(), Properties(reply_to=REPLIES))
    while not answers:
        await peer.sleep(PAUSE)
    assert b'"error"' not in answers[0] or request is None, answers[0]
    await peer.call(m.BasicCancel("replies"), m.BasicCancelOk)


ACTS: Final[dict[str, Act]] = {
    "flood": flood,
    "flood, persistent": flood_persistent,
    "leave": leave,
    "requeue": _settled(m.BasicNack(0, multiple=True, requeue=True)),
    "reject": _settled(m.BasicNack(0, multiple=True, requeue=False)),
    "acknowledge": _settled(m.BasicAck(0, multiple=True)),
    "recover": _settled(m.BasicRecoverAsync(requeue=True)),
    "dead-letter": dead_letter,
    "expire": expire,
    "declare": declare,
    "bind": bind,
    "fan out": fan_out,
    "commit": commit,
    "large body": large_body,
    "policy": policy,
    "statistics": statistics,
}


class Heavy(Worker):
    """Does the acts in random order. `act` is the one that it does now."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.act = ""

    def __repr__(self) -> str:
        return f"the act {self.act!r}"

    @property
    def goes_on(self) -> bool:
        return self.stage.publishing

    async def session(self, peer: Peer) -> None:
        self.act = self.random.choice(list(ACTS))
        await peer.call(m.QueueDelete(QUEUE), m.QueueDeleteOk)
        for exchange in (FAN, TOPIC):
            await peer.call(m.ExchangeDelete(exchange), m.ExchangeDeleteOk)
        await ACTS[self.act](peer)
        self.history.figures["heavy acts"] += 1


class Probe(Worker):
    """Publishes to a queue of its own and gets the message back, again and again; notes the longest wait."""

    def __init__(self, stage: Stage, heavy: Heavy) -> None:
        super().__init__(stage)
        self._heavy = heavy
        self.longest: dict[str, float] = {}  # act -> seconds

    def __repr__(self) -> str:
        return "the probe"

    @property
    def goes_on(self) -> bool:
        return self.stage.publishing

    async def session(self, peer: Peer) -> None:
        queue = "probe"
        found: list[m.Method | Content] = []
        peer.receive = found.append
        await peer.call(m.QueueDeclare(queue, exclusive=True), m.QueueDeclareOk)
        while self.stage.publishing:
            found.clear()
            act, began = self._heavy.act, time.monotonic()
            peer.publish("", queue, b"?", TRANSIENT)
            peer.send(m.BasicGet(queue, no_ack=True))
            while not found:
                if peer.ended.is_set():
                    raise Ended(peer.closed)
                if time.monotonic() > began + PATIENCE:
                    raise TimeoutError
                await peer.sleep(0.001)
            waited = time.monotonic() - began
            self.longest[act] = max(waited, self.longest.get(act, 0.0))
            self.history.figures["looks of the probe"] += 1
            await peer.sleep(INTERVAL)
