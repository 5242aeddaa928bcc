"""Deliveries in runs: taken out and put back in any order, they are what single ones would be."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.message import Address, Message
from harebell.broker.queues.base import Queue
from harebell.broker.v010 import delivered as module
from harebell.broker.v010.delivered import Delivered, Unsettled, Windows
from harebell.broker.v010.deliveries import ByNumber
from harebell.protocol.v091 import Content
from tests.fixtures.profiles import scaled

QUEUES = [cast("Queue", object()), cast("Queue", object())]


class Subscriber:
    no_ack = False
    acked = 0
    cancelled = False

    def __init__(self) -> None:
        self.credit: list[tuple[int, int, int]] = []

    def watch_acks(self) -> None:
        pass

    def completed(self, count: int, size: int, epoch: int) -> None:
        self.credit.append((count, size, epoch))


ORIGINS = [(QUEUES[0], Subscriber()), (QUEUES[1], Subscriber()), (QUEUES[1], Subscriber())]
ADDRESS = Address("", "q")


def message() -> Message:
    return Message(ADDRESS, Content(1, b"", b"", 0))


SENT = st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 6), st.booleans())
TAKEN = st.tuples(st.just("take"), st.integers(0, 60), st.integers(0, 12), st.just(0))
BACK = st.tuples(st.just("back"), st.integers(0, 60), st.integers(0, 12), st.just(0))
SHARES = st.tuples(st.just("shares"), st.integers(0, 60), st.integers(0, 12), st.integers(1, 4))


def single(run: Delivered) -> dict[int, tuple[object, object, int, object]]:
    origins = [run.origin] * run.left if run.origins is None else run.origins
    rows = zip(run.numbers(), origins, run.positions, run.messages, strict=True)
    return {number: (*origin, position, given) for number, origin, position, given in rows}


@settings(max_examples=scaled(80))
@given(st.lists(st.one_of(SENT, TAKEN, BACK, SHARES), max_size=40), st.integers(1, 8))
def test_as_a_dictionary(steps: list[tuple[str, int, int, int]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_IN_RUN", most)
        table, view = Unsettled(), None
        model: dict[int, tuple[object, object, int, object]] = {}
        out: dict[int, Delivered] = {}
        number = position = 0
        view = ByNumber(table)
        for kind, where, count, how in steps:
            if kind == "send":
                messages: list[Any] = [message() for _ in range(count)]
                if how:
                    position += 1
                positions = range(position, position + count) if where else list(range(position, position + count))
                table.delivered(number, ORIGINS[where], positions, list(messages))
                for at, given_message in enumerate(messages):
                    model[number + at] = (*ORIGINS[where], position + at, given_message)
                number += count
                position += count
            elif kind == "back":
                for first in [each for each in out if where <= each <= where + count]:
                    part = out.pop(first)
                    model.update(single(part))
                    table.put_back(part)
            else:
                wanted = {each: model.pop(each) for each in sorted(model) if where <= each <= where + count}
                if kind == "take":
                    parts = table.take(where, where + count)
                else:
                    shares = list(table.shares([(where, where + count)], how))
                    assert all(share for share in shares)
                    parts = [part for share in shares for part in share]
                found: dict[int, tuple[object, object, int, object]] = {}
                for part in parts:
                    assert part.left == len(part) == len(part.messages) == part.stop - part.first
                    assert [piece for cut in part.cut(2) for piece in cut.messages] == part.messages
                    found.update(own := single(part))
                    out[part.first] = part
                    grouped = [
                        (*origin, *each)
                        for origin, places, given in part.groups()
                        for each in zip(places, given, strict=True)
                    ]
                    assert set(grouped) == set(own.values())
                    assert len(grouped) == len(own) == sum(len(back) for _, back in part.backs())
                    assert list(part.queues()) == [entry[0] for entry in own.values()]
                assert found == wanted
            assert table.count == len(model) == len(view)
            assert list(view) == sorted(model)
            assert all(view[each] == (model[each][0],) for each in model)
            assert view.get(number) is None
            assert -1 not in view
            assert [queue for run in table for queue in run.queues()] == [model[each][0] for each in sorted(model)]
            takers = [each for run in table for each in run.takers()]
            assert takers == [(each, model[each][1]) for each in sorted(model)]
            for queue in QUEUES:
                own_numbers = {each for low, high in table.ranges_of(queue) for each in range(low, high + 1)}
                assert {each for each in model if model[each][0] is queue} == own_numbers & set(model)
                assert not own_numbers & {each for each in model if model[each][0] is not queue}
            assert not any(each in view for part in out.values() for each in part.numbers())


def test_what_stays_in_its_queue_does_not_return() -> None:
    given_message = message()
    run = Delivered(0, ORIGINS[0], [7, 8], [None, given_message])
    assert list(run.backs()) == [(QUEUES[0], [(8, given_message)])]
    assert list(Delivered(0, ORIGINS[0], [7], [None]).backs()) == []


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 1), st.booleans()), max_size=12), st.data())
def test_credit_comes_back_once(sent: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    windows, number = Windows(), 0
    subscribers = [Subscriber(), Subscriber()]
    accounts = [(subscriber, who) for who, subscriber in enumerate(subscribers)]
    costs: dict[int, tuple[int, int]] = {}
    for count, who, counted in sent:
        prices = [data.draw(st.integers(1, 9)) for _ in range(count)] if counted else None
        windows.sent(number, count, accounts[who], prices)
        for at in range(count):
            costs[number + at] = (who, prices[at] if prices else 0)
        number += count
    assert windows.count == number
    left = set(costs)
    while left:
        low = data.draw(st.sampled_from(sorted(left)))
        high = low
        while high + 1 in left and data.draw(st.booleans()):
            high += 1
        if data.draw(st.booleans()):
            windows.completed([(low, high)])
        else:
            for _ in windows.completing([(low, high)], 2):
                pass
        left -= set(range(low, high + 1))
        assert windows.count == len(left)
    for who, subscriber in enumerate(subscribers):
        mine = [cost for owner, cost in costs.values() if owner == who]
        assert sum(count for count, _, _ in subscriber.credit) == len(mine)
        assert sum(size for _, size, _ in subscriber.credit) == sum(mine)
        assert {epoch for _, _, epoch in subscriber.credit} <= {who}
