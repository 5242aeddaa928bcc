"""Timers of the broker: a heap of deadlines, driven by an owner with a clock.

`net` reads `next_deadline` after each batch in which it `moved`, and calls `run` at that time. A cancelled timer does
not change the next deadline: `run` then finds nothing to do. Times are milliseconds of the node's clock, which never
goes back; a test has a clock of its own and calls `run` itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

__all__ = ["Timer", "Timers"]

LEAST_LIMIT: Final = 1024
RUN_MS: Final = 4  # milliseconds of callbacks until other work has its turn


class Timer:
    """One deadline; after `cancel` its callback is never called."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: int, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Timers:
    """The timers of a node. `clock` gives milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now = clock
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self.moved = True  # whether the next deadline may have changed since this was last set to False
        self._limit = LEAST_LIMIT  # entries above which the cancelled ones are removed

    def at(self, deadline: int, callback: Callable[[], None]) -> Timer:
        """Call back once when the clock has reached `deadline`."""
        timer = Timer(deadline, callback)
        if len(self._heap) > self._limit:
            self._forget_cancelled()
        heapq.heappush(self._heap, (deadline, next(self._order), timer))
        if self._heap[0][2] is timer:
            self.moved = True
        return timer

    def _forget_cancelled(self) -> None:
        """Remove cancelled timers: a timer that each use renews (x-expires) leaves one behind each time."""
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._limit = max(LEAST_LIMIT, 2 * len(self._heap))

    def __len__(self) -> int:
        """The number of timers, cancelled ones included."""
        return len(self._heap)

    @property
    def next_deadline(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def run(self) -> None:
        """Call back the timers that are due, as many as RUN_MS holds; the others stay due."""
        now, self.moved = self.now(), True
        while (deadline := self.next_deadline) is not None and deadline <= now:
            callback = heapq.heappop(self._heap)[2].callback
            if callback is not None:
                callback()
                if self.now() - now > RUN_MS:
                    return
