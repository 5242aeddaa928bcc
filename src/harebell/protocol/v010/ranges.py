"""Sets of command numbers that grow from below: everything under a mark, and ranges above it.

This is the execution mark of the specification with what is complete out of order. Its size does not depend on how many
commands there were, only on how many ranges are between the mark and the highest number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Marks"]


class Marks:
    """A set of numbers. In order, one after the other, adding costs the same however many there are.

    mark   the lowest number that is not in the set; all below are
    above  how many numbers above the mark are in the set
    """

    __slots__ = ("_highs", "_lows", "above", "mark")

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark
        self.above = 0
        # Ranges above the mark, sorted; they neither touch each other nor the mark.
        self._lows: list[int] = []
        self._highs: list[int] = []

    def __contains__(self, number: int) -> bool:
        if number < self.mark:
            return True
        at = bisect_right(self._lows, number)
        return at > 0 and number <= self._highs[at - 1]

    def __len__(self) -> int:
        """The number of ranges above the mark."""
        return len(self._lows)

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges above the mark, as pairs of lowest and highest number."""
        return list(zip(self._lows, self._highs, strict=True))

    def add(self, low: int, high: int) -> list[tuple[int, int]]:
        """Add the numbers from `low` to `high`; the result are those that were not there, as sorted pairs."""
        if low < self.mark:
            low = self.mark
        if high < low:
            return []
        lows, highs = self._lows, self._highs
        if low == self.mark and (not lows or high < lows[0] - 1):  # in order
            self.mark = high + 1
            return [(low, high)]
        first = bisect_left(highs, low - 1)  # the first range that the new one touches
        after = bisect_right(lows, high + 1)  # the first behind these
        added, at = [], low
        for index in range(first, after):
            if at < lows[index]:
                added.append((at, lows[index] - 1))
            at = max(at, highs[index] + 1)
        if at <= high:
            added.append((at, high))
        if not added:
            return added
        start, end = low, high
        if first < after:
            start, end = min(low, lows[first]), max(high, highs[after - 1])
        lows[first:after], highs[first:after] = [start], [end]
        self.above += sum([last - begin + 1 for begin, last in added])
        if start <= self.mark:
            self.mark = end + 1
            self.above -= end - start + 1
            del lows[0], highs[0]
        return added

    def step(self, number: int, count: int = 1) -> bool:
        """Add so many numbers from `number` on if it is the mark, and nothing is above it. Returns whether it was."""
        if number != self.mark or self._lows:
            return False
        self.mark = number + count
        return True

    def first_missing(self, number: int) -> int:
        """The lowest number from `number` on that is not in the set."""
        if number < self.mark:
            return self.mark
        at = bisect_right(self._lows, number)
        return max(number, self._highs[at - 1] + 1) if at else number

    def missing(self, low: int, high: int) -> list[tuple[int, int]]:
        """The numbers from `low` to `high` that are not in the set, as sorted pairs."""
        at, found = max(low, self.mark), []
        index = bisect_left(self._highs, at)
        while at <= high and index < len(self._lows) and self._lows[index] <= high:
            if at < self._lows[index]:
                found.append((at, self._lows[index] - 1))
            at = self._highs[index] + 1
            index += 1
        if at <= high:
            found.append((at, high))
        return found

    def present(self, low: int, high: int) -> list[tuple[int, int]]:
        """The numbers from `low` to `high` that are in the set, as sorted pairs."""
        found = []
        if low < self.mark and low <= high:
            found.append((low, min(high, self.mark - 1)))
        index = bisect_left(self._highs, max(low, self.mark))
        while index < len(self._lows) and self._lows[index] <= high:
            found.append((max(low, self._lows[index]), min(high, self._highs[index])))
            index += 1
        return found
