"""The backlog against a model: a list that is sorted by what the rules say."""

from __future__ import annotations

from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.message import Address, Held, Message
from harebell.broker.queues.backlog import SLACK, Backlog
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
    assert len(backlog._deadlines) + len(backlog._timely) <= 2 * SLACK + 4
