"""Consumers that browse: they see what is ready and take nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.operations import messages
from harebell.broker.operations.messages import browsing as looking
from harebell.broker.queues import browse as browsing, classic
from harebell.broker.queues.classic import ClassicQueue
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

BROWSE: Table = {"x-browse": True}
ONCE: Table = {"x-browse": "once"}


def browse(client: Client, prefetch: int = 0, arguments: Table = BROWSE, tag: str = "b", **rest: Any) -> None:
    client.call(m.BasicQos(0, prefetch), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", tag, arguments=arguments, **rest))
    assert client.take(m.BasicConsumeOk)


def fill(client: Client, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        client.publish("q", b"%d" % number)


def seen(client: Client) -> list[bytes]:
    return [body for *_, body in client.deliveries()]


def numbers(*those: int) -> list[bytes]:
    return [b"%d" % number for number in those]


@pytest.mark.parametrize("no_ack", [False, True])
def test_it_sees_what_is_ready_and_what_comes_and_takes_nothing(client: Client, no_ack: bool) -> None:
    client.declare()
    fill(client, 3)
    browse(client, no_ack=no_ack)
    assert client.deliveries() == [(1, False, b"0"), (2, False, b"1"), (3, False, b"2")]
    fill(client, 2, 3)
    assert seen(client) == numbers(3, 4)
    assert client.count() == 5
    if not no_ack:
        client.send(1, m.BasicAck(5, multiple=True))
    got = [client.get() for _ in range(5)]
    assert [each.body for each in got if each] == numbers(0, 1, 2, 3, 4)
    assert all(not each.decode_method().redelivered for each in got if each)  # type: ignore[attr-defined]


def test_a_selector(client: Client) -> None:
    client.declare()
    consumer_gets = {"x-selector": "n >= 1", **ONCE}
    for number in range(3):
        client.publish("q", b"%d" % number, headers={"n": number})
    client.send(1, m.BasicConsume("q", "b", arguments={"x-selector": "n <> 1", **BROWSE}))
    assert seen(client) == numbers(0, 2)
    client.publish("q", b"1", headers={"n": 1})
    client.publish("q", b"3", headers={"n": 3})
    assert seen(client) == numbers(3)
    client.send(1, m.BasicConsume("q", "o", arguments=consumer_gets))
    assert seen(client) == numbers(1, 2, 1, 3)
    assert client.take(m.BasicCancel)
    assert client.count() == 5


def test_acknowledgements_open_the_window(client: Client) -> None:
    client.declare()
    fill(client, 5)
    browse(client, 2)
    assert seen(client) == numbers(0, 1)
    client.send(1, m.BasicAck(1))
    assert seen(client) == numbers(2)
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == numbers(3, 4)
    assert client.count() == 5


@pytest.mark.parametrize("refusal", [m.BasicNack(1, requeue=False), m.BasicReject(1, requeue=False)])
def test_what_is_only_seen_cannot_be_dropped(client: Client, refusal: m.Method) -> None:
    client.declare()
    fill(client, 1)
    browse(client)
    client.send(1, refusal)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 406
    assert "without requeue by a consumer that browses queue 'q' in vhost '/'" in close.reply_text


@pytest.mark.parametrize(
    "giving_back", [m.BasicNack(1, requeue=True), m.BasicReject(1, requeue=True), m.BasicRecoverAsync(requeue=True)]
)
def test_what_is_only_seen_can_be_given_back_and_is_not_seen_again(client: Client, giving_back: m.Method) -> None:
    client.declare()
    fill(client, 2)
    browse(client, 1)
    assert seen(client) == numbers(0)
    client.send(1, giving_back)
    assert client.deliveries() == [(2, False, b"1")]
    assert client.get()
    assert client.deliveries() == []
    assert client.count() == 1


def test_an_end_with_what_was_seen_outstanding_changes_nothing(kit: NodeKit) -> None:
    client, other = kit.client(), kit.client()
    client.declare()
    fill(client, 2)
    browse(client)
    client.send(1, m.ChannelClose(200, ""))
    got = other.call(m.BasicGet("q"), m.BasicGetEmpty) if other.count() == 0 else other.get()
    assert got is not None
    assert not got.decode_method().redelivered  # type: ignore[union-attr]
    assert other.count() == 1


def test_what_left_before_its_turn_is_not_seen(client: Client) -> None:
    client.declare()
    fill(client, 6)
    browse(client, 1)
    assert seen(client) == numbers(0)
    for _ in range(3):
        assert client.get()
    client.send(1, m.BasicAck(1))
    assert seen(client) == numbers(3)


def test_what_comes_back_is_seen_in_its_place_and_not_behind(kit: NodeKit) -> None:
    client, taker = kit.client(), kit.client()
    client.declare()
    fill(client, 4)
    taker.call(m.BasicQos(0, 3), m.BasicQosOk)
    taker.send(1, m.BasicConsume("q", "c"))  # takes 0, 1, 2
    browse(client, 1)
    assert seen(client) == numbers(3)
    browse(client, 1, tag="late")
    assert seen(client) == numbers(3)
    client.send(1, m.BasicCancel("b"))
    taker.send(1, m.BasicCancel("c"))
    client.call(m.BasicCancel("late"), m.BasicCancelOk)
    browse(client, 1, tag="later")
    client.deliveries()
    taker.send(1, m.BasicNack(0, multiple=True, requeue=True))
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == []  # it has passed their places
    browse(client, 1, tag="new")
    assert [(redelivered, body) for _, redelivered, body in client.deliveries()] == [(True, b"0")]
    assert client.get()
    assert client.get()
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == numbers(2)


def test_what_comes_back_to_a_place_that_was_read_ahead_is_seen_there(client: Client) -> None:
    client.declare()
    fill(client, 5)
    browse(client, 1)  # and has read the rest
    assert seen(client) == numbers(0)
    for _ in range(3):
        assert client.get(no_ack=False)
    client.send(1, m.BasicNack(4, requeue=True))  # 2
    client.send(1, m.BasicAck(1))
    assert [(redelivered, body) for _, redelivered, body in client.deliveries()] == [(True, b"2")]


@pytest.mark.parametrize("ahead", [2, browsing.AHEAD])
def test_what_comes_back_behind_the_last_one_shown_is_seen(
    client: Client, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Though the view has asked for it before, while it was away."""
    monkeypatch.setattr(browsing, "AHEAD", ahead)
    client.declare()
    fill(client, 3)
    browse(client, 1)  # and has read the rest
    assert seen(client) == numbers(0)
    for _ in range(3):
        assert client.get(no_ack=False)
    client.send(1, m.BasicAck(1))
    assert seen(client) == []
    client.send(1, m.BasicNack(4, requeue=True))  # 2
    assert [(redelivered, body) for _, redelivered, body in client.deliveries()] == [(True, b"2")]


def test_what_came_back_and_was_delivered_again_is_not_seen(kit: NodeKit) -> None:
    client, consumer = kit.client(), kit.client()
    client.declare()
    fill(client, 3)
    assert client.get(no_ack=False)
    assert client.get(no_ack=False)
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))
    browse(client, 1)
    assert [(redelivered, body) for _, redelivered, body in client.deliveries()] == [(True, b"0")]
    consumer.call(m.BasicQos(0, 2), m.BasicQosOk)
    consumer.send(1, m.BasicConsume("q", "c"))
    client.send(1, m.BasicAck(0, multiple=True))
    assert client.deliveries() == [(4, False, b"2")]


def test_consumers_come_first(client: Client) -> None:
    client.declare()
    browse(client, 1)
    client.send(1, m.BasicConsume("q", "c"))
    client.events.clear()
    fill(client, 3)
    found = [(event.decode_method().consumer_tag, event.body) for _, event in client.events]  # type: ignore[attr-defined]
    assert found == [("c", b"0"), ("b", b"1")]


def test_priorities_are_seen_as_they_would_be_delivered(client: Client) -> None:
    client.declare(x_max_priority=3)
    for body, priority in ((b"a0", 0), (b"b3", 3), (b"c1", 1), (b"d3", 3)):
        client.publish("q", body, priority=priority)
    browse(client, 3)
    assert seen(client) == [b"b3", b"d3", b"c1"]
    client.publish("q", b"e2", priority=2)
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == [b"e2", b"a0"]


def test_what_has_expired_is_not_seen_even_when_its_timer_is_late(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", b"soon", expiration="100")
    client.publish("q", b"stays")
    kit.clock.now += 100
    browse(client)
    assert seen(client) == [b"stays"]
    assert client.count() == 1


def test_a_queue_that_changes_inside_is_read_on(client: Client) -> None:
    client.declare()
    fill(client, 4)
    browse(client, 2)
    assert seen(client) == numbers(0, 1)
    client.publish("q", b"4", expiration="100000")  # from here on it has a backlog
    assert client.get()
    assert client.get()
    assert client.get()
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == numbers(3, 4)
    client.call(m.QueuePurge("q"), m.QueuePurgeOk)
    fill(client, 1, 5)
    client.send(1, m.BasicAck(0, multiple=True))
    assert seen(client) == numbers(5)


def begin_enriching(kit: NodeKit, client: Client, body: bytes) -> None:
    """Publish a message with an expiration, for which the queue needs a backlog; it does so in slices."""
    kit.stopwatch.step = 1.0
    client.publish("q", body, expiration="1000000")
    kit.stopwatch.step = 0.0


def source(kit: NodeKit) -> ClassicQueue:
    queue = kit.node.vhosts["/"].queues["q"]
    assert isinstance(queue, ClassicQueue)
    return queue


@pytest.mark.pure
def test_a_long_queue_that_changes_inside_in_slices(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client.declare()
    fill(client, 6)
    reader = kit.client()
    browse(reader, 2)
    assert seen(reader) == numbers(0, 1)
    walk = looking(source(kit), offset=0, limit=10, most_bytes=100)
    begin_enriching(kit, client, b"6")
    kit.stopwatch.step = 1.0
    assert source(kit).is_enriching
    reader.send(1, m.BasicAck(2, multiple=True))
    late = kit.client()
    late.send(1, m.BasicConsume("q", "late", arguments=ONCE))
    assert source(kit).is_enriching, "nobody finishes it in one step"
    assert (seen(reader), seen(late)) == ([], [])
    for _ in range(2):
        next(walk)
        assert source(kit).is_enriching, "nor does who looks at it"
    found = complete(walk).messages
    assert not source(kit).is_enriching
    assert [held.message.content.body for held in found] == numbers(0, 1, 2, 3, 4, 5, 6)
    kit.node.batch.slices.finish()
    kit.run_syncs()
    reader.receive()
    late.receive()
    assert (seen(reader), seen(late)) == (numbers(2, 3), numbers(0, 1, 2, 3, 4, 5, 6))


@pytest.mark.pure
def test_a_queue_that_is_deleted_while_it_changes_inside(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    client.declare()
    fill(client, 6)
    begin_enriching(kit, client, b"6")
    walk = looking(source(kit), offset=0, limit=10, most_bytes=100)
    next(walk)
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    assert complete(walk).messages == []


RELEVELING = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 4)),
        st.tuples(st.just("read on"), st.integers(1, 3)),
        st.tuples(st.just("change"), st.one_of(st.none(), st.integers(0, 4))),
        st.tuples(st.just("turn"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("ahead", [2, browsing.AHEAD])
@given(script=RELEVELING)
@settings(max_examples=scaled(60))
def test_each_message_is_seen_once_though_the_priorities_change(
    script: list[tuple[str, int | None]], ahead: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(browsing, "AHEAD", ahead)
        patch.setattr(classic, "MOVED", 1)
        kit = NodeKit(Path(folder), sync=False)
        client, reader = kit.client(), kit.client()
        client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
        browse(reader, 3)
        published, shown, last = 0, list[int](), 0
        for act, value in [*script, *[("turn", 0), ("read on", 3)] * 15]:
            if act == "publish":
                client.publish("q", b"%d" % published, priority=value)
                published += 1
            elif act == "change":
                kit.stopwatch.step = 1.0
                kit.node.vhosts["/"].change_queue("q", {"x-max-priority": value})
                kit.stopwatch.step = 0.0
                kit.node.batch.end()
            elif act == "turn":
                kit.run_syncs()
            elif shown and last < len(shown):
                last = min(len(shown), last + (value or 1))
                reader.send(1, m.BasicAck(last, multiple=True))
            reader.receive()
            shown += map(int, seen(reader))
        assert sorted(shown) == list(range(published))
        kit.stop()


def test_who_looks_sees_no_message_twice_though_the_priorities_change(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "STEP", 1)
    client.declare(x_max_priority=1)
    for number, priority in enumerate((3, 1, 0, 1)):
        client.publish("q", b"%d" % number, priority=priority)
    walk = looking(source(kit), offset=0, limit=10, most_bytes=100)
    for _ in range(2):
        next(walk)
    kit.node.vhosts["/"].change_queue("q", {"x-max-priority": 3})
    assert [held.message.content.body for held in complete(walk).messages] == numbers(0, 1, 3, 2)


def test_limits_and_counts_do_not_know_it(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_max_length=2, x_expires=1000)
    browse(client, no_ack=True)
    fill(client, 3)
    assert seen(client) == numbers(0) + numbers(1) + numbers(2)
    assert client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk) == m.QueueDeclareOk("q", 2, 0)
    kit.pass_time(1000)
    assert [each.consumer_tag for each in client.take(m.BasicCancel)] == ["b"]


def test_it_does_not_keep_an_auto_delete_queue_nor_let_it_go(client: Client) -> None:
    client.call(m.QueueDeclare("q", auto_delete=True), m.QueueDeclareOk)
    browse(client)
    client.call(m.BasicCancel("b"), m.BasicCancelOk)
    assert client.count() == 0
    browse(client)
    client.send(1, m.BasicConsume("q", "c", exclusive=True))
    client.send(1, m.BasicCancel("c"))
    assert [each.consumer_tag for each in client.take(m.BasicCancel)] == ["b"]


def test_it_sees_a_queue_in_exclusive_use_and_one_with_a_single_active_consumer(client: Client) -> None:
    client.declare(x_single_active_consumer=True)
    browse(client)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.call(m.QueueDeclare("q2"), m.QueueDeclareOk)
    client.call(m.BasicConsume("q2", "alone", exclusive=True), m.BasicConsumeOk)
    client.call(m.BasicConsume("q2", "b2", arguments=BROWSE), m.BasicConsumeOk)
    fill(client, 1)
    found = [event.decode_method().consumer_tag for _, event in client.events]  # type: ignore[attr-defined]
    assert found == ["c"]


def test_once_ends_with_what_was_ready(client: Client) -> None:
    client.declare()
    fill(client, 3)
    browse(client, 2, ONCE)
    assert seen(client) == numbers(0, 1)
    fill(client, 1, 3)
    assert client.take(m.BasicCancel) == []
    client.send(1, m.BasicAck(1))
    assert seen(client) == numbers(2)
    assert client.take(m.BasicCancel) == []  # not known before its window has room again
    client.send(1, m.BasicAck(2))
    assert [each.consumer_tag for each in client.take(m.BasicCancel)] == ["b"]
    client.send(1, m.BasicAck(3))
    fill(client, 1, 4)
    assert client.events == []


def test_once_in_an_empty_queue(client: Client) -> None:
    client.declare()
    browse(client, 1, ONCE)
    assert [each.consumer_tag for each in client.take(m.BasicCancel)] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "exclusive", "text"),
    [
        ({"x-browse": "yes"}, False, "invalid arg 'x-browse' for queue 'q' in vhost '/'"),
        ({"x-browse": 1}, False, "invalid arg 'x-browse' for queue 'q' in vhost '/'"),
        ({"x-browse": True, "x-priority": 1}, False, "cannot have an 'x-priority'"),
        ({"x-browse": True}, True, "cannot be exclusive"),
    ],
)
def test_refusals(client: Client, arguments: Table, exclusive: bool, text: str) -> None:
    client.declare()
    client.send(1, m.BasicConsume("q", "b", exclusive=exclusive, arguments=arguments))
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 406
    assert text in close.reply_text


def test_false_is_an_ordinary_consumer_and_a_stream_is_read_anyway(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    browse(client, 0, {"x-browse": False})
    assert client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk).consumer_count == 1
    client.declare("s", x_queue_type="stream")
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    client.call(m.BasicConsume("s", "s", arguments=BROWSE), m.BasicConsumeOk)
    client.send(1, m.BasicConsume("s", "t", arguments=ONCE))
    assert [each.reply_code for each in client.take(m.ChannelClose)] == [406]


class BrowseMachine(RuleBasedStateMachine):
    """Against a model: at each message's turn, everything that is ready behind the last one shown is shown."""

    ahead = browsing.AHEAD

    def __init__(self) -> None:
        super().__init__()
        browsing.AHEAD = self.ahead  # type: ignore[misc]
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(classic, "MOVED", 1)
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client: Client = self.kit.client()
        self.reader: Client = self.kit.client()
        self.client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
        self.published = 0
        self.ready: set[int] = set()
        self.out: dict[int, int] = {}  # tag: number
        self.tag = 0
        self.last = -1  # shown last
        self.shown = 0
        browse(self.reader, 1)

    def teardown(self) -> None:
        browsing.AHEAD = BrowseMachine.ahead  # type: ignore[misc]
        self.patch.undo()
        self.kit.stop()
        self.folder.cleanup()

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        fill(self.client, count, self.published)
        self.ready.update(range(self.published, self.published + count))
        self.published += count

    @rule(count=st.integers(1, 4))
    def get(self, count: int) -> None:
        for _ in range(min(count, len(self.ready))):
            assert self.client.get(no_ack=False)
            self.tag += 1
            number = min(self.ready)
            self.ready.remove(number)
            self.out[self.tag] = number

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if self.out:
            tag = data.draw(st.sampled_from(sorted(self.out)))
            self.client.send(1, m.BasicNack(tag, requeue=True))
            self.ready.add(self.out.pop(tag))

    @rule()
    def purge(self) -> None:
        self.client.call(m.QueuePurge("q"), m.QueuePurgeOk)
        self.ready.clear()

    @precondition(lambda self: self.published > 12)
    @rule()
    def enrich(self) -> None:
        begin_enriching(self.kit, self.client, b"%d" % self.published)
        self.ready.add(self.published)
        self.published += 1

    @rule()
    def turn(self) -> None:
        self.kit.run_syncs()

    @rule()
    def read_on(self) -> None:
        if self.shown:
            self.reader.send(1, m.BasicAck(self.shown))
            self.shown = 0

    @invariant()
    def what_is_shown_is_next(self) -> None:
        self.reader.receive()
        if not self.shown and not source(self.kit).is_enriching:
            expected = [number for number in sorted(self.ready) if number > self.last][:1]
            shown = self.reader.deliveries()
            assert [int(body) for *_, body in shown] == expected
            for tag, _, body in shown:
                self.last, self.shown = int(body), tag
        assert self.reader.deliveries() == []


class ShortSightedMachine(BrowseMachine):
    """The same with little read ahead, so that every way of reading on is taken."""

    ahead = 2


BrowseMachine.TestCase.settings = settings(max_examples=scaled(40), stateful_step_count=40)
ShortSightedMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestBrowse = BrowseMachine.TestCase
TestBrowseShortSighted = ShortSightedMachine.TestCase
