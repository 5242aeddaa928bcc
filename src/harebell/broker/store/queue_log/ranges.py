"""A set of positions as ranges: constant size while acknowledgements are in order, and 16 bytes for each gap."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

__all__ = ["Ranges"]

FAR: Final = 1 << 64


class Ranges:
    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts, self._ends = array("Q"), array("Q")  # disjoint, not touching, in order

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(first, end) of each range."""
        return zip(self._starts, self._ends, strict=True)

    @property
    def end(self) -> int:
        """The position after the last one; 0 when there is none."""
        return self._ends[-1] if self._ends else 0

    def add(self, first: int, end: int) -> int:
        """Add the positions from `first` to before `end`. Returns how many of them are new."""
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, first)  # the first range that this one touches
        high = bisect_right(starts, end)  # the first one after it
        if low == high:
            starts.insert(low, first)
            ends.insert(low, end)
            return end - first
        known = sum(min(ends[at], end) - max(starts[at], first) for at in range(low, high))
        starts[low], ends[low] = min(starts[low], first), max(ends[high - 1], end)
        if high - low > 1:
            del starts[low + 1 : high]
            del ends[low + 1 : high]
        return end - first - known

    def span(self, position: int) -> tuple[bool, int]:
        """Whether the position is in the set, and the end (exclusive) of the positions of which that is true."""
        at = bisect_right(self._starts, position)
        if at and position < self._ends[at - 1]:
            return True, self._ends[at - 1]
        return False, self._starts[at] if at < len(self._starts) else FAR

    def missing(self, first: int, end: int) -> int:
        """The number of positions from `first` to before `end` that are not in the set."""
        count = 0
        while first < end:
            inside, until = self.span(first)
            until = min(until, end)
            count += 0 if inside else until - first
            first = until
        return count
