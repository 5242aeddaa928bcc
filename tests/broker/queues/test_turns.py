"""Whose turn it is: strict turns among equals, priority first, one at a time where that is asked for."""

from __future__ import annotations

import pytest

from harebell.broker.queues.turns import Consumers
from harebell.protocol.v091 import Content, methods as m
from tests.broker.kit import Client, NodeKit


class Fake:
    """What `Consumers` needs of a consumer."""

    def __init__(self, priority: int = 0, window: int = 1, exclusive: bool = False) -> None:
        self.priority, self.window, self.exclusive = priority, window, exclusive

    def room(self) -> int:
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
    assert len(consumers) == 0
    assert turns(consumers, 1) == [None]


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
