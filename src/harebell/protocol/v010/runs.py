"""Tables of commands by number, in runs: what is kept of commands one behind the other is kept together.

A run costs about the same whether it has one command or a thousand. Commands leave a run in any order; it leaves its
table with the last of them. What a run keeps of its commands is its own affair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["MOST_IN_RUN", "Run", "Runs"]

MOST_IN_RUN: Final = 1024  # commands of a run, above which another one is begun: one that stays keeps the run's lists
_FEW: Final = 64  # runs that have left, whose places are kept in any case


class Run:
    """The commands from `first` to before `stop`, of which `left` are still there."""

    __slots__ = ("first", "left", "stop")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.stop = first + count
        self.left = count


R = TypeVar("R", bound=Run)


class Runs(Generic[R]):
    """Runs in the order of their numbers, none of which overlap. `count` is the number of commands in all of them."""

    __slots__ = ("_firsts", "_gone", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._firsts: list[int] = []
        self._runs: list[R | None] = []  # None: it has left
        self._gone = 0  # how many have

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._runs) - self._gone

    def __iter__(self) -> Iterator[R]:
        return (run for run in self._runs if run is not None)

    @property
    def last(self) -> R | None:
        """The run with the highest numbers, unless it has left."""
        return self._runs[-1] if self._runs else None

    def append(self, run: R) -> None:
        """Add a run, whose numbers are higher than all before."""
        self.count += run.left
        self._firsts.append(run.first)
        self._runs.append(run)

    def insert(self, run: R) -> None:
        """Add a run that overlaps none of the others."""
        at = bisect_right(self._firsts, run.first)
        self.count += run.left
        if at and self._firsts[at - 1] == run.first:  # of one that has left
            self._runs[at - 1] = run
            self._gone -= 1
        else:
            self._firsts.insert(at, run.first)
            self._runs.insert(at, run)

    def covering(self, number: int) -> R | None:
        """The run whose first and last number the number is between, or is one of."""
        at = bisect_right(self._firsts, number) - 1
        run = self._runs[at] if at >= 0 else None
        return run if run is not None and number < run.stop else None

    def reach(self, low: int, high: int, count: int) -> int:
        """The number up to which there are about `count` commands from `low` on; at most `high`."""
        for at in range(max(0, bisect_right(self._firsts, low) - 1), len(self._runs)):
            run = self._runs[at]
            if self._firsts[at] > high:
                break
            if run is not None and run.stop > low:
                begin = max(low, run.first)
                inside = min(high, run.stop - 1) - begin + 1
                if inside >= count:
                    return begin + count - 1
                count -= inside
        return high

    def between(self, low: int, high: int) -> Iterator[tuple[R, int, int]]:
        """The runs with numbers from `low` to `high`: each with the first and the last of its numbers in there.

        The caller takes commands out of the run, which says so by `left`, before it asks for the next one, to the end.
        """
        runs, at = self._runs, max(0, bisect_right(self._firsts, low) - 1)
        while at < len(runs) and self._firsts[at] <= high:
            run = runs[at]
            if run is not None and run.stop > low:
                before = run.left
                yield run, max(low, run.first), min(high, run.stop - 1)
                self.count -= before - run.left
                if not run.left:
                    runs[at] = None
                    self._gone += 1
            at += 1
        if self._gone > _FEW and self._gone > len(runs) // 2:
            self._forget_gone()

    def clear(self) -> None:
        self.count = self._gone = 0
        self._firsts.clear()
        self._runs.clear()

    def _forget_gone(self) -> None:
        self._runs = [run for run in self._runs if run is not None]
        self._firsts = [run.first for run in self]
        self._gone = 0
