"""The backlog against a model: a list that is sorted by what the rules say."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.swept import SLACK
from harebell.protocol.v091 import Content

TOP = 3


def held(position: int, priority: int = 0, deadline: int = 0, size: int = 1) -> Held:
    return Held(Message(Address("", "q"), Content(1, b"", b"", size)), position, deadline, priority)


class BacklogMachine(RuleBasedStateMachine):
    """The model is the set of held messages; the next one is that of the highest priority that stands first."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(TOP)
        self.inside: list[Held] = []
        self.taken: list[Held] = []
        self.position = self.now = 0

    @rule(priority=st.integers(0, TOP), lives=st.integers(0, 5), size=st.integers(0, 9))
    def push(self, priority: int, lives: int, size: int) -> None:
        new = held(self.position, priority, self.now + lives if lives else 0, size)
        self.position += 1
        self.backlog.push(new)
        self.inside.append(new)

    @rule()
    def pop(self) -> None:
        first = min(self.inside, key=lambda each: (-each.priority, each.position), default=None)
        assert self.backlog.first() is first
        assert self.backlog.pop() is first
        if first is not None:
            self.inside.remove(first)
            self.taken.append(first)

    @rule()
    def pop_lowest(self) -> None:
        least = min(self.inside, key=lambda each: (each.priority, each.position), default=None)
        assert self.backlog.pop_lowest() is least
        if least is not None:
            self.inside.remove(least)
            self.taken.append(least)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        back = data.draw(st.sampled_from(self.taken))
        self.taken.remove(back)
        self.backlog.put_back(back)
        self.inside.append(back)

    @rule(top=st.integers(0, TOP), shift=st.integers(0, TOP))
    def relevel(self, top: int, shift: int) -> None:
        def level(each: Held) -> int:
            return min((each.position + shift) % (TOP + 1), top)

        self.backlog.relevel(top, level)
        self.backlog.relevel(TOP, level)  # so that the other rules may use every level
        assert [each.priority for each in self.inside] == [level(each) for each in self.inside]

    @rule(passes=st.integers(0, 4))
    def expire(self, passes: int) -> None:
        self.now += passes
        expired = list(self.backlog.expired(self.now))
        due = [each for each in self.inside if each.deadline and each.deadline <= self.now]
        assert expired == sorted(due, key=lambda each: (each.deadline, each.position))
        self.inside = [each for each in self.inside if each not in due]

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.inside))
        self.backlog.remove(one)
        self.inside.remove(one)

    @rule()
    def clear(self) -> None:
        assert self.backlog.remove_all().count == len(self.inside)
        self.inside.clear()

    @invariant()
    def same(self) -> None:
        assert self.backlog.count == len(self.inside)
        assert self.backlog.bytes == sum(each.size for each in self.inside)
        assert list(self.backlog) == sorted(self.inside, key=lambda each: (-each.priority, each.position))
        assert self.backlog.next_deadline == min((each.deadline for each in self.inside if each.deadline), default=0)


TestBacklog = BacklogMachine.TestCase


@given(st.integers(1, 4))
def test_messages_that_left_are_not_kept_until_their_deadline(copies: int) -> None:
    backlog = Backlog()
    for position in range(1_000):
        one = held(position, deadline=10**9)
        backlog.push(one)
        for _ in range(copies):
            assert backlog.pop() is one
            backlog.put_back(one)
        backlog.pop()
    assert len(backlog._deadlines) <= 2 * SLACK + 4


class Counted(Held):
    """A message that counts how often its queue asks whether it is gone."""

    asked = 0

    @property
    def gone(self) -> bool:
        Counted.asked += 1
        return self.is_gone

    @gone.setter
    def gone(self, value: bool) -> None:
        self.is_gone = value


LEAVES: dict[str, Callable[[list[Held]], list[Held]]] = {
    "in order": lambda messages: messages[:],
    "in the opposite order": lambda messages: messages[::-1],
    "in no order": lambda messages: Random(0).sample(messages, len(messages)),
    "all but the first": lambda messages: messages[1:],
}


@pytest.mark.pure
@pytest.mark.repeats
@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("come", ["new", "back", "with deadlines", "with any deadlines"])
def test_no_call_takes_longer_because_there_are_many_messages(come: str, leaves: str) -> None:
    """Messages leave one by one from a long queue: no step looks at more than a small part of it."""
    backlog, many, random = Backlog(), 5_000, Random(1)
    deadlines: dict[str, Callable[[int], int]] = {
        "with deadlines": lambda position: position + 1,
        "with any deadlines": lambda position: random.randrange(1, many),
    }
    messages: list[Held] = []
    for position in range(many):
        message = Counted(held(0).message, position, deadlines[come](position) if come in deadlines else 0)
        messages.append(message)
        (backlog.put_back if come == "back" else backlog.push)(message)
    longest = 0
    for leaving in LEAVES[leaves](messages):
        Counted.asked = 0
        backlog.remove(leaving)
        longest = max(longest, Counted.asked)
        Counted.asked = 0
        assert backlog.first() is not None or not backlog.count
        assert backlog.next_deadline or not backlog.count or "deadlines" not in come
        longest = max(longest, Counted.asked)
    assert longest < many // 5
