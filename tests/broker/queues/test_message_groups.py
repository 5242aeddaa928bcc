"""Message groups: in order, to one consumer at a time, and nothing waits that need not."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.errors import NotImplemented as NotImplemented540
from harebell.protocol.v091 import Content, FieldValue, Table, methods as m
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled


def declare(client: Client, **arguments: Any) -> None:
    client.declare(x_message_group="g", **arguments)


def put(client: Client, body: str, group: FieldValue = None, **rest: Any) -> None:
    client.publish("q", body.encode(), headers=None if group is None else {"g": group}, **rest)


def consume(client: Client, tag: str, prefetch: int = 1, channel: int = 1, **rest: Any) -> None:
    client.call(m.BasicQos(0, prefetch), m.BasicQosOk, channel)
    client.send(channel, m.BasicConsume("q", tag, **rest))


def delivered(client: Client) -> list[str]:
    """consumer tag and body, in order"""
    found = []
    for _, event in client.events:
        if isinstance(event, Content):
            method = event.decode_method()
            tag = method.consumer_tag if isinstance(method, m.BasicDeliver) else "get"
            found.append(f"{tag}:{event.body.decode()}")
    client.events.clear()
    return found


def test_a_group_stays_with_its_consumer_while_it_has_unacknowledged_messages_of_it(client: Client) -> None:
    declare(client)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b"), ("free", None)):
        put(client, body, group)
    consume(client, "one")
    consume(client, "two")
    assert delivered(client) == ["one:a1", "two:b1"]
    client.send(1, m.BasicAck(1))
    assert delivered(client) == ["one:a2"]
    client.send(1, m.BasicAck(2))
    assert delivered(client) == ["two:b2"]
    client.send(1, m.BasicAck(4))
    assert delivered(client) == ["two:free"]


def test_a_full_consumer_blocks_its_groups_only(client: Client) -> None:
    declare(client)
    client.open(2)
    consume(client, "one")
    for number in range(50):
        put(client, f"a{number}", "a")
    consume(client, "two", 2, 2)
    for body in ("b1", "b2", "b3"):
        put(client, body, "b")
    assert delivered(client) == ["one:a0", "two:b1", "two:b2"]
    assert client.count() == 50
    client.send(2, m.BasicAck(1))
    client.send(1, m.BasicAck(1))
    assert delivered(client) == ["two:b3", "one:a1"]


def test_a_free_group_goes_to_whoever_is_next(client: Client) -> None:
    declare(client)
    consume(client, "one")
    consume(client, "two")
    for number in range(4):
        put(client, f"a{number}", "a")
        (came,) = delivered(client)
        assert came == f"{('one', 'two')[number % 2]}:a{number}"
        client.send(1, m.BasicAck(number + 1))


def test_what_comes_back_goes_before_the_rest_of_its_group(client: Client) -> None:
    declare(client)
    for number in range(4):
        put(client, f"a{number}", "a")
    consume(client, "one", 3)
    consume(client, "two", 3)
    assert delivered(client) == ["one:a0", "one:a1", "one:a2"]
    client.send(1, m.BasicCancel("one", no_wait=True))
    assert delivered(client) == []  # they are still its
    client.send(1, m.BasicNack(3, multiple=True, requeue=True))
    assert delivered(client) == ["two:a0", "two:a1", "two:a2"]
    client.send(1, m.BasicReject(4, requeue=False))
    assert delivered(client) == ["two:a3"]


def test_without_the_header_there_is_no_group(client: Client) -> None:
    declare(client)
    consume(client, "one")
    consume(client, "two")
    for number in range(2):
        put(client, f"{number}")
    client.publish("q", b"g in the body")
    assert delivered(client) == ["one:0", "two:1"]


@pytest.mark.parametrize(("one", "two", "same"), [("1", 1, False), (1, True, False), ("x", "x", True), (7, 7, True)])
def test_values_are_compared_as_what_they_are(client: Client, one: FieldValue, two: FieldValue, same: bool) -> None:
    declare(client)
    consume(client, "one")
    consume(client, "two")
    put(client, "1", one)
    put(client, "2", two)
    assert delivered(client) == (["one:1"] if same else ["one:1", "two:2"])


def test_get_respects_groups(kit: NodeKit) -> None:
    client, other = kit.client(), kit.client()
    declare(client)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
        put(client, body, group)
    client.send(1, m.BasicGet("q"))
    assert delivered(client) == ["get:a1"]
    other.send(1, m.BasicGet("q", no_ack=True))
    other.send(1, m.BasicGet("q", no_ack=True))
    assert delivered(other) == ["get:b1"]  # and nothing more, though a2 and a3 are there
    assert other.count() == 2
    client.send(1, m.BasicGet("q"))
    assert delivered(client) == ["get:a2"]
    client.send(1, m.BasicAck(1))
    other.send(1, m.BasicConsume("q", "c"))
    assert delivered(other) == []
    client.send(1, m.BasicAck(2))
    other.receive()
    assert delivered(other) == ["c:a3"]


def test_a_consumer_without_acknowledgements_holds_nothing(client: Client) -> None:
    declare(client)
    consume(client, "one", no_ack=True)
    consume(client, "two", no_ack=True)
    for number in range(3):
        put(client, f"a{number}", "a")
    assert delivered(client) == ["one:a0", "two:a1", "one:a2"]


def test_acknowledgements_in_a_transaction_count_at_its_commit(client: Client) -> None:
    declare(client)
    client.open(2)
    client.events.clear()
    put(client, "a1", "a")
    put(client, "a2", "a")
    client.call(m.TxSelect(), m.TxSelectOk, 2)
    consume(client, "one", 1, 2)
    consume(client, "two", 1, 1)
    client.send(2, m.BasicAck(1))
    client.call(m.TxRollback(), m.TxRollbackOk, 2)
    assert delivered(client) == ["one:a1"]
    client.send(2, m.BasicAck(1))
    client.send(2, m.TxCommit())
    assert delivered(client) == ["one:a2"]


def test_who_is_not_the_single_active_consumer_any_more_gets_no_more_of_its_groups(
    kit: NodeKit, client: Client
) -> None:
    declare(client)
    consume(client, "one", 10)
    consume(client, "two", 10)
    for body in ("a1", "b1"):
        put(client, body, body[0])
    assert delivered(client) == ["one:a1", "two:b1"]
    kit.node.vhosts["/"].change_queue("q", {"x-single-active-consumer": True})
    for body in ("b2", "a2", "b3"):
        put(client, body, body[0])
    assert delivered(client) == ["one:a2"]
    client.send(1, m.BasicAck(2))
    assert delivered(client) == ["one:b2", "one:b3"]


def test_a_single_active_consumer_leaves_its_groups_behind_when_they_are_settled(client: Client) -> None:
    declare(client, x_single_active_consumer=True)
    put(client, "a1", "a")
    put(client, "a2", "a")
    put(client, "b1", "b")
    consume(client, "one")
    consume(client, "two")
    client.send(1, m.BasicCancel("one", no_wait=True))
    assert delivered(client) == ["one:a1", "two:b1"]  # a2 not before a1 is settled
    client.send(1, m.BasicAck(2))
    assert delivered(client) == []
    client.send(1, m.BasicAck(1))
    assert delivered(client) == ["two:a2"]


def test_limits_expiry_and_dead_letters(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    declare(client, x_max_length=3, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    consume(client, "one")
    for number in range(5):
        put(client, f"a{number}", "a")
    assert client.count("dead") == 1  # a1, the oldest, though nobody may have it now
    put(client, "b0", "b", expiration="100")
    kit.pass_time(100)
    assert client.count() == 2
    assert client.count("dead") == 3
    assert delivered(client) == ["one:a0"]
    client.send(1, m.BasicReject(1, requeue=False))
    assert delivered(client) == ["one:a3"]
    client.send(1, m.BasicAck(2))
    assert delivered(client) == ["one:a4"]


@pytest.mark.parametrize("held", [True, False])
def test_a_time_of_zero_needs_a_consumer_that_may_have_it(client: Client, held: bool) -> None:
    client.declare("dead")
    declare(client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    consume(client, "one")
    consume(client, "two")
    put(client, "a1", "a" if held else "b")
    put(client, "a2", "a", expiration="0")
    assert delivered(client) == (["one:a1"] if held else ["one:a1", "two:a2"])
    assert client.count("dead") == held
    assert client.count() == 0


def test_a_purge_leaves_who_holds_what(client: Client) -> None:
    declare(client)
    consume(client, "one")
    put(client, "a1", "a")
    put(client, "a2", "a")
    assert client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 1
    consume(client, "two")
    put(client, "a3", "a")
    assert delivered(client) == ["one:a1"]
    client.send(1, m.BasicAck(1))
    assert delivered(client) == ["one:a3"]  # free now, so it is a matter of turns


@pytest.mark.parametrize("arguments", [None, {"x-selector": "g <> 'a'"}], ids=["", "selector"])
def test_a_purge_of_many_groups_in_slices(kit: NodeKit, client: Client, arguments: Table | None) -> None:
    declare(client)
    consume(client, "one", arguments=arguments)
    for number in range(1200):
        put(client, f"a{number}", f"g{number}")
    assert delivered(client) == ["one:a0"]
    queue: Any = kit.node.vhosts["/"].queues["q"]
    kit.stopwatch.step = 1.0
    client.send(1, m.QueuePurge("q"))
    assert len(queue.groups._groups) == 1
    lines = sum(type(each).__name__ == "_Line" for each in gc.get_objects())
    assert lines >= 1199, "they are freed in slices"
    kit.node.batch.slices.finish()
    client.receive()
    assert [answer.message_count for answer in client.take(m.QueuePurgeOk)] == [1199]
    kit.stopwatch.step = 0.0
    put(client, "b0", "g0")
    put(client, "b1", "g1")
    client.send(1, m.BasicAck(1))
    assert delivered(client) == ["one:b0"]


def test_an_overdue_group_goes_to_another(kit: NodeKit) -> None:
    client, other = kit.client(), kit.client()
    declare(client, x_consumer_timeout=1000)
    put(client, "a1", "a")
    put(client, "a2", "a")
    consume(client, "one")
    consume(other, "two")
    kit.pass_time(2000)
    assert delivered(client) == ["one:a1"]
    assert delivered(other) == ["two:a1"]


def test_what_blocks_is_seen_by_who_browses(client: Client) -> None:
    declare(client)
    consume(client, "one")
    for number in range(3):
        put(client, f"a{number}", "a")
    consume(client, "b", no_ack=True, arguments={"x-browse": True})
    assert delivered(client) == ["one:a0", "b:a1", "b:a2"]
    client.send(1, m.BasicNack(1, requeue=True))
    assert delivered(client) == ["one:a0"]
    assert client.count() == 2


def test_memory_of_groups_that_are_gone_is_let_go(kit: NodeKit) -> None:
    client = kit.client()
    declare(client)
    queue: Any = kit.node.vhosts["/"].queues["q"]
    for number in range(1000):
        put(client, "x", f"g{number}", expiration="10")
        kit.pass_time(10)
    assert len(queue.groups._groups) == 0
    assert len(queue.groups.lines._free) < 200
    consume(client, "one", 2)
    put(client, "a", "a")
    put(client, "b", "b")
    for tag in range(1, 2001, 2):
        client.send(1, m.BasicNack(tag, requeue=True))
        client.send(1, m.BasicNack(tag + 1, requeue=True))
    assert len(queue.groups.levels[0].returned) < 200
    client.send(1, m.BasicCancel("one", no_wait=True))
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))
    assert (queue.groups.lines._held, queue.groups._holds) == ({}, {})


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"x_message_group": 1}, 406, "invalid arg 'x-message-group' for queue 'q' in vhost '/'"),
        ({"x_message_group": ""}, 406, "invalid_header_name"),
        ({"x_message_group": "g", "x_max_priority": 3}, 406, "group_and_max_priority_defined"),
        ({"x_message_group": "g", "x_queue_type": "stream"}, 406, "of queue type rabbit_stream_queue"),
        (
            {"x_message_group": "g", "x_delayed_retry_type": "all", "x_delayed_retry_min": 1},
            540,
            "x-message-group with delayed retry",
        ),
    ],
)
def test_refusals(client: Client, arguments: dict[str, Any], code: int, text: str) -> None:
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.send(1, m.QueueDeclare("q", durable=True, arguments=table))
    closes: list[m.ChannelClose | m.ConnectionClose] = [*client.take(m.ChannelClose), *client.take(m.ConnectionClose)]
    (close,) = closes
    assert close.reply_code == code
    assert text in close.reply_text


def test_a_policy_cannot_bring_delayed_retry_to_a_queue_with_groups(kit: NodeKit) -> None:
    client = kit.client()
    declare(client)
    policies = kit.node.vhosts["/"].policies
    with pytest.raises(NotImplemented540, match="x-message-group with delayed retry"):
        policies.set(Policy("/", "later", "", {"delayed-retry-type": "all", "delayed-retry-min": 10}))
    assert policies.policies == {}


class GroupMachine(RuleBasedStateMachine):
    """Three consumers, each on a channel of its own, and basic.get on channel 4. A model says who may have what."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client: Client = self.kit.client()
        for channel in (2, 3, 4):
            self.client.open(channel)
        self.client.events.clear()
        self.client.call(m.QueueDeclare("q", arguments={"x-message-group": "g"}), m.QueueDeclareOk)
        self.groups: list[int] = []  # of each message published, its group; 0: none
        self.ready: set[int] = set()
        self.out: dict[int, dict[int, int]] = {channel: {} for channel in (1, 2, 3, 4)}  # channel: tag: message
        self.prefetch: dict[int, int] = {}  # of the channels with a consumer
        self.window: dict[int, set[int]] = {channel: set() for channel in (1, 2, 3, 4)}  # tags of the consumer there
        self.generation = dict.fromkeys((1, 2, 3, 4), 0)
        self.owner: dict[tuple[int, int], tuple[int, int]] = {}  # (channel, tag): (channel, number of the consumer)

    def teardown(self) -> None:
        self.kit.stop()
        self.folder.cleanup()

    def holding(self, group: int) -> set[tuple[int, int]]:
        return {
            self.owner[channel, tag]
            for channel, table in self.out.items()
            for tag, message in table.items()
            if self.groups[message] == group and group
        }

    def available(self, who: tuple[int, int]) -> list[int]:
        return sorted(message for message in self.ready if self.holding(self.groups[message]) <= {who})

    def room(self, channel: int) -> bool:
        return channel in self.prefetch and len(self.window[channel]) < self.prefetch[channel]

    def handed(self, channel: int, tag: int, message: int, who: tuple[int, int]) -> None:
        assert message == self.available(who)[0], "not the oldest that it may have"
        self.ready.remove(message)
        self.out[channel][tag] = message
        self.owner[channel, tag] = who

    def expect_deliveries(self) -> None:
        self.client.receive()
        events, self.client.events = self.client.events, []
        for channel, event in events:
            assert isinstance(event, Content), event
            method = event.decode_method()
            assert isinstance(method, m.BasicDeliver)
            assert self.room(channel)
            self.handed(channel, method.delivery_tag, int(event.body), (channel, self.generation[channel]))
            self.window[channel].add(method.delivery_tag)
        for channel in self.prefetch:
            if self.room(channel):
                assert self.available((channel, self.generation[channel])) == [], "something waits that need not"

    @rule(groups=st.lists(st.integers(0, 3), min_size=1, max_size=5))
    def publish(self, groups: list[int]) -> None:
        for group in groups:
            self.ready.add(len(self.groups))
            body = b"%d" % len(self.groups)
            self.groups.append(group)
            self.client.publish("q", body, headers={"g": group} if group else None)
            self.expect_deliveries()

    @precondition(lambda self: any(self.out.values()))
    @rule(data=st.data(), multiple=st.booleans(), how=st.sampled_from(["ack", "ack", "requeue", "drop"]))
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        channel = data.draw(st.sampled_from([channel for channel, table in self.out.items() if table]))
        tag = data.draw(st.sampled_from(sorted(self.out[channel])))
        tags = [each for each in self.out[channel] if each <= tag] if multiple else [tag]
        if how == "ack":
            self.client.send(channel, m.BasicAck(tag, multiple=multiple))
        else:
            self.client.send(channel, m.BasicNack(tag, multiple=multiple, requeue=how == "requeue"))
        self._settled(channel, tags, how == "requeue")
        self.expect_deliveries()

    def _settled(self, channel: int, tags: list[int], requeue: bool) -> None:
        for tag in tags:
            message = self.out[channel].pop(tag)
            self.window[channel].discard(tag)
            if requeue:
                self.ready.add(message)

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        self.client.send(4, m.BasicGet("q", no_ack=no_ack))
        _, event = self.client.events.pop()
        who = (0, 0) if no_ack else (4, 0)
        if not self.available(who):
            assert isinstance(event, m.BasicGetEmpty)
            return
        assert isinstance(event, Content)
        method = event.decode_method()
        assert isinstance(method, m.BasicGetOk)
        self.handed(4, method.delivery_tag, int(event.body), who)
        if no_ack:
            del self.out[4][method.delivery_tag]
        self.expect_deliveries()

    @rule(channel=st.integers(1, 3), prefetch=st.integers(1, 3))
    def consume_or_cancel(self, channel: int, prefetch: int) -> None:
        if channel in self.prefetch:
            self.client.send(channel, m.BasicCancel("c", no_wait=True))
            del self.prefetch[channel]
        else:
            self.client.call(m.BasicQos(0, prefetch), m.BasicQosOk, channel)
            self.client.send(channel, m.BasicConsume("q", "c", no_wait=True))
            self.prefetch[channel] = prefetch
            self.generation[channel] += 1
            self.window[channel] = set()
        self.expect_deliveries()

    @rule(channel=st.integers(1, 4))
    def recover(self, channel: int) -> None:
        self.client.send(channel, m.BasicRecoverAsync(requeue=True))
        self._settled(channel, list(self.out[channel]), True)
        self.expect_deliveries()

    @rule()
    def purge(self) -> None:
        self.client.call(m.QueuePurge("q"), m.QueuePurgeOk)
        self.ready.clear()

    @invariant()
    def nobody_shares_a_group_and_nothing_is_lost(self) -> None:
        assert all(len(self.holding(group)) <= 1 for group in (1, 2, 3))
        assert self.client.count() == len(self.ready)


GroupMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestGroups = pytest.mark.slow(GroupMachine.TestCase)
