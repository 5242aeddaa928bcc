"""Messages that came back, against a sorted list."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.contents import returned
from harebell.broker.queues.contents.returned import Returned
from harebell.protocol.v091 import Content

MESSAGE = Message(Address("", "q"), Content(1, b"", b"", 0))  # no message is looked into
PLACES = st.integers(0, 60)


class ReturnedMachine(RuleBasedStateMachine):
    """The model is the list of those that are not gone."""

    def __init__(self) -> None:
        super().__init__()
        self.returned = Returned()
        self.alive: list[Held] = []

    @initialize(size=st.sampled_from([1, 2, 4]))
    def blocks_of(self, size: int) -> None:
        self.patch = mock.patch.object(returned, "BLOCK", size)
        self.patch.start()

    def teardown(self) -> None:
        self.patch.stop()

    @rule(places=st.lists(PLACES, max_size=12))
    def come_back(self, places: list[int]) -> None:
        for place in places:
            if all(place != held.position for held in self.alive):
                held = Held(MESSAGE, place)
                self.returned.push(held)
                self.alive.append(held)
                self.alive.sort()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        for held in data.draw(st.lists(st.sampled_from(self.alive), unique=True, max_size=8)):
            held.gone = True
            self.alive.remove(held)

    @rule(limit=st.integers(1, 9))
    def sweep(self, limit: int) -> None:
        self.returned.sweep(limit)

    @rule()
    def sweep_all(self) -> None:
        for _ in range(2):  # the first one may begin in the middle
            for _ in range(200):
                if self.returned.sweep():
                    break
            else:
                raise AssertionError("a sweep does not end")
        assert len(self.returned) == len(self.alive)

    @rule(limit=st.integers(0, 9))
    def drop_gone(self, limit: int) -> None:
        self.returned.drop_gone(limit)

    @rule(count=st.integers(1, 9))
    def take(self, count: int) -> None:
        for _ in range(count):
            held = self.returned.first()
            assert held is (self.alive[0] if self.alive else None)
            if held is not None:
                assert self.returned.pop() is held
                self.alive.remove(held)

    @rule(place=PLACES, count=st.integers(1, 20))
    def look(self, place: int, count: int) -> None:
        assert self.returned.since(place, count) == [held for held in self.alive if held.position >= place][:count]

    @invariant()
    def the_same(self) -> None:
        assert list(self.returned) == self.alive
        assert all(self.returned.blocks)
        assert len(self.returned) == sum(map(len, self.returned.blocks)) >= len(self.alive)


TestReturned = pytest.mark.pure(ReturnedMachine.TestCase)  # it exchanges a constant


@pytest.mark.parametrize("order", ["up", "down", "inside out"])
def test_many(order: str) -> None:
    """In the blocks' own size."""
    places = {
        "up": list(range(3000)), "down": list(range(3000))[::-1], "inside out": [*range(1500, 3000), *range(1500)],
    }[order]  # fmt: skip
    many = Returned()
    for place in places:
        many.push(Held(MESSAGE, place))
    assert [held.position for held in many] == list(range(3000))
    assert [held.position for held in many.since(1234, 700)] == list(range(1234, 1934))
    assert [many.pop().position for _ in range(3000)] == list(range(3000))
    assert not many.blocks
