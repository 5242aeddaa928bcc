"""Messages that an operator takes away: from every kind of queue, whoever could have got them next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from harebell.broker.operations.messages import browsing, dropping, moving, moving_all, withdrawing
from harebell.broker.queues.base import Queue
from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.steps import Steps, complete
from tests.broker.kit import Client, NodeKit, cut_finely

KINDS: Final[dict[str, Table]] = {
    "plain": {},
    "priorities": {"x-max-priority": 3},
    "short": {"x-max-length": 50},
    "expiring": {"x-message-ttl": 60_000},
    "one consumer": {"x-single-active-consumer": True},
    "groups": {"x-message-group": "group"},
    "last values": {"x-last-value-key": "id"},
    "fair shares": {"x-max-priority": 3, "x-fairshare": [2, 2, 2]},
    "numbered": {"x-sequence-header": "number"},
    "retried later": {"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000},
    "orphans": {"x-orphan-exchange": "amq.fanout"},
    "dead letters": {"x-dead-letter-exchange": "amq.fanout", "x-dead-letter-strategy": "at-least-once"},
}  # fmt: skip
CONSUMERS: Final[dict[str, Table | None]] = {
    "no consumer": None,
    "a consumer": {},
    "a consumer with a selector": {"x-selector": "group = 'a'"},
    "a consumer that wants none": {"x-selector": "group = 'nobody'"},
}
SENT: Final = 12


class Twins:
    """Two queues with the same messages, some of which a consumer has, or gave back: "q", and "twin" for comparison."""

    def __init__(self, kit: NodeKit, arguments: Table, consumer: Table | None) -> None:
        self.kit, self.client = kit, kit.client()
        for name in ("q", "twin"):
            self.client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
            if consumer is not None:
                self._consume(name, consumer)
            for number in range(SENT):
                self.publish(number, name)
            if consumer is not None and (taken := self.client.deliveries()):
                self.client.send(1, m.BasicNack(taken[0][0], requeue=True))
            self.client.events.clear()
        self.client.call(m.QueueDeclare("kept", durable=True), m.QueueDeclareOk)
        self.kit.run_syncs()

    def _consume(self, queue: str, consumer: Table) -> None:
        self.client.call(m.BasicQos(0, 2), m.BasicQosOk)
        self.client.call(m.BasicConsume(queue, queue, arguments=consumer), m.BasicConsumeOk)

    def publish(self, number: int, queue: str = "q") -> None:
        headers: Table = {"group": "ab"[number % 2], "id": number}
        self.client.publish(
            queue, f"m{number}".encode(), headers=headers, priority=number % 4, delivery_mode=1 + (number % 3 > 0)
        )

    def queue(self, name: str = "q") -> Queue:
        return self.kit.node.vhosts["/"].queues[name]

    def ready(self, name: str) -> list[str]:
        found = complete(browsing(self.queue(name), offset=0, limit=1000, most_bytes=1 << 20))
        return [held.message.content.body.decode() for held in found.messages]

    def expected(self) -> list[str]:
        """What a purge drops."""
        twin = self.queue("twin")
        complete(retried(twin))
        return self.ready("twin")


def retried(queue: Queue) -> Steps[None]:
    while queue.retry_some():  # type: ignore[attr-defined]
        yield


@pytest.fixture(params=[pytest.param((k, c), id=f"{k}, {c}") for k in KINDS for c in CONSUMERS])
def twins(request: pytest.FixtureRequest, kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> Twins:
    cut_finely(monkeypatch)
    kind, consumer = request.param
    twins = Twins(kit, KINDS[kind], CONSUMERS[consumer])
    assert twins.queue().delayed_count == (kind == "retried later" and consumer.endswith(("a consumer", "selector")))
    return twins


def test_what_a_purge_would_drop_is_moved(twins: Twins) -> None:
    expected = twins.expected()
    assert len(expected) >= SENT - 2
    moved = complete(withdrawing(twins.queue(), twins.queue("kept"), all_of_them=False))
    twins.kit.run_syncs()
    assert (moved, sorted(twins.ready("kept"))) == (len(expected), sorted(expected))
    if "x-fairshare" not in twins.queue().arguments:  # whose order a look does not show
        assert twins.ready("kept") == expected
    assert (twins.queue().message_count, twins.queue().delayed_count) == (0, 0)


def test_the_queue_goes_on(twins: Twins) -> None:
    """What consumers hold is settled, and what comes next is delivered, as after a purge of the twin."""
    complete(withdrawing(twins.queue(), twins.queue("kept"), all_of_them=True))
    complete(retried(twins.queue("twin")))
    twins.queue("twin").purge()
    client = twins.client
    client.send(1, m.BasicAck(0, multiple=True))
    twins.kit.run_syncs()
    client.events.clear()
    came: dict[str, list[str]] = {}
    for name in ("q", "twin"):
        for number in range(20, 28):
            twins.publish(number, name)
        client.receive()
        came[name] = []
        while some := client.deliveries():
            came[name] += [body.decode() for _, _, body in some]
            client.send(1, m.BasicAck(0, multiple=True))
    assert came["q"] == came["twin"]
    assert twins.ready("q") == twins.ready("twin")


@pytest.mark.parametrize("act", [
    lambda q, kept, at: dropping(q, at), lambda q, kept, at: moving(q, at, kept),
], ids=["drop", "move"])  # fmt: skip
def test_each_message_that_is_seen_can_be_taken_away(
    twins: Twins, act: Callable[[Queue, Queue, int], Steps[bool]]
) -> None:
    queue, kept = twins.queue(), twins.queue("kept")
    seen = complete(browsing(queue, offset=0, limit=1000, most_bytes=1 << 20)).messages
    assert seen
    for held in reversed(seen):
        assert complete(act(queue, kept, held.position))
    assert queue.message_count == 0
    twins.kit.run_syncs()
    twins.client.send(1, m.BasicNack(0, multiple=True, requeue=True))  # what is held comes back, and goes out again


def test_a_refusal_puts_the_message_back(twins: Twins) -> None:
    arguments: Table = {"x-max-length": 3, "x-overflow": "reject-publish"}
    twins.client.call(m.QueueDeclare("small", arguments=arguments), m.QueueDeclareOk)
    before, delayed = twins.ready("q"), twins.queue().delayed_count
    with pytest.raises(PreconditionFailed, match="is full"):
        complete(moving_all(twins.queue(), twins.queue("small")))
    twins.kit.run_syncs()
    assert twins.ready("small") == before[:3]
    assert twins.queue().delayed_count == delayed
    waiting = twins.ready("q")
    twins.client.receive()
    came = [body.decode() for _, _, body in twins.client.deliveries()]
    assert sorted(came + waiting, key=before.index) == before[3:]


@pytest.mark.parametrize("rate", [1, 64, 1000])
@pytest.mark.parametrize("arguments", [{}, {"x-orphan-exchange": "amq.fanout"}, {"x-message-group": "group"}])
def test_it_ends_beside_a_publisher(kit: NodeKit, client: Client, arguments: Table, rate: int) -> None:
    """However many messages come in between two steps."""
    client.call(m.QueueDeclare("kept"), m.QueueDeclareOk)
    client.call(m.QueueBind("kept", "amq.fanout", ""), m.QueueBindOk)
    client.call(m.QueueDeclare("q", arguments=arguments), m.QueueDeclareOk)
    vhost = kit.node.vhosts["/"]
    queue, kept = vhost.queues["q"], vhost.queues["kept"]
    for _ in range(3 * rate):
        client.publish("q")
    orphans = "x-orphan-exchange" in arguments
    work: Steps[Any] = vhost.deleting_queue(queue) if orphans else withdrawing(queue, kept, all_of_them=True)
    sent = 3 * rate
    for steps, _ in enumerate(work):
        assert steps < 50
        if queue.deleted or (not orphans and steps > 40):
            break
        for _ in range(rate if queue.message_count else 0):
            client.publish("q")
            sent += 1
    assert queue.message_count == 0
    assert kept.message_count == sent


def test_a_refused_message_does_not_free_the_group_of_another_one(kit: NodeKit, client: Client) -> None:
    client.call(m.QueueDeclare("q", arguments={"x-message-group": "group"}), m.QueueDeclareOk)
    client.call(m.QueueDeclare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"}), m.QueueDeclareOk)
    for number in range(3):
        client.publish("q", f"m{number}".encode(), headers={"group": "a"})
    for tag in ("one", "two"):
        client.call(m.BasicQos(0, 1), m.BasicQosOk)
        client.send(1, m.BasicConsume("q", tag))
    assert [body for _, _, body in client.deliveries()] == [b"m0"]
    queues = kit.node.vhosts["/"].queues
    for _ in range(3):
        with pytest.raises(PreconditionFailed):
            complete(moving_all(queues["q"], queues["full"]))
    kit.run_syncs()
    client.pump()
    client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
    assert client.deliveries() == []  # "two" waits
    client.send(1, m.BasicAck(1))
    assert [body for _, _, body in client.deliveries()] == [b"m1"]
