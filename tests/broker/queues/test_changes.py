"""Changing a queue's arguments in place: what it does to the queue, and that it is all or nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harebell import errors
from harebell.broker import Broker
from harebell.broker.queues import classic
from harebell.protocol.v091 import Content, methods as m
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

Change = Callable[..., None]


@pytest.fixture
def change(kit: NodeKit) -> Change:
    """Called with the queue's name and arguments; x_message_ttl stands for x-message-ttl."""

    def make(queue: str, **arguments: Any) -> None:
        changes = {name.replace("_", "-"): value for name, value in arguments.items()}
        kit.node.vhosts["/"].change_queue(queue, changes)

    return make


def bodies(client: Client, queue: str = "q") -> list[bytes]:
    found = []
    while (got := client.get(queue)) is not None:
        found.append(got.body)
    return found


def redeclared(client: Client, **arguments: Any) -> bool:
    """Whether a declaration with these arguments is equal; the channel is open again afterwards."""
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.send(1, m.QueueDeclare("q", durable=True, arguments=table))
    _, answer = client.events.pop()
    if isinstance(answer, m.ChannelClose):
        assert answer.reply_code == 406
        assert answer.reply_text.startswith("PRECONDITION_FAILED - inequivalent arg ")
        client.send(1, m.ChannelCloseOk())
        client.open()
        client.events.clear()
    return isinstance(answer, m.QueueDeclareOk)


def test_declarations_are_compared_with_the_new_arguments(client: Client, change: Change) -> None:
    client.declare(x_message_ttl=1000, x_max_length=5)
    change("q", x_message_ttl=None, x_expires=60_000)
    assert not redeclared(client, x_message_ttl=1000, x_max_length=5)
    assert redeclared(client, x_max_length=5, x_expires=60_000)


def test_a_time_to_live_is_for_what_comes(client: Client, kit: NodeKit, change: Change) -> None:
    client.declare()
    client.publish("q", b"old")
    change("q", x_message_ttl=100)
    client.publish("q", b"new")
    kit.pass_time(100)
    assert bodies(client) == [b"old"]
    change("q", x_message_ttl=None)
    client.publish("q", b"1")
    kit.pass_time(100_000)
    assert bodies(client) == [b"1"]


def test_a_limit_holds_at_once_and_dead_letters_go_the_new_way(client: Client, change: Change) -> None:
    client.declare("dead")
    client.declare()
    for number in range(4):
        client.publish("q", b"%d" % number)
    change("q", x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    assert (bodies(client), bodies(client, "dead")) == ([b"2", b"3"], [b"0", b"1"])


def test_reject_publish_and_back(client: Client, change: Change) -> None:
    client.declare(x_max_length=1)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    change("q", x_overflow="reject-publish")
    for _ in range(2):
        client.publish("q")
    assert (len(client.take(m.BasicAck)), len(client.take(m.BasicNack))) == (1, 1)
    change("q", x_overflow=None)
    client.publish("q")
    assert len(client.take(m.BasicAck)) == 1


def test_a_lease(client: Client, kit: NodeKit, change: Change) -> None:
    client.declare()
    change("q", x_expires=100)
    kit.pass_time(99)
    assert "q" in kit.node.vhosts["/"].queues
    kit.pass_time(1)
    assert "q" not in kit.node.vhosts["/"].queues


def test_a_delivery_limit(client: Client, change: Change) -> None:
    client.declare()
    client.publish("q")
    client.get(no_ack=False)
    change("q", x_delivery_limit=0)
    client.send(1, m.BasicNack(1, requeue=True))
    assert client.count() == 0


def test_deduplication(client: Client, change: Change) -> None:
    client.declare()

    def publish(*keys: str) -> None:
        for key in keys:
            client.publish("q", headers={"x-deduplication-header": key})

    publish("a", "a")
    change("q", x_message_deduplication=True)
    publish("a", "a", "b")
    assert client.count() == 4
    change("q", x_cache_size=1)
    publish("a", "b")
    assert client.count() == 6
    change("q", x_message_deduplication=None, x_cache_size=None)
    publish("b")
    assert client.count() == 7


def test_delayed_retry_that_ends_keeps_what_waits_until_its_time(client: Client, kit: NodeKit, change: Change) -> None:
    client.declare()
    change("q", x_delayed_retry_type="all", x_delayed_retry_min=100)
    for tag in (1, 2):
        client.publish("q")
        client.get(no_ack=False)
        client.send(1, m.BasicNack(tag, requeue=True))
        if tag == 1:
            change("q", x_delayed_retry_type=None, x_delayed_retry_min=None)
    assert client.count() == 1
    kit.pass_time(100)
    assert client.count() == 2


def test_a_consumer_timeout(client: Client, kit: NodeKit, change: Change) -> None:
    client.declare()
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.publish("q")
    change("q", x_consumer_timeout=1000)
    kit.pass_time(2000)
    assert len(client.take(m.BasicCancel)) == 1


# -- priorities --------------------------------------------------------------------------------------------------


def test_messages_move_to_the_level_of_their_priority(client: Client, change: Change) -> None:
    client.declare()
    for priority in (1, 5, 3, 5, 0):
        client.publish("q", b"%d" % priority, priority=priority)
    change("q", x_max_priority=4)
    assert bodies(client) == [b"5", b"5", b"3", b"1", b"0"]
    for priority in (1, 5, 3, 5, 0):
        client.publish("q", b"%d" % priority, priority=priority)
    change("q", x_max_priority=None)
    assert bodies(client) == [b"1", b"5", b"3", b"5", b"0"]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("tops", "order"), [([3], [0, 5, 4, 1, 3, 2]), ([3, 1], [0, 1, 3, 4, 5, 2]), ([3, None], [0, 1, 2, 3, 4, 5])]
)
def test_a_long_queue_gets_priorities(
    client: Client, kit: NodeKit, monkeypatch: pytest.MonkeyPatch, tops: list[int | None], order: list[int]
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client.declare()
    for number, priority in enumerate((3, 1, 0, 1, 2, 3)):
        client.publish("q", b"%d" % number, priority=priority)
    kit.stopwatch.step = 1.0
    for top in tops:
        kit.node.vhosts["/"].change_queue("q", {"x-max-priority": top})
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, classic.ClassicQueue)
    assert queue.is_enriching
    kit.stopwatch.step = 0.0
    kit.run_syncs()
    assert not queue.is_enriching
    assert bodies(client) == [b"%d" % number for number in order]


def test_an_unacked_message_comes_back_to_the_level_that_it_has_now(client: Client, change: Change) -> None:
    client.declare(x_max_priority=9)
    for priority in (9, 2, 1):
        client.publish("q", b"%d" % priority, priority=priority)
    client.get(no_ack=False)
    change("q", x_max_priority=1)
    client.send(1, m.BasicNack(1, requeue=True))
    assert bodies(client) == [b"9", b"2", b"1"]


class PrioritiesMachine(RuleBasedStateMachine):
    """A queue whose x-max-priority changes; the model sorts by level, then by position."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client = self.kit.client()
        self.client.declare()
        self.top: int | None = None
        self.published = 0
        self.ready: list[tuple[int, int]] = []  # position, priority
        self.unacked: dict[int, tuple[int, int]] = {}
        self.tag = 0

    def teardown(self) -> None:
        self.kit.stop()
        self.folder.cleanup()

    @rule(top=st.none() | st.integers(0, 4))
    def change(self, top: int | None) -> None:
        self.kit.node.vhosts["/"].change_queue("q", {"x-max-priority": top})
        self.top = top

    @rule(priority=st.integers(0, 6))
    def publish(self, priority: int) -> None:
        self.client.publish("q", b"%d" % self.published, priority=priority)
        self.ready.append((self.published, priority))
        self.published += 1

    @rule()
    def get(self) -> None:
        self.client.send(1, m.BasicGet("q"))
        _, event = self.client.events.pop()
        if not self.ready:
            assert isinstance(event, m.BasicGetEmpty)
            return
        assert isinstance(event, Content)
        first = min(self.ready, key=lambda each: (-min(each[1], self.top or 0), each[0]))
        assert int(event.body) == first[0]
        self.ready.remove(first)
        self.tag += 1
        self.unacked[self.tag] = first

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if self.unacked:
            tag = data.draw(st.sampled_from(sorted(self.unacked)))
            self.client.send(1, m.BasicNack(tag, requeue=True))
            self.ready.append(self.unacked.pop(tag))

    @invariant()
    def counts_agree(self) -> None:
        assert self.client.count() == len(self.ready)


PrioritiesMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestPriorities = pytest.mark.repeats(PrioritiesMachine.TestCase)


# -- single active consumer --------------------------------------------------------------------------------------


def test_one_consumer_becomes_the_active_one_and_later_all_are(client: Client, change: Change) -> None:
    client.declare()
    for tag, priority in (("low", 0), ("first", 1), ("second", 1)):
        consume = m.BasicConsume("q", tag, arguments={"x-priority": priority})
        client.call(consume, m.BasicConsumeOk)
    client.publish("q")  # whose turn it is does not matter: the second one would be next

    def who(count: int) -> list[str]:
        for _ in range(count):
            client.publish("q")
        return [each.consumer_tag for each in client.take(m.BasicDeliver)]

    assert who(2) == ["first", "second", "first"]
    change("q", x_single_active_consumer=True)
    assert who(3) == ["first"] * 3
    client.call(m.BasicCancel("first"), m.BasicCancelOk)
    assert who(2) == ["second"] * 2
    change("q", x_single_active_consumer=False)
    client.call(m.BasicConsume("q", "third", arguments={"x-priority": 1}), m.BasicConsumeOk)
    assert who(2) == ["second", "third"]


def test_not_while_one_consumes_exclusively(client: Client, change: Change) -> None:
    client.declare()
    client.call(m.BasicConsume("q", "c", exclusive=True), m.BasicConsumeOk)
    with pytest.raises(errors.AccessRefused, match="queue 'q' in vhost '/' in exclusive use"):
        change("q", x_single_active_consumer=True)
    assert redeclared(client)


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x_queue_type": "quorum"}, "invalid arg 'x-queue-type' for queue 'q' in vhost '/': "
                                     "the type of a queue cannot be changed"),
        ({"x_queue_type": "stream"}, "the type of a queue cannot be changed"),
        ({"x_foo": 1}, "invalid arg 'x-foo' for queue 'q' in vhost '/': unknown argument"),
        ({"x_message_ttl": -1}, "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}"),
        ({"x_max_length": "1"}, 'invalid arg .* "expected integer, got longstr"'),
        ({"x_dead_letter_exchange": None}, "routing_key_but_no_dlx_defined"),
        ({"x_max_age": "1D"}, "invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"),
    ],
)  # fmt: skip
def test_refused_and_nothing_changed(client: Client, change: Change, changes: dict[str, Any], text: str) -> None:
    before: dict[str, Any] = {"x_max_length": 5, "x_dead_letter_exchange": "", "x_dead_letter_routing_key": "r"}
    client.declare(**before)
    with pytest.raises(errors.PreconditionFailed, match=text.replace("{", r"\{")):
        change("q", **{"x_max_length": 1, **changes})
    assert redeclared(client, **before)
    for _ in range(5):
        client.publish("q")
    assert client.count() == 5


def test_the_type_that_it_has_is_no_change(client: Client, change: Change) -> None:
    client.declare()
    change("q", x_queue_type="classic")
    change("q", x_queue_type=None)
    assert redeclared(client)


def test_a_quorum_queue_stays_one(client: Client, change: Change) -> None:
    client.declare(x_queue_type="quorum")
    with pytest.raises(errors.PreconditionFailed, match="the type of a queue cannot be changed"):
        change("q", x_queue_type=None)
    change("q", x_delivery_limit=0, x_queue_type="quorum")
    assert redeclared(client, x_queue_type="quorum", x_delivery_limit=0)


def test_policies_are_merged_with_the_new_arguments(client: Client, kit: NodeKit, change: Change) -> None:
    client.declare()
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "q", {"max-length": 3}))
    change("q", x_max_length=2)
    for _ in range(4):
        client.publish("q")
    assert client.count() == 2
    change("q", x_max_length=9)
    for _ in range(4):
        client.publish("q")
    assert client.count() == 3


def test_what_a_policy_makes_impossible_changes_nothing(client: Client, change: Change) -> None:
    client.declare("g", x_message_group="who")
    with pytest.raises(errors.NotImplemented):
        change("g", x_delayed_retry_type="all", x_delayed_retry_min=10)
    client.declare("g", x_message_group="who")


# -- from outside ------------------------------------------------------------------------------------------------


def ask(client: Client, body: bytes) -> dict[str, Any]:
    """What the service `amq.change-queue` answers."""
    client.declare("answers")
    client.publish("amq.change-queue", body, "amq.system", reply_to="answers")
    answer = client.get("answers")
    assert answer is not None
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_from_any_client(client: Client) -> None:
    client.declare(x_max_length=5)
    answer = ask(client, b'{"queue": "q", "arguments": {"x-max-length": null, "x-message-ttl": 100}}')
    assert answer == {"queue": "q", "arguments": {"x-message-ttl": 100}}
    assert redeclared(client, x_message_ttl=100)


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        (b"{", "precondition_failed", "PRECONDITION_FAILED - the body is not JSON: "),
        (b"[]", "precondition_failed",
         'PRECONDITION_FAILED - the body must be {"queue": string, "arguments": object}'),
        (b'{"queue": "q"}', "precondition_failed", "PRECONDITION_FAILED - the body must be "),
        (b'{"queue": "nope", "arguments": {}}', "not_found", "NOT_FOUND - no queue 'nope' in vhost '/'"),
        (b'{"queue": "q", "arguments": {"x-max-length": -1}}', "precondition_failed",
         "PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'q' in vhost '/': {value_negative,-1}"),
        (b'{"queue": "q", "arguments": {"x-queue-type": "stream"}}', "precondition_failed",
         "PRECONDITION_FAILED - invalid arg 'x-queue-type'"),
    ],
)  # fmt: skip
def test_refused_from_any_client(client: Client, body: bytes, error: str, reason: str) -> None:
    client.declare()
    answer = ask(client, body)
    assert answer["error"] == error
    assert answer["reason"].startswith(reason)


def test_not_anothers_exclusive_queue(kit: NodeKit) -> None:
    owner, other = kit.client(), kit.client()
    owner.call(m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
    assert ask(other, b'{"queue": "mine", "arguments": {"x-expires": 1}}')["error"] == "resource_locked"


def test_without_an_answer_it_is_done_all_the_same(client: Client) -> None:
    client.declare()
    client.publish("amq.change-queue", b'{"queue": "q", "arguments": {"x-max-length": 1}}', "amq.system")
    assert redeclared(client, x_max_length=1)


async def test_the_broker_has_it(tmp_path: Path) -> None:
    async with Broker(port=None, data=tmp_path) as broker:
        with pytest.raises(errors.NotFound, match="no queue 'q' in vhost '/'"):
            broker.change_queue("q", {"x-max-length": 1})
        with pytest.raises(errors.NotFound, match="no vhost 'v'"):
            broker.change_queue("q", {"x-max-length": 1}, vhost="v")
