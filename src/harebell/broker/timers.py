"""Timers of the broker: a heap of deadlines, driven by an owner with a clock.

`net` reads `next_deadline` after each batch in which it `moved`, and calls `run` at that time. A cancelled timer does
not change the next deadline: `run` then finds nothing to do. Times are milliseconds of the node's clock, which never
goes back; a test has a clock of its own and calls `run` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

from harebell.broker.swept import Heap

__all__ = ["Timer", "Timers"]

SLACK: Final = 1024  # cancelled timers before they are swept
RUN_MS: Final = 4  # milliseconds of callbacks until other work has its turn


class Timer:
    """One deadline; after `cancel` its callback is never called."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: int, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


_Entry: TypeAlias = "tuple[int, int, Timer]"


def _is_cancelled(entry: _Entry) -> bool:
    return entry[2].callback is None


class Timers:
    """The timers of a node. `clock` gives milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now = clock
        self._heap: Heap[_Entry] = Heap(_is_cancelled)
        self._order = count()
        self.moved = True  # whether the next deadline may have changed since this was last set to False
        self._alive = SLACK  # timers that were not cancelled when the last sweep ended, or more

    def at(self, deadline: int, callback: Callable[[], None]) -> Timer:
        """Call back once when the clock has reached `deadline`."""
        timer = Timer(deadline, callback)
        heap = self._heap
        if (
            len(heap) > 2 * self._alive and heap.sweep()
        ):  # a timer that each use renews (x-expires) leaves one each time
            self._alive = max(SLACK, len(heap))
        heap.push((deadline, next(self._order), timer))
        first = heap.first()
        if first is not None and first[2] is timer:
            self.moved = True
        return timer

    def __len__(self) -> int:
        """The number of timers, cancelled ones included."""
        return len(self._heap)

    @property
    def next_deadline(self) -> int | None:
        first = self._heap.first()
        return None if first is None else first[0]

    def run(self) -> None:
        """Call back the timers that are due, as many as RUN_MS holds; the others stay due."""
        now, self.moved = self.now(), True
        while (deadline := self.next_deadline) is not None and deadline <= now:
            callback = self._heap.pop()[2].callback
            if callback is not None:
                callback()
                if self.now() - now > RUN_MS:
                    return
