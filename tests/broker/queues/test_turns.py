"""Whose turn it is: strict turns among equals, priority first, one at a time where that is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.queues import turns as module
from harebell.broker.queues.turns import FEW, Consumers
from harebell.protocol.v091 import Content, Table, methods as m
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled


class Fake:
    """What `Consumers` needs of a consumer."""

    def __init__(self, priority: int = 0, window: int = 1, exclusive: bool = False) -> None:
        self.priority, self.window, self.exclusive = priority, window, exclusive
        self.announces, self.aside = True, False
        self.looks = 0

    def room(self) -> int:
        self.looks += 1
        return self.window


def turns(consumers: Consumers, count: int) -> list[object]:
    found: list[object] = []
    for _ in range(count):
        turn = consumers.next()
        found.append(None if turn is None else turn[0])
    return found


def group(*fakes: Fake, single: bool = False) -> Consumers:
    consumers = Consumers(single=single)
    for fake in fakes:
        consumers.add(fake)  # type: ignore[arg-type]
    return consumers


def test_nobody() -> None:
    assert turns(Consumers(), 1) == [None]
    assert turns(Consumers(single=True), 1) == [None]


def test_equals_take_turns_and_the_full_are_passed_over() -> None:
    one, two, three = Fake(), Fake(), Fake()
    consumers = group(one, two, three)
    assert turns(consumers, 4) == [one, two, three, one]
    three.window = 0
    assert turns(consumers, 3) == [two, one, two]
    one.window = two.window = 0
    assert turns(consumers, 1) == [None]


def test_the_highest_priority_with_room_goes_first() -> None:
    low, high, other = Fake(-1), Fake(5), Fake(5)
    consumers = group(low, high, other)
    assert turns(consumers, 3) == [high, other, high]
    high.window = other.window = 0
    assert turns(consumers, 2) == [low, low]
    waiting: list[object] = list(consumers)
    assert waiting[-1] is low


def test_the_single_one_stays_until_it_goes() -> None:
    first, high, low = Fake(1), Fake(9), Fake(0)
    consumers = group(first, high, low, single=True)
    assert turns(consumers, 2) == [first, first]
    first.window = 0
    assert turns(consumers, 1) == [None]
    assert consumers.remove(first)  # type: ignore[arg-type]
    assert turns(consumers, 1) == [high]
    assert consumers.remove(high)  # type: ignore[arg-type]
    assert turns(consumers, 1) == [low]
    assert not consumers.remove(high)  # type: ignore[arg-type]
    assert len(consumers) == 1


def test_exclusive_and_clear() -> None:
    consumers = group(Fake(), single=False)
    assert not consumers.exclusive
    consumers.add(Fake(exclusive=True))  # type: ignore[arg-type]
    assert consumers.exclusive
    consumers.clear()
    assert not consumers.exclusive
    assert len(consumers) == 0
    assert turns(consumers, 1) == [None]


def test_many_that_are_full_are_not_looked_at_again() -> None:
    free, busy = Fake(), [Fake(window=0) for _ in range(100)]
    consumers = group(*busy, free)
    turns(consumers, FEW)  # by now all but a few are set aside
    for fake in busy:
        fake.looks = 0
    assert turns(consumers, 50) == [free] * 50
    assert sum(fake.looks for fake in busy) <= 50 * FEW
    assert sum(fake.looks > 0 for fake in busy) <= FEW
    assert len(consumers) == 101
    assert sum(fake.aside for fake in busy) >= 100 - FEW


@pytest.mark.parametrize("told", ["each", "all"])
def test_one_that_was_set_aside_has_its_turn_when_it_has_room(told: str) -> None:
    fakes = [Fake(window=0) for _ in range(30)]
    consumers = group(*fakes)
    assert turns(consumers, 1) == [None]
    aside = [fake for fake in fakes if fake.aside]
    assert len(aside) == 30 - FEW
    for fake in aside[:3]:
        fake.window = 1
        if told == "each":
            consumers.reopen(fake)  # type: ignore[arg-type]
    if told == "all":
        consumers.reconsider()
    assert turns(consumers, 4) == [*aside[:3], aside[0]]


def test_one_that_does_not_announce_its_room_is_never_set_aside() -> None:
    fakes = [Fake(window=0) for _ in range(30)]
    for fake in fakes:
        fake.announces = False
    consumers = group(*fakes)
    assert turns(consumers, 1) == [None]
    fakes[20].window = 1
    assert turns(consumers, 1) == [fakes[20]]


def test_whoever_is_set_aside_is_still_a_consumer_and_can_leave() -> None:
    fakes = [Fake(priority=number % 2, window=0) for number in range(40)]
    consumers = group(*fakes)
    assert turns(consumers, 1) == [None]
    assert any(fake.aside for fake in fakes)
    for fake in fakes:
        assert consumers.remove(fake)  # type: ignore[arg-type]
    assert len(consumers) == 0
    assert list(consumers) == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["next", "open", "close", "add", "remove", "all", "single"]), st.integers(0, 9))
)


@pytest.mark.pure
@pytest.mark.parametrize("few", [0, 2])
@settings(max_examples=scaled(60))
@given(steps=STEPS)
def test_the_next_one_has_room_and_has_waited_longest(few: int, steps: list[tuple[str, int]]) -> None:
    """Of those of the highest priority with room: nobody has two turns while another one with room has none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        consumers, present = Consumers(), list[Fake]()
        passed: dict[Fake, set[Fake]] = {}  # who has had a turn since this one was able to have one
        for step, number in steps:
            one = present[number % len(present)] if present else None
            if step == "add":
                present.append(Fake(priority=number % 2))
                consumers.add(present[-1])  # type: ignore[arg-type]
            elif step == "all":
                consumers.reconsider()
            elif step == "single":
                consumers.set_single(number == 0)
            elif one is None:
                assert consumers.next() is None
            elif step == "next":
                turn = consumers.next()
                free = [fake for fake in present if fake.window and not consumers.single]
                best = [fake for fake in free if fake.priority == max(each.priority for each in free)]
                if consumers.single:
                    assert turn is None or turn[0] is consumers.active
                    continue
                got = None if turn is None else turn[0]
                assert (got is None) == (not best)
                if got is None:
                    continue
                assert isinstance(got, Fake)
                for fake in best:
                    if fake is got:
                        passed[fake] = set()
                        continue
                    assert got not in passed.setdefault(fake, set())
                    passed[fake].add(got)
            elif step == "remove":
                present.remove(one)
                assert consumers.remove(one)  # type: ignore[arg-type]
                for waiting in passed.values():
                    waiting.discard(one)
            else:
                one.window = int(step == "open")
                passed.clear()  # who comes back goes behind the others
                if one.window and one.aside:
                    consumers.reopen(one)  # type: ignore[arg-type]
            assert len(consumers) == len(present)


def test_a_hundred_workers_get_each_message_in_turn(kit: NodeKit) -> None:
    """Each has a window of one message: whoever acknowledges gets the next one."""
    workers = [kit.client() for _ in range(100)]
    workers[0].declare()
    for worker in workers:
        worker.call(m.BasicQos(0, 1), m.BasicQosOk)
        worker.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for number in range(150):
        workers[0].publish("q", b"%d" % number)
    for worker in workers:
        worker.receive()
    got = [body for worker in workers for *_, body in worker.deliveries()]
    assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    for number, which in enumerate([7, 99, 50, 7, 0], 100):
        tag = 1 + sum(which == before for before in [7, 99, 50, 7, 0][: number - 100])
        workers[which].send(1, m.BasicAck(tag))
        assert [body for *_, body in workers[which].deliveries()] == [b"%d" % number]
    workers[3].send(1, m.BasicNack(1, requeue=True))
    assert [again for _, again, _ in workers[3].deliveries()] == [True]


@pytest.mark.parametrize("quiet", ["flow", "socket", "window"])
def test_workers_that_are_set_aside_come_back_when_their_channels_do(kit: NodeKit, quiet: str) -> None:
    holder, publisher = kit.client(), kit.client()
    publisher.declare()
    for number in range(20):
        holder.call(m.BasicConsume("q", f"c{number}"), m.BasicConsumeOk)
    if quiet == "flow":
        holder.call(m.ChannelFlow(active=False), m.ChannelFlowOk)
    elif quiet == "window":
        holder.call(m.BasicQos(0, 1, global_=True), m.BasicQosOk)
    else:
        holder.connection.writable = False
    for number in range(6):
        publisher.publish("q", b"%d" % number)
    holder.receive()
    assert len(holder.deliveries()) == (quiet == "window")
    if quiet == "flow":
        holder.send(1, m.ChannelFlow(active=True))
    elif quiet == "window":
        for tag in range(1, 6):
            holder.send(1, m.BasicAck(tag))
    else:
        holder.connection.resume()
        holder.receive()
    got = [body for *_, body in holder.deliveries()]
    assert got == [b"%d" % number for number in range(quiet == "window", 6)]


@pytest.mark.parametrize("quiet", ["flow", "socket"])
def test_a_consumer_that_takes_nothing_leaves_its_turn_to_others(kit: NodeKit, quiet: str) -> None:
    one, two = kit.client(), kit.client()
    one.declare()
    for client in (one, two):
        client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    if quiet == "flow":
        one.call(m.ChannelFlow(active=False), m.ChannelFlowOk)
    else:
        one.connection.writable = False
    for number in range(4):
        two.publish("q", b"%d" % number)
    assert [body for *_, body in two.deliveries()] == [b"0", b"1", b"2", b"3"]
    assert one.deliveries() == []


def test_flow_off_and_on(client: Client) -> None:
    client.declare()
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.call(m.ChannelFlow(active=False), m.ChannelFlowOk)
    client.publish("q", b"1")
    assert client.deliveries() == []
    assert client.get() is not None  # what is asked for comes
    client.publish("q", b"2")
    client.send(1, m.ChannelFlow(active=True))
    assert [body for *_, body in client.deliveries()] == [b"2"]


def test_qos_changes_the_windows_of_consumers_at_work(client: Client) -> None:
    client.declare()
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for number in range(6):
        client.publish("q", b"%d" % number)
    assert len(client.deliveries()) == 1
    client.send(1, m.BasicQos(0, 3))
    assert len(client.deliveries()) == 2
    client.send(1, m.BasicQos(0, 1))
    client.send(1, m.BasicAck(2, multiple=True))
    assert client.deliveries() == []  # one is out still
    client.send(1, m.BasicAck(3))
    assert [body for *_, body in client.deliveries()] == [b"3"]
    client.send(1, m.BasicQos(0, 0))
    assert [body for *_, body in client.deliveries()] == [b"4", b"5"]


@pytest.mark.parametrize("selector", [{}, {"x-selector": "TRUE"}])
def test_immediate_asks_the_single_active_consumer_alone(client: Client, selector: Table) -> None:
    client.declare(x_single_active_consumer=True)
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    for tag in ("active", "waits"):
        client.send(1, m.BasicConsume("q", tag, arguments=selector))
    client.events.clear()
    for body in (b"1", b"2"):
        client.engine.send_content(1, m.BasicPublish("", "q", immediate=True), b"\0\0", body)
        client.pump()
    assert (len(client.take(m.BasicDeliver)), len(client.take(m.BasicReturn))) == (1, 1)
    assert client.count() == 0


def test_immediate_goes_to_a_ready_consumer_or_back(client: Client) -> None:
    client.declare()
    client.engine.send_content(1, m.BasicPublish("", "q", immediate=True), b"\0\0", b"1")
    client.pump()
    (returned,) = client.take(m.BasicReturn)
    assert (returned.reply_code, returned.reply_text) == (313, "NO_CONSUMERS")
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for _ in range(2):
        client.engine.send_content(1, m.BasicPublish("", "q", immediate=True), b"\0\0", b"2")
    client.pump()
    assert [body for *_, body in client.deliveries()] == [b"2"]
    assert [event for event in client.events if isinstance(event[1], Content)] == client.events
    assert [each.reply_code for each in client.take(m.BasicReturn)] == [313]
