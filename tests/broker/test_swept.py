"""Containers with entries that are gone, against lists; and how many entries one call looks at."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.swept import STEP, Heap, Line


class Entry:
    def __init__(self, key: int) -> None:
        self.key, self.gone = key, False

    def __lt__(self, other: Entry) -> bool:
        return self.key < other.key


def is_gone(entry: Entry) -> bool:
    return entry.gone


class SweptMachine(RuleBasedStateMachine):
    """A line and a heap have the same entries; the model is a list of those that are not gone, in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.heap = Line(is_gone), Heap(is_gone)
        self.alive: list[Entry] = []

    @rule(keys=st.lists(st.integers(0, 9), min_size=1, max_size=3 * STEP))
    def come(self, keys: list[int]) -> None:
        for key in keys:
            entry = Entry(key)
            self.line.append(entry)
            self.heap.push(entry)
            self.alive.append(entry)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        for entry in data.draw(st.lists(st.sampled_from(self.alive), unique=True)):
            entry.gone = True
            self.alive.remove(entry)

    @rule()
    def sweep(self) -> None:
        self.line.sweep()
        self.heap.sweep()

    @rule()
    def drop_gone(self) -> None:
        self.line.drop_gone()
        self.heap.drop_gone()

    @precondition(lambda self: self.alive)
    @rule()
    def take_first(self) -> None:
        first = self.line.first()
        assert first is self.alive[0]
        assert self.line.popleft() is first
        first.gone = True
        self.alive.remove(first)

    @precondition(lambda self: self.alive)
    @rule()
    def take_least(self) -> None:
        least = self.heap.first()
        assert least is not None
        assert least.key == min(entry.key for entry in self.alive)
        assert self.heap.pop() is least
        least.gone = True
        self.alive.remove(least)

    @invariant()
    def same(self) -> None:
        assert list(self.line) == self.alive
        assert sorted(map(id, self.heap)) == sorted(map(id, self.alive))
        assert bool(self.heap.entries) == bool(len(self.heap))
        last = self.line.last()
        assert last is None or last.gone or last is self.alive[-1]
        assert self.heap.first() is None or self.alive

    def teardown(self) -> None:
        for _ in range(len(self.line) + len(self.heap) + 1):
            self.line.sweep()
            self.heap.sweep()
        while not (self.line.sweep() and len(self.line) <= len(self.alive)):
            pass
        while not (self.heap.sweep() and len(self.heap) <= len(self.alive)):
            pass
        assert len(self.line) == len(self.heap) == len(self.alive)
        assert sum(map(len, self.line.containers())) == sum(map(len, self.heap.containers())) == len(self.alive)


TestSwept = SweptMachine.TestCase
