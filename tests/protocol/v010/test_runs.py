"""Runs of commands in a table: taken in any order, they are what single commands would be."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.protocol.v010 import runs as module
from harebell.protocol.v010.runs import Run, Runs


class Numbers(Run):
    """A run that knows which of its numbers are left."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__(first, count)
        self.there = set(range(first, first + count))

    def take(self, low: int, high: int) -> set[int]:
        taken = {number for number in self.there if low <= number <= high}
        self.there -= taken
        self.left -= len(taken)
        return taken


def take(runs: Runs[Numbers], low: int, high: int) -> set[int]:
    found: set[int] = set()
    for run, first, last in runs.between(low, high):
        assert max(low, run.first) == first <= last == min(high, run.stop - 1)
        found |= run.take(first, last)
    return found


LENGTHS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=40)
RANGES = st.lists(st.tuples(st.integers(-3, 220), st.integers(0, 40)), max_size=40)


@given(LENGTHS, RANGES, st.integers(0, 8))
def test_as_a_set(lengths: list[tuple[int, int]], ranges: list[tuple[int, int]], count: int) -> None:
    runs: Runs[Numbers] = Runs()
    model: set[int] = set()
    at = 0
    for length, gap in lengths:
        at += gap
        runs.append(Numbers(at, length))
        model |= set(range(at, at + length))
        at += length
    assert sum(run.left for run in runs) == runs.count == len(model)
    taken: list[Numbers] = []
    for low, length in ranges:
        high = low + length
        reached = runs.reach(low, high, count + 1)
        assert low <= reached <= high or not length
        wanted = {number for number in model if low <= number <= high}
        if reached < high:
            assert sum(low <= number <= reached for number in model) <= count + 1
        assert take(runs, low, high) == wanted
        model -= wanted
        assert runs.count == len(model)
        assert [run.first for run in runs] == sorted(run.first for run in runs)
        assert all(run.left for run in runs)
        assert len(runs) == len(list(runs))
        for number in range(-2, 230, 7):
            run = runs.covering(number)
            assert (number in model) <= (run is not None)
            assert run is None or run.first <= number < run.stop
        for number in sorted(wanted)[:1]:
            if runs.covering(number) is None:
                runs.insert(back := Numbers(number, 1))
                taken.append(back)
                model.add(number)
    runs.clear()
    assert (runs.count, len(runs), list(runs), runs.last) == (0, 0, [], None)


def test_the_last_one() -> None:
    runs: Runs[Numbers] = Runs()
    assert runs.last is None
    runs.append(first := Numbers(0, 2))
    assert runs.last is first
    runs.append(Numbers(2, 1))
    take(runs, 2, 2)
    assert runs.last is None  # it has left
    assert runs.count == 2


def test_what_has_left_may_come_back() -> None:
    runs: Runs[Numbers] = Runs()
    for first in (0, 3, 6):
        runs.append(Numbers(first, 3))
    take(runs, 3, 5)
    runs.insert(Numbers(4, 2))
    runs.insert(Numbers(3, 1))
    assert [(run.first, run.stop) for run in runs] == [(0, 3), (3, 4), (4, 6), (6, 9)]
    assert take(runs, 3, 4) == {3, 4}
    assert (runs.count, len(runs)) == (7, 3)


def test_what_has_left_is_forgotten() -> None:
    runs: Runs[Numbers] = Runs()
    for number in range(10 * module._FEW):
        runs.append(Numbers(number, 1))
        take(runs, number - 1, number - 1)
        assert len(runs._runs) <= 2 * module._FEW + 2
    assert [run.first for run in runs] == [10 * module._FEW - 1]


def test_reach_counts_commands() -> None:
    runs: Runs[Numbers] = Runs()
    runs.append(Numbers(10, 5))
    runs.append(Numbers(20, 5))
    assert runs.reach(0, 100, 3) == 12
    assert runs.reach(12, 100, 4) == 20
    assert runs.reach(0, 100, 10) == 24
    assert runs.reach(0, 100, 11) == 100
    assert runs.reach(0, 15, 11) == 15
    assert runs.reach(30, 40, 1) == 40
