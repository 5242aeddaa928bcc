"""Delayed retry: messages that came back to a queue, and wait before they are delivered again.

They are neither ready nor unacknowledged, and count towards the queue's length limits (RabbitMQ 4.3's rule).
`harebell.broker.queues.settings.retry_delay` computes the delay of each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, TypeAlias

from harebell.broker.message import Held
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.timers import Timer, Timers

__all__ = ["Retries"]

SHARE: Final = 512  # messages that return to their queue at a time

_Entry: TypeAlias = "tuple[int, int, Held]"  # due time, position, message


class Retries:
    """The waiting messages of one queue, with one timer: `count` of them, with `bytes` bytes of body in total.

    `due` is called with those whose delay has ended, in order.
    """

    def __init__(self, timers: Timers, due: Callable[[list[Held]], None]) -> None:
        self._timers, self._due = timers, due
        self._heap: list[_Entry] = []
        self._timer: Timer | None = None
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self._heap)

    def add(self, held: Held, delay: int) -> None:
        """Hold a message for `delay` milliseconds, or until it expires, which the queue then checks."""
        when = self._timers.now() + delay
        if held.deadline:
            when = min(when, held.deadline)
        heapq.heappush(self._heap, (when, held.position, held))
        self.bytes += held.size
        self._arm()

    def remove_all(self) -> Removed:
        """Remove all of them."""
        removed = Removed(len(self._heap), [_Waiting(self._heap)])
        self._heap, self.bytes = [], 0
        self._arm()
        return removed

    def _arm(self) -> None:
        when = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer.deadline == when:
                return
            self._timer.cancel()
        self._timer = None if when is None else self._timers.at(when, self._ring)

    def end_some(self) -> bool:
        """End the delay of a SHARE of them, those that are due first. Returns whether any are left."""
        self._end_some()
        return bool(self._heap)

    def _ring(self) -> None:
        self._timer = None
        self._end_some(self._timers.now())

    def _end_some(self, now: int | None = None) -> None:
        ready = list[Held]()
        while self._heap and len(ready) < SHARE:  # others are still due when armed
            if now is not None and self._heap[0][0] > now:
                break
            held = heapq.heappop(self._heap)[2]
            self.bytes -= held.size
            ready.append(held)
        self._arm()
        self._due(ready)


class _Waiting:
    """The messages of a heap, for one who takes all of them: they are not gone, though not in the queue's backlog."""

    def __init__(self, heap: list[_Entry]) -> None:
        self._heap = heap

    def __len__(self) -> int:
        return len(self._heap)

    def pop(self) -> Held:
        held = self._heap.pop()[2]
        held.gone = False
        return held
