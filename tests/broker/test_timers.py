from __future__ import annotations

from functools import partial

import pytest

from harebell.broker.message import Address, Message
from harebell.broker.timers import SLACK, Timers
from harebell.protocol.v091 import Content, Properties, encode_content, methods as m
from tests.broker.kit import Client, Clock, NodeKit


def test_in_order_of_deadlines_then_of_asking() -> None:
    clock = Clock()
    timers = Timers(clock)
    called: list[str] = []
    for name, delay in (("late", 20), ("soon", 10), ("soon too", 10), ("never", 5)):
        timer = timers.at(clock.now + delay, partial(called.append, name))
        if name == "never":
            timer.cancel()
    assert timers.next_deadline == clock.now + 10
    timers.run()
    assert called == []
    clock.now += 15
    timers.run()
    assert called == ["soon", "soon too"]
    clock.now += 5
    timers.run()
    timers.run()
    assert called == ["soon", "soon too", "late"]
    assert timers.next_deadline is None


def test_a_callback_may_ask_for_another_call() -> None:
    clock = Clock()
    timers = Timers(clock)
    called: list[int] = []

    def again() -> None:
        called.append(clock.now)
        timers.at(clock.now + 1, again)

    timers.at(clock.now, again)
    timers.run()
    assert called == [clock.now]
    clock.now += 1
    timers.run()
    assert len(called) == 2


def test_cancelled_timers_are_cleared_away() -> None:
    clock = Clock()
    timers = Timers(clock)
    called: list[int] = []
    kept = [timers.at(clock.now + 10, lambda: called.append(1)) for _ in range(10)]
    for _ in range(10 * SLACK):
        timers.at(clock.now + 10**9, lambda: called.append(2)).cancel()
    assert len(timers) <= 3 * SLACK
    clock.now += 10
    timers.run()
    assert called == [1] * len(kept)


def test_what_moves_the_next_deadline() -> None:
    clock = Clock()
    timers = Timers(clock)
    timers.moved = False
    soon = timers.at(clock.now + 10, lambda: None)
    assert timers.moved
    timers.moved = False
    timers.at(clock.now + 20, lambda: None)
    soon.cancel()
    assert not timers.moved  # it rings in vain, and then
    clock.now += 10
    timers.run()
    assert timers.moved
    assert timers.next_deadline == clock.now + 10


def test_an_error_of_one_timer_keeps_nothing_from_the_others(kit: NodeKit, client: Client) -> None:
    """The batch ends, and the clock is set for the others that are due."""
    client.declare("q")
    client.call(m.BasicConsume("q", "c", no_ack=True), m.BasicConsumeOk)
    called: list[str] = []
    armed: list[int | None] = []
    timers, batch = kit.node.timers, kit.node.batch
    batch.end()
    batch.rearm = lambda: armed.append(timers.next_deadline)

    def broken() -> None:
        queue = kit.node.vhosts["/"].queues["q"]
        queue.publish(message())
        raise KeyError("a channel that is gone")

    for callback in (broken, lambda: called.append("other")):
        timers.at(timers.now(), callback)
    with pytest.raises(KeyError):
        kit.node.run_timers()
    client.receive()
    assert [body for _, _, body in client.deliveries()] == [b"x"]
    assert armed[-1] == timers.now(), "the other one is due"
    kit.node.run_timers()
    assert called == ["other"]


def message() -> Message:
    return Message(Address("", "q"), Content(1, b"", encode_content(1, Properties(), b"x", 4096), 1))
