"""Consumers with selectors: who gets what, and a model of a queue with many of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harebell.broker.queues.changes import change_queue
from harebell.broker.queues.selection import selecting
from harebell.protocol.v091 import Content, Table, methods as m
from harebell.routing.settings import queue_settings
from tests.broker.kit import Client, M, NodeKit, cut_finely
from tests.fixtures.profiles import scaled

RED, BLUE, BARE = "colour = 'red'", "colour = 'blue'", "colour IS NULL"


def consume(client: Client, selector: str | None, tag: str, channel: int = 1, prefetch: int = 0, **rest: Any) -> None:
    arguments: dict[str, Any] = dict(rest.pop("arguments", {}))
    if selector is not None:
        arguments["x-selector"] = selector
    client.call(m.BasicQos(0, prefetch), m.BasicQosOk, channel)
    client.send(channel, m.BasicConsume("q", tag, arguments=arguments, **rest))
    assert client.take(m.BasicConsumeOk)


def fill(client: Client, *messages: tuple[bytes, str | None], **properties: Any) -> None:
    for body, colour in messages:
        client.publish("q", body, headers=None if colour is None else {"colour": colour}, **properties)


def got(client: Client) -> list[tuple[str, bytes]]:
    """(consumer tag, body) of what was delivered."""
    found = []
    for _, event in client.events:
        method = event.decode_method() if isinstance(event, Content) else None
        if isinstance(event, Content) and isinstance(method, m.BasicDeliver):
            found.append((method.consumer_tag, event.body))
    client.events.clear()
    return found


KINDS: dict[str, Table] = {
    "plain": {},
    "priorities": {"x-max-priority": 2},
    "fair": {"x-max-priority": 2, "x-fairshare": [1, 2, 0]},
    "limited": {"x-max-length": 1000},
    "last value": {"x-last-value-key": "key"},
    "quorum": {"x-queue-type": "quorum"},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def declare(client: Client, kind: str) -> None:
    client.call(m.QueueDeclare("q", durable=True, arguments=KINDS[kind]), m.QueueDeclareOk)


@EVERY_KIND
@pytest.mark.parametrize("late", [False, True])
def test_each_gets_what_it_wants_and_the_rest_stays(client: Client, kind: str, late: bool) -> None:
    declare(client, kind)
    messages = [(b"%d" % n, ("red", "blue", None, "red")[n % 4]) for n in range(8)]
    if late:
        fill(client, *messages)
    consume(client, RED, "r")
    consume(client, BARE, "n")
    if not late:
        fill(client, *messages)
    found = got(client)
    assert [body for tag, body in found if tag == "r"] == [b"0", b"3", b"4", b"7"]
    assert [body for tag, body in found if tag == "n"] == [b"2", b"6"]
    assert client.count() == 2
    consume(client, None, "all")
    assert got(client) == [("all", b"1"), ("all", b"5")]


@EVERY_KIND
def test_what_comes_back_is_looked_at_again(client: Client, kind: str) -> None:
    declare(client, kind)
    fill(client, (b"0", "red"), (b"1", "blue"), (b"2", "red"))
    consume(client, "JMSRedelivered = TRUE", "again")
    assert got(client) == []
    consume(client, RED, "r", prefetch=1)
    assert got(client) == [("r", b"0")]
    client.send(1, m.BasicNack(1, requeue=True))
    assert got(client) in ([("again", b"0"), ("r", b"2")], [("r", b"0")], [("r", b"2"), ("again", b"0")])


def test_consumers_with_the_same_selector_take_turns(client: Client) -> None:
    client.declare()
    consume(client, RED, "a")
    consume(client, f" {RED} ", "b")
    consume(client, BLUE, "c")
    fill(client, *((b"%d" % n, "red" if n < 4 else "blue") for n in range(6)))
    assert got(client) == [("a", b"0"), ("b", b"1"), ("a", b"2"), ("b", b"3"), ("c", b"4"), ("c", b"5")]


def test_a_higher_priority_goes_first_where_it_wants_the_message(client: Client) -> None:
    client.declare()
    consume(client, None, "low")
    client.open(2)
    consume(client, RED, "high", channel=2, arguments={"x-priority": 5}, prefetch=2)
    for body, colour in ((b"0", "blue"), (b"1", "red"), (b"2", "red"), (b"3", "red")):
        fill(client, (body, colour))
    assert sorted(got(client)) == [("high", b"1"), ("high", b"2"), ("low", b"0"), ("low", b"3")]


def test_a_single_active_consumer(client: Client) -> None:
    """Only the active one gets anything, and what it does not want waits for the next one."""
    client.declare(x_single_active_consumer=True)
    consume(client, RED, "first")
    consume(client, None, "second")
    fill(client, (b"0", "blue"), (b"1", "red"))
    assert got(client) == [("first", b"1")]
    client.send(1, m.BasicCancel("first"))
    assert client.take(m.BasicCancelOk)
    assert got(client) == [("second", b"0")]


def test_an_exclusive_one(client: Client) -> None:
    client.declare()
    consume(client, RED, "r", exclusive=True)
    fill(client, (b"0", "blue"), (b"1", "red"))
    assert got(client) == [("r", b"1")]
    client.send(1, m.BasicConsume("q", "other"))
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 403


def test_without_acknowledgements(client: Client) -> None:
    client.declare()
    consume(client, RED, "r", no_ack=True)
    fill(client, (b"0", "blue"), (b"1", "red"), delivery_mode=2)
    assert got(client) == [("r", b"1")]
    assert client.count() == 1


def test_the_plain_form_comes_back_with_the_last_selector(kit: NodeKit, client: Client) -> None:
    client.declare()
    queue: Any = kit.node.vhosts["/"].queues["q"]
    consume(client, RED, "a")
    consume(client, RED, "b")
    consume(client, BLUE, "c")
    for tag in "abc":
        assert queue.selecting is not None
        client.call(m.BasicCancel(tag), m.BasicCancelOk)
    assert queue.selecting is None
    assert queue.contents is queue.backlog
    consume(client, None, "all")
    fill(client, (b"0", "blue"), (b"1", "red"))
    assert got(client) == [("all", b"0"), ("all", b"1")]


def test_a_message_that_must_not_wait(client: Client) -> None:
    """With a TTL of 0 it goes to a consumer that wants it, past those that wait for another one, or is dropped."""
    client.declare(x_message_ttl=0)
    client.call(m.QueueDeclare("dead"), m.QueueDeclareOk)
    consume(client, RED, "r", prefetch=1)
    fill(client, (b"0", "blue"), (b"1", "red"), (b"2", "red"))
    assert got(client) == [("r", b"1")]
    assert client.count() == 0


@pytest.mark.parametrize("ttl", ["0", "1000"])
def test_expiration(kit: NodeKit, client: Client, ttl: str) -> None:
    client.declare()
    fill(client, (b"old", "blue"))
    consume(client, RED, "r")
    fill(client, (b"0", "red"), (b"1", "blue"), expiration=ttl)
    assert got(client) == [("r", b"0")]
    kit.pass_time(1001)
    assert client.count() == 1


def test_a_limit_counts_what_nobody_wants(client: Client) -> None:
    client.declare(x_max_length=2)
    consume(client, RED, "r")
    fill(client, *((b"%d" % n, "blue") for n in range(3)), (b"3", "red"))
    assert got(client) == [("r", b"3")]
    assert [client.get().body for _ in range(2)] == [b"1", b"2"]  # type: ignore[union-attr]


def test_dead_letters(client: Client) -> None:
    """What a consumer rejects goes to the dead-letter exchange, and there to who wants it."""
    client.declare("dead")
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    client.send(1, m.BasicConsume("dead", "d", arguments={"x-selector": "\"x-first-death-reason\" = 'rejected'"}))
    assert client.take(m.BasicConsumeOk)
    consume(client, RED, "r")
    fill(client, (b"0", "blue"), (b"1", "red"))
    assert got(client) == [("r", b"1")]
    client.send(1, m.BasicReject(1, requeue=False))
    assert got(client) == [("d", b"1")]


def test_a_purge(client: Client) -> None:
    client.declare()
    fill(client, (b"0", "blue"))
    consume(client, RED, "r", prefetch=1)
    fill(client, (b"1", "red"), (b"2", "red"))
    assert got(client) == [("r", b"1")]
    assert client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 2
    client.send(1, m.BasicAck(1))
    fill(client, (b"3", "blue"), (b"4", "red"))
    assert got(client) == [("r", b"4")]


def test_levels_that_change(kit: NodeKit, client: Client) -> None:
    client.declare()
    fill(client, (b"0", "blue"), (b"1", "red"), priority=1)
    fill(client, (b"2", "blue"), (b"3", "red"), priority=2)
    consume(client, RED, "r", prefetch=1)
    assert got(client) == [("r", b"1")]
    client.send(1, m.BasicNack(1, requeue=True))
    assert got(client) == [("r", b"1")]
    queue: Any = kit.node.vhosts["/"].queues["q"]
    change_queue(queue, {"x-max-priority": 5}, lambda arguments: queue_settings(arguments, "q"))
    kit.node.batch.end()
    client.open(2)
    client.receive()
    client.events.clear()
    consume(client, BLUE, "b", channel=2, prefetch=1)
    assert got(client) == [("b", b"2")]
    client.send(1, m.BasicNack(2, requeue=True))
    assert got(client) == [("r", b"3")]


@pytest.mark.parametrize("name", ["x-selector", "x-apache-selector", "x-filter-jms-selector"])
def test_its_names(client: Client, name: str) -> None:
    client.declare()
    client.send(1, m.BasicConsume("q", "r", arguments={name: RED}))
    assert client.take(m.BasicConsumeOk)
    fill(client, (b"0", "blue"), (b"1", "red"))
    assert got(client) == [("r", b"1")]


@pytest.mark.parametrize(
    "arguments, text",
    [
        (
            {"x-selector": "price >"},
            "a name, a number, a text or ( is expected at character 7, the end of the selector",
        ),
        ({"x-selector": "a ; b"}, "a character that means nothing here at character 2: ; b"),
        ({"x-selector": 1}, '"expected string, got signedint"'),
        ({"x-selector": None}, '"expected string, got void"'),
        ({"x-filter-jms-selector": b"\xff"}, "no UTF-8"),
        ({"x-selector": RED, "x-filter-jms-selector": BLUE}, "'x-selector' is another selector"),
        ({"x-selector": "", "x-apache-selector": BLUE}, "'x-selector' is another selector"),
    ],
)
def test_what_is_refused(client: Client, arguments: dict[str, Any], text: str) -> None:
    client.declare()
    client.send(1, m.BasicConsume("q", arguments=arguments))
    (close,) = client.take(m.ChannelClose)
    assert (close.reply_code, close.reply_text[:53]) == (
        406, f"PRECONDITION_FAILED - invalid arg '{list(arguments)[-1]}' for queue 'q' in vhost '/'"[:53],
    )  # fmt: skip
    assert text in close.reply_text


@pytest.mark.parametrize("selector", ["", "  "])
def test_blanks_select_everything(client: Client, selector: str) -> None:
    client.declare()
    consume(client, selector, "all")
    fill(client, (b"0", "blue"), (b"1", None))
    assert got(client) == [("all", b"0"), ("all", b"1")]


@pytest.mark.parametrize("name", ["x-apache-selector", "x-filter-jms-selector"])
def test_a_binding_has_none(client: Client, name: str) -> None:
    client.declare()
    client.send(1, m.QueueBind("q", "amq.topic", "#", arguments={name: RED}))
    (close,) = client.take(m.ConnectionClose)
    assert close.reply_code == 540
    assert "only a consumer can have a selector" in close.reply_text


# -- long queues ---------------------------------------------------------------------------------------------------


def test_a_long_queue_is_gone_through_once_and_in_slices(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    real = selecting.Selecting.facts_of

    def facts_of(self: Any, held: Any) -> Any:
        looked.append(held.position)
        return real(self, held)

    monkeypatch.setattr(selecting.Selecting, "facts_of", facts_of)
    client.declare()
    fill(client, *((b"%d" % n, "red" if n % 500 == 499 else "blue") for n in range(2000)))
    other = kit.client()
    kit.stopwatch.step = 0.001
    consume(client, RED, "r", prefetch=1)
    assert len(looked) < 500  # it did not go through all at once
    fill(other, (b"new", "red"))
    consume(other, None, "all", prefetch=1)
    assert got(other) == [("all", b"0")]  # and it does not hold the others up
    kit.node.batch.slices.finish()
    client.receive()
    assert got(client) == [("r", b"499")]
    for tag in range(1, 5):
        client.send(1, m.BasicAck(tag))
        kit.node.batch.slices.finish()
    client.receive()
    assert [body for _, body in got(client)] == [b"999", b"1499", b"1999", b"new"]
    assert len(looked) == len(set(looked))  # each message once


def test_messages_that_left_are_forgotten(kit: NodeKit, client: Client) -> None:
    """A consumer that stands still keeps nothing of what passes it by."""
    client.open(2)
    client.declare()
    consume(client, RED, "r", channel=2, prefetch=1)
    fill(client, (b"first", "red"), (b"second", "red"))
    client.events.clear()
    consume(client, BLUE, "b", no_ack=True)
    queue: Any = kit.node.vhosts["/"].queues["q"]
    for n in range(50):
        for _ in range(100):
            blue = m.Properties(headers={"colour": "blue"})
            client.engine.send_content(1, m.BasicPublish("", "q"), blue, b"%d" % n)
        client.pump()
        assert len(got(client)) == 100
        assert sum(trail.size for trail in queue.selecting._trails) < 1024
    assert queue.message_count == 1


# -- a model ---------------------------------------------------------------------------------------------------------

SELECTORS = (None, None, RED, BLUE, BARE, "colour <> 'red'", "JMSRedelivered", "JMSPriority > 0", "n > 3 AND n < 9")
CHANNELS = (1, 2, 3)


class Message:
    def __init__(self, number: int, colour: str | None, priority: int, deadline: int | None, group: str | None) -> None:
        self.number, self.colour, self.priority, self.deadline = number, colour, priority, deadline
        self.group = group
        self.returned = False

    def wanted_by(self, selector: str | None) -> bool:
        match selector:
            case None:
                return True
            case "JMSRedelivered":
                return self.returned
            case "JMSPriority > 0":
                return self.priority > 0
            case "n > 3 AND n < 9":
                return 3 < self.number < 9
            case "colour <> 'red'":
                return self.colour == "blue"
        return self.colour == {RED: "red", BLUE: "blue", BARE: None}[selector]


class Consumer:
    def __init__(self, selector: str | None, channel: int, prefetch: int, priority: int) -> None:
        self.selector, self.channel, self.prefetch, self.priority = selector, channel, prefetch, priority
        self.out: set[int] = set()  # tags

    @property
    def has_room(self) -> bool:
        return len(self.out) < self.prefetch


class Selectors(RuleBasedStateMachine):
    """Each delivery is checked as it comes: wanted, and the first that is, in the order of the queue."""

    arguments: ClassVar[Table] = {}
    levels = False
    fine = False
    grouped = False

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        if self.fine:
            cut_finely(self.patch)
            self.patch.setattr(selecting, "SEARCHED", 1)
        self.folder = tempfile.TemporaryDirectory()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client = self.kit.client()
        for channel in CHANNELS[1:]:
            self.client.open(channel)
        self.client.events.clear()
        self.client.call(m.QueueDeclare("q", durable=True, arguments=self.arguments), m.QueueDeclareOk)
        self.kit.stopwatch.step = 1.0 if self.fine else 0.0
        self.published = 0
        self.ready: list[Message] = []
        self.unacked: dict[int, dict[int, Message]] = {channel: {} for channel in CHANNELS}
        self.last_tag = dict.fromkeys(CHANNELS, 0)
        self.consumers: dict[str, Consumer] = {}
        self.made = 0
        self.gone: set[int] = set()
        self.holders: dict[int, str] = {}  # by message: who holds its group, while it is unacknowledged

    def teardown(self) -> None:
        self.kit.stop()
        self.folder.cleanup()
        self.patch.undo()

    @initialize(count=st.integers(0, 12), data=st.data())
    def begin(self, count: int, data: st.DataObject) -> None:
        """Some are there before any consumer is."""
        for _ in range(count):
            self.publish(1, data.draw(st.sampled_from(("red", "blue", None))), 0, None, None, False)

    # -- what the queue must do by itself ------------------------------------------------------------------------

    def order(self, message: Message) -> tuple[int, int]:
        return (-message.priority if self.levels else 0, message.number)

    def check(self) -> None:
        self.kit.node.batch.slices.finish()
        self.client.receive()
        for channel, event in self.client.events:
            assert isinstance(event, Content), event
            method = event.decode_method()
            assert isinstance(method, m.BasicDeliver)
            consumer = self.consumers[method.consumer_tag]
            assert consumer.channel == channel
            message = next(each for each in self.ready if each.number == int(event.body))
            wanted = self.wanted(method.consumer_tag)
            assert message is min(wanted, key=self.order)
            holder = self.holder(message)
            self.holders[message.number] = method.consumer_tag
            assert consumer.has_room
            assert method.redelivered is message.returned
            if not self.fine:
                assert not [
                    tag for tag, other in self.consumers.items()
                    if other.priority > consumer.priority and other.has_room and message.wanted_by(other.selector)
                    and holder in (None, tag)
                ]  # fmt: skip
            self.last_tag[channel] += 1
            assert method.delivery_tag == self.last_tag[channel]
            self.unacked[channel][method.delivery_tag] = message
            consumer.out.add(method.delivery_tag)
            self.ready.remove(message)
        self.client.events.clear()
        for tag, consumer in self.consumers.items():  # nobody starves
            assert not consumer.has_room or not self.wanted(tag)

    def wanted(self, tag: str) -> list[Message]:
        """The messages that a consumer wants, and may have."""
        selector = self.consumers[tag].selector
        return [each for each in self.ready if each.wanted_by(selector) and self.holder(each) in (None, tag)]

    def holder(self, message: Message) -> str | None:
        """Who holds the group of a message."""
        if not self.grouped or message.group is None:
            return None
        out = [other for table in self.unacked.values() for other in table.values() if other.group == message.group]
        holders = {self.holders[other.number] for other in out}
        assert len(holders) < 2
        return next(iter(holders), None)

    def _settled(self, channel: int, tags: list[int], requeue: bool) -> None:
        for tag in tags:
            message = self.unacked[channel].pop(tag)
            for consumer in self.consumers.values():
                if consumer.channel == channel:
                    consumer.out.discard(tag)
            if requeue:
                message.returned = True
                self.ready.append(message)
            else:
                self.gone.add(message.number)
        self.expire()

    def expire(self) -> None:
        now = self.kit.clock.now
        self.gone.update(each.number for each in self.ready if each.deadline is not None and each.deadline <= now)
        self.ready = [each for each in self.ready if each.number not in self.gone]

    def call(self, method: m.Method, answer: type[M], channel: int = 1) -> M:
        """Send, and return the answer; what is delivered meanwhile stays for `check`."""
        self.client.send(channel, method)
        self.kit.node.batch.slices.finish()
        self.client.receive()
        at = next(n for n, (_, event) in enumerate(self.client.events) if isinstance(event, answer))
        event = self.client.events.pop(at)[1]
        assert isinstance(event, answer)
        return event

    # -- what is done to it --------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 4), colour=st.sampled_from(("red", "blue", None)), priority=st.integers(0, 2),
        ttl=st.sampled_from((None, None, None, 50, 500)), group=st.sampled_from((None, "a", "b")),
    )  # fmt: skip
    def publish(
        self, count: int, colour: str | None, priority: int, ttl: int | None, group: str | None, checked: bool = True
    ) -> None:
        for _ in range(count):
            headers: dict[str, Any] = {"n": self.published}
            if group is not None:
                headers["g"] = group
            if colour is not None:
                headers["colour"] = colour
            self.client.engine.send_content(
                1, m.BasicPublish("", "q"),
                m.Properties(
                    headers=headers, priority=priority, delivery_mode=2, expiration=None if ttl is None else str(ttl)
                ),
                b"%d" % self.published,
            )  # fmt: skip
            deadline = None if ttl is None else self.kit.clock.now + ttl
            self.ready.append(Message(self.published, colour, priority, deadline, group))
            self.published += 1
        self.client.pump()
        if checked:
            self.check()

    @precondition(lambda self: len(self.consumers) < 5)
    @rule(
        selector=st.sampled_from(SELECTORS), channel=st.sampled_from(CHANNELS), prefetch=st.integers(1, 3),
        priority=st.sampled_from((0, 0, 1)),
    )  # fmt: skip
    def consume(self, selector: str | None, channel: int, prefetch: int, priority: int) -> None:
        self.made += 1
        tag = f"c{self.made}"
        self.call(m.BasicQos(0, prefetch), m.BasicQosOk, channel)
        for other in self.consumers.values():  # this broker's qos is for all consumers of the channel
            if other.channel == channel:
                other.prefetch = prefetch
        self.check()
        arguments: dict[str, Any] = {"x-priority": priority}
        if selector is not None:
            arguments["x-selector"] = selector
        self.consumers[tag] = Consumer(selector, channel, prefetch, priority)
        self.call(m.BasicConsume("q", tag, arguments=arguments), m.BasicConsumeOk, channel)
        self.check()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.consumers)))
        consumer = self.consumers.pop(tag)
        self.call(m.BasicCancel(tag), m.BasicCancelOk, consumer.channel)
        self.check()

    @precondition(lambda self: any(self.unacked.values()))
    @rule(data=st.data(), multiple=st.booleans(), how=st.sampled_from(["ack", "nack", "drop"]))
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        channel = data.draw(st.sampled_from([channel for channel in CHANNELS if self.unacked[channel]]))
        tag = data.draw(st.sampled_from(sorted(self.unacked[channel])))
        tags = [each for each in self.unacked[channel] if each <= tag] if multiple else [tag]
        if how == "ack":
            self.client.send(channel, m.BasicAck(tag, multiple=multiple))
        else:
            self.client.send(channel, m.BasicNack(tag, multiple=multiple, requeue=how == "nack"))
        self._settled(channel, tags, how == "nack")
        self.check()

    @rule(channel=st.sampled_from(CHANNELS))
    def get(self, channel: int) -> None:
        self.client.send(channel, m.BasicGet("q"))
        self.kit.node.batch.slices.finish()
        self.client.receive()
        _, event = self.client.events.pop()
        allowed = [each for each in self.ready if self.holder(each) in (None, f"get {channel}")]
        if not allowed:
            assert isinstance(event, m.BasicGetEmpty)
            return
        assert isinstance(event, Content)
        message = next(each for each in self.ready if each.number == int(event.body))
        assert message is min(allowed, key=self.order)
        self.holders[message.number] = f"get {channel}"
        self.ready.remove(message)
        self.last_tag[channel] += 1
        self.unacked[channel][self.last_tag[channel]] = message

    @rule()
    def purge(self) -> None:
        assert self.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == len(self.ready)
        self.gone.update(each.number for each in self.ready)
        self.ready.clear()

    @rule(channel=st.sampled_from(CHANNELS))
    def close_channel(self, channel: int) -> None:
        self.call(m.ChannelClose(200, ""), m.ChannelCloseOk, channel)
        self.consumers = {tag: each for tag, each in self.consumers.items() if each.channel != channel}
        self._settled(channel, list(self.unacked[channel]), True)
        self.last_tag[channel] = 0
        self.check()
        self.call(m.ChannelOpen(), m.ChannelOpenOk, channel)

    @rule(milliseconds=st.sampled_from((10, 60, 600)))
    def pass_time(self, milliseconds: int) -> None:
        self.kit.pass_time(milliseconds)
        self.expire()
        self.check()

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        declared = self.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        assert declared.message_count == len(self.ready)
        out = [message.number for table in self.unacked.values() for message in table.values()]
        assert sorted([*(each.number for each in self.ready), *out, *self.gone]) == list(range(self.published))


class PrioritySelectors(Selectors):
    arguments: ClassVar[Table] = {"x-max-priority": 2}
    levels = True


class FineSelectors(Selectors):
    fine = True


class LimitedSelectors(Selectors):
    arguments: ClassVar[Table] = {"x-max-length": 100_000, "x-queue-type": "quorum", "x-delivery-limit": -1}


class GroupSelectors(Selectors):
    arguments: ClassVar[Table] = {"x-message-group": "g"}
    grouped = True


class FineGroupSelectors(GroupSelectors):
    fine = True


def test_who_holds_a_group_gets_its_messages_whatever_the_priorities() -> None:
    """Found by the model: of two consumers, the one of the lower priority has the group, and room."""
    state = GroupSelectors()
    try:
        state.consume(channel=1, prefetch=1, priority=0, selector=None)
        state.publish(count=1, colour="red", priority=0, ttl=None, group="a")
        state.consume(channel=1, prefetch=2, priority=1, selector=None)
        state.publish(count=1, colour="red", priority=0, ttl=None, group="a")
        assert [len(each.out) for each in state.consumers.values()] == [2, 0]
    finally:
        state.teardown()


MACHINES = (Selectors, PrioritySelectors, FineSelectors, LimitedSelectors, GroupSelectors, FineGroupSelectors)
for machine in MACHINES:
    machine.TestCase.settings = settings(max_examples=scaled(15), stateful_step_count=40)
TestSelectors = Selectors.TestCase
TestPrioritySelectors = PrioritySelectors.TestCase
TestFineSelectors = pytest.mark.repeats(FineSelectors.TestCase)
TestLimitedSelectors = LimitedSelectors.TestCase
TestGroupSelectors = GroupSelectors.TestCase
TestFineGroupSelectors = pytest.mark.repeats(FineGroupSelectors.TestCase)
