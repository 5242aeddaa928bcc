"""drop-lowest-priority: a queue with priorities against a model, and what arguments and policies may say.

The other overflows are compared with RabbitMQ's in tests/differential, and as a decorator in test_decorators.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harebell.broker.operations.statistics import vhost_statistics
from harebell.broker.queues import length_limit
from harebell.broker.queues.classic import ClassicQueue
from harebell.protocol.v091 import Content, methods as m
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

TOP = 3
LOWEST: dict[str, Any] = {"x-overflow": "drop-lowest-priority", "x-max-priority": TOP}
LIMITS = st.fixed_dictionaries(
    {}, optional={"x-max-length": st.integers(0, 4), "x-max-length-bytes": st.integers(0, 12)}
)


class Sent(NamedTuple):
    priority: int
    number: int
    body: bytes


class LowestFirstMachine(RuleBasedStateMachine):
    """The model: ready messages, of which the oldest of the lowest priority dies while there is too much."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client: Client = self.kit.client()
        self.limits: dict[str, int] = {}
        self.ready: list[Sent] = []
        self.unacked: dict[int, Sent] = {}
        self.tag = self.number = 0
        self.dead: list[bytes] = []

    @initialize(limits=LIMITS)
    def declare(self, limits: dict[str, int]) -> None:
        self.limits = dict(limits)
        self.client.call(m.QueueDeclare("dead", durable=True), m.QueueDeclareOk)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        declared = m.QueueDeclare("q", durable=self.durable, arguments={**LOWEST, **letters, **limits})
        self.client.call(declared, m.QueueDeclareOk)

    def teardown(self) -> None:
        self.kit.stop()
        self.folder.cleanup()

    def drop(self) -> None:
        def over() -> bool:
            length, size = self.limits.get("x-max-length"), self.limits.get("x-max-length-bytes")
            return (length is not None and len(self.ready) > length) or (
                size is not None and sum(len(sent.body) for sent in self.ready) > size
            )

        while over():
            victim = min(self.ready)
            self.ready.remove(victim)
            self.dead.append(victim.body)

    @rule(priority=st.one_of(st.none(), st.integers(0, TOP + 2)), size=st.integers(1, 6))
    def publish(self, priority: int | None, size: int) -> None:
        body = b"%d" % self.number
        body += b"." * (size - len(body))
        self.client.publish("q", body, priority=priority, delivery_mode=2)
        self.ready.append(Sent(min(priority or 0, TOP), self.number, body))
        self.number += 1
        self.drop()

    @rule()
    def get(self) -> None:
        content = self.client.get(no_ack=False)
        if not self.ready:
            assert content is None
            return
        assert content is not None
        sent = min(self.ready, key=lambda each: (-each.priority, each.number))
        assert content.body == sent.body
        self.ready.remove(sent)
        self.tag += 1
        self.unacked[self.tag] = sent

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), back=st.booleans())
    def settle(self, data: st.DataObject, back: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.unacked)))
        self.client.send(1, m.BasicNack(tag, requeue=True) if back else m.BasicAck(tag))
        sent = self.unacked.pop(tag)
        if back:
            self.ready.append(sent)
            self.drop()

    @rule(limits=LIMITS)
    def change(self, limits: dict[str, int]) -> None:
        self.limits = dict(limits)
        values = {name: limits.get(name) for name in ("x-max-length", "x-max-length-bytes")}
        self.kit.node.vhosts["/"].change_queue("q", values)
        self.drop()

    @precondition(lambda self: self.durable)
    @rule()
    def restart(self) -> None:
        self.kit.stop()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client = self.kit.client()
        self.ready += self.unacked.values()
        self.unacked.clear()
        self.tag = 0
        self.drop()

    @invariant()
    def same(self) -> None:
        vhost = self.kit.node.vhosts["/"]
        if "q" not in vhost.queues:
            return  # before the first rule
        queue, dead = vhost.queues["q"], vhost.queues["dead"]
        assert isinstance(queue, ClassicQueue)
        assert isinstance(dead, ClassicQueue)
        assert queue.message_count == len(self.ready)
        if queue.backlog is not None:
            ordered = sorted(self.ready, key=lambda each: (-each.priority, each.number))
            assert [held.message.content.body for held in queue.backlog] == [sent.body for sent in ordered]
        assert self.client.count("dead") == len(self.dead)

    @precondition(lambda self: self.dead)
    @rule()
    def read_the_dead(self) -> None:
        for body in self.dead:
            letter = self.client.get("dead")
            assert letter is not None
            assert letter.body == body
            self.tag += 1
            deaths = (letter.decode_properties().headers or {})["x-death"]
            assert isinstance(deaths, list)
            assert isinstance(deaths[0], dict)
            assert (deaths[0]["reason"], deaths[0]["queue"]) == ("maxlen", "q")
        self.dead.clear()


class DurableLowestFirstMachine(LowestFirstMachine):
    durable = True


for machine in (LowestFirstMachine, DurableLowestFirstMachine):
    machine.TestCase.settings = settings(max_examples=scaled(40), stateful_step_count=30)
TestLowestFirst = LowestFirstMachine.TestCase
TestDurableLowestFirst = pytest.mark.repeats(DurableLowestFirstMachine.TestCase)


def bodies(client: Client, queue: str = "q") -> list[bytes]:
    return [content.body for content in iter(lambda: client.get(queue), None) if isinstance(content, Content)]


def fill(client: Client, queue: str = "q") -> None:
    for priority, body in ((2, b"high"), (0, b"low"), (3, b"highest"), (1, b"lower")):
        client.publish(queue, body, priority=priority)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({**LOWEST, "x-max-length": 2}, [b"highest", b"high"]),
        ({**LOWEST, "x-max-length-bytes": 11}, [b"highest", b"high"]),
        ({"x-max-priority": TOP, "x-max-length": 2}, [b"low", b"lower"]),  # drop-head, as RabbitMQ
    ],
)
def test_the_overflows_with_priorities(client: Client, arguments: dict[str, Any], left: list[bytes]) -> None:
    client.call(m.QueueDeclare("q", arguments=arguments), m.QueueDeclareOk)
    fill(client)
    assert set(bodies(client)) == set(left)


def test_a_new_message_below_all_others_is_dropped_and_confirmed(kit: NodeKit, client: Client) -> None:
    client.call(m.QueueDeclare("q", arguments={**LOWEST, "x-max-length": 1}), m.QueueDeclareOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"high", priority=2)
    client.publish("q", b"low", priority=1)
    assert [method.delivery_tag for method in client.take(m.BasicAck)] == [1, 2]
    counts = complete(vhost_statistics(kit.node, kit.node.vhosts["/"]))["queues"]["q"]
    assert (counts["messages_ready"], bodies(client)) == (1, [b"high"])


def test_a_policy_brings_it_to_queues_with_priorities_and_drops_the_head_of_others(
    kit: NodeKit, client: Client
) -> None:
    for name, arguments in (
        ("levels", {"x-max-priority": TOP}),
        ("plain", {}),
        ("quorum", {"x-queue-type": "quorum"}),
        ("groups", {"x-message-group": "g"}),
    ):
        client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
    kit.node.vhosts["/"].policies.set(Policy("/", "p", ".", {"max-length": 2, "overflow": "drop-lowest-priority"}))
    expected = {"levels": [b"highest", b"high"]}
    for name in ("levels", "plain", "quorum", "groups"):
        fill(client, name)
        assert bodies(client, name) == expected.get(name, [b"highest", b"lower"]), name


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "quorum"}, {"x-message-group": "g"}])
def test_a_queue_without_priorities_refuses_the_argument(client: Client, arguments: dict[str, Any]) -> None:
    table = {**arguments, "x-overflow": "drop-lowest-priority"}
    closed = client.call(m.QueueDeclare("q", durable=True, arguments=table), m.ChannelClose)
    assert closed.reply_code == 406
    assert "drop_lowest_priority_but_no_max_priority_defined" in closed.reply_text


def test_priorities_cannot_be_taken_away_alone(kit: NodeKit, client: Client) -> None:
    client.call(m.QueueDeclare("q", arguments=LOWEST), m.QueueDeclareOk)
    vhost = kit.node.vhosts["/"]
    with pytest.raises(Exception, match="drop_lowest_priority_but_no_max_priority_defined"):
        vhost.change_queue("q", {"x-max-priority": None})
    vhost.change_queue("q", {"x-max-priority": None, "x-overflow": None})


def test_what_returns_while_a_new_limit_is_enforced_in_slices(kit: NodeKit, client: Client) -> None:
    client.declare(x_queue_type="quorum")
    for number in range(1000):
        client.publish("q", b"%d" % number)
    assert client.get(no_ack=False)
    kit.stopwatch.step = 1.0
    kit.node.vhosts["/"].policies.set(Policy("/", "p", ".", {"max-length": 10}))
    before = kit.node.vhosts["/"].queues["q"].message_count
    client.send(1, m.BasicNack(1, requeue=True))
    assert client.count() > before - 200, "the rest is dropped in slices"
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    assert bodies(client) == [b"%d" % number for number in range(990, 1000)]


@pytest.mark.parametrize(
    ("share", "died"), [(length_limit.RETURNED, [3, 2, 1, 0]), (2, [1, 0, 2, 3])], ids=["one share", "more"]
)
def test_what_returns_beyond_a_quorum_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch, share: int, died: list[int]
) -> None:
    monkeypatch.setattr(length_limit, "RETURNED", share)
    client.declare("dead")
    client.declare(x_queue_type="quorum", x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    for number in range(4):
        client.publish("q", b"%d" % number)
        assert client.get(no_ack=False)
    client.publish("q", b"4")
    client.publish("q", b"5")
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))
    assert bodies(client) == [b"4", b"5"]
    assert bodies(client, "dead") == [b"%d" % number for number in died]
