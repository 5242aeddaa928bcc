"""Containers whose entries may be marked as gone, wherever they are; those are cleared a few at a time.

An entry in the middle of a deque or a heap cannot be removed at once. It is dropped when it comes to the head, or by a
sweep before that, which looks at STEP entries for each one that has gone. So no call takes longer because there are a
million entries. `is_gone` is called at those times, and an entry is dropped when it answers yes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["PART", "SLACK", "STEP", "Heap", "Line"]

STEP: Final = 16  # entries that a sweep looks at for one that has gone
SLACK: Final = 64  # entries that may be gone before a sweep begins,
PART: Final = 16  # and one of so many


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


E = TypeVar("E")
T = TypeVar("T", bound=_Ordered)


class Line(Generic[E]):
    """Entries in the order in which they came. `ready` has them, but for the first ones while they are `swept`."""

    __slots__ = ("_is_gone", "ready", "swept")

    def __init__(self, is_gone: Callable[[E], bool]) -> None:
        self.ready: deque[E] = deque()
        self.swept: deque[E] = deque()
        self._is_gone = is_gone

    def __len__(self) -> int:
        return len(self.ready) + len(self.swept)

    def __iter__(self) -> Iterator[E]:
        """The entries that are not gone."""
        return (entry for entry in chain(self.swept, self.ready) if not self._is_gone(entry))

    def append(self, entry: E) -> None:
        self.ready.append(entry)

    def last(self) -> E | None:
        """The last entry, gone or not."""
        line = self.ready or self.swept
        return line[-1] if line else None

    def first(self) -> E | None:
        """The first entry that is not gone."""
        while line := self.swept or self.ready:
            entry = line[0]
            if not self._is_gone(entry):
                return entry
            line.popleft()
        return None

    def popleft(self) -> E:
        """Take the first entry, gone or not."""
        return (self.swept or self.ready).popleft()

    def drop_gone(self, limit: int = STEP) -> None:
        """Clear entries at the head that are gone, `limit` at most."""
        line = self.swept or self.ready
        for _ in range(limit):
            if not line or not self._is_gone(line[0]):
                return
            line.popleft()

    def sweep(self, limit: int = STEP) -> bool:
        """Clear what is gone among the next `limit` entries. Returns whether those were the last ones."""
        ready, swept = self.ready, self.swept
        for _ in range(min(limit, len(ready))):
            entry = ready.popleft()
            if not self._is_gone(entry):
                swept.append(entry)
        if ready:
            return False
        self.ready, self.swept = swept, ready
        return True

    def containers(self) -> tuple[deque[E], deque[E]]:
        """What has the entries, in order, for one who takes all of them."""
        return self.swept, self.ready


class Heap(Generic[T]):
    """Entries by their size. `entries` is not empty while the heap is not; `_swept` has those that a sweep has seen."""

    __slots__ = ("_is_gone", "_swept", "entries")

    def __init__(self, is_gone: Callable[[T], bool]) -> None:
        self.entries: list[T] = []
        self._swept: list[T] = []
        self._is_gone = is_gone

    def __len__(self) -> int:
        return len(self.entries) + len(self._swept)

    def __iter__(self) -> Iterator[T]:
        """The entries that are not gone, in no order."""
        return (entry for entry in chain(self.entries, self._swept) if not self._is_gone(entry))

    def push(self, entry: T) -> None:
        heapq.heappush(self.entries, entry)

    def first(self) -> T | None:
        """The least entry that is not gone."""
        heap = self._least()
        while heap and self._is_gone(heap[0]):
            self._take(heap)
            heap = self._least()
        return heap[0] if heap else None

    def pop(self) -> T:
        """Take the least entry, gone or not."""
        return self._take(self._least())

    def drop_gone(self, limit: int = STEP) -> None:
        """Clear the least entries that are gone, `limit` at most."""
        for _ in range(limit):
            heap = self._least()
            if not heap or not self._is_gone(heap[0]):
                return
            self._take(heap)

    def sweep(self, limit: int = STEP) -> bool:
        """Clear what is gone among the next `limit` entries. Returns whether those were the last ones."""
        entries, swept = self.entries, self._swept
        for _ in range(min(limit, len(entries))):
            entry = entries.pop()  # the last one: the others stay a heap
            if not self._is_gone(entry):
                heapq.heappush(swept, entry)
        if entries:
            return False
        self.entries, self._swept = swept, entries
        return True

    def containers(self) -> tuple[list[T], list[T]]:
        """What has the entries, for one who takes all of them."""
        return self.entries, self._swept

    def _least(self) -> list[T]:
        entries, swept = self.entries, self._swept
        return swept if swept and swept[0] < entries[0] else entries

    def _take(self, heap: list[T]) -> T:
        entry = heapq.heappop(heap)
        if not self.entries:
            self.entries, self._swept = self._swept, self.entries
        return entry
