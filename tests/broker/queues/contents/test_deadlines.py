"""Deadlines of messages that come, leave and come back, against a list."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.contents.deadlines import Deadlines
from harebell.broker.swept import SLACK
from harebell.protocol.v091 import Content


class DeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines()
        self.waiting: list[Held] = []
        self.away: list[Held] = []
        self.position = self.now = 0

    @rule(lives=st.lists(st.integers(1, 9), min_size=1, max_size=40))
    def come(self, lives: list[int]) -> None:
        for life in lives:
            held = Held(Message(Address("", "q"), Content(1, b"", b"", 0)), self.position, self.now + life)
            self.position += 1
            self.deadlines.add(held)
            self.waiting.append(held)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        leaving = data.draw(st.lists(st.sampled_from(self.waiting), unique=True, min_size=1))
        for held in leaving:
            held.gone = True
            self.waiting.remove(held)
            self.away.append(held)
        self.deadlines.lost(len(leaving))

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.away))
        self.away.remove(held)
        held.gone = False
        self.deadlines.add(held)
        self.waiting.append(held)

    @rule(passes=st.integers(0, 4))
    def expire(self, passes: int) -> None:
        self.now += passes
        due = sorted((held.deadline, held.position) for held in self.waiting if held.deadline <= self.now)
        for deadline, position in due:
            held = self.deadlines.pop_due(self.now)
            assert held is not None
            assert (held.deadline, held.position) == (deadline, position)
            held.gone = True
            self.waiting.remove(held)
            self.away.append(held)
        assert self.deadlines.pop_due(self.now) is None

    @invariant()
    def same(self) -> None:
        assert self.deadlines.first() == min((held.deadline for held in self.waiting), default=0)
        assert len(self.deadlines) >= len(self.waiting)
        assert sum(map(len, self.deadlines.containers())) == len(self.deadlines)


TestDeadlines = DeadlinesMachine.TestCase


def test_a_message_that_comes_back_again_and_again_has_one_entry() -> None:
    deadlines = Deadlines()
    held = Held(Message(Address("", "q"), Content(1, b"", b"", 0)), 0, 5)
    for _ in range(100):
        held.gone = False
        deadlines.add(held)
        held.gone = True
        deadlines.lost(1)
    assert len(deadlines) <= 1
    assert not deadlines.first()


def test_messages_that_left_are_forgotten() -> None:
    deadlines = Deadlines()
    many = [Held(Message(Address("", "q"), Content(1, b"", b"", 0)), n, 100_000 - n % 7) for n in range(5000)]
    for held in many:
        deadlines.add(held)
    for held in many[1:]:
        held.gone = True
        deadlines.lost(1)
    assert len(deadlines) <= 2 * SLACK
