"""Delayed retry: messages that came back to a queue, and wait before they are delivered again.

They are neither ready nor unacknowledged, and count towards the queue's length limits (RabbitMQ 4.3's rule).
`harebell.broker.queues.settings.retry_delay` computes the delay of each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from harebell.broker.message import Held
from harebell.broker.timers import Timer, Timers

__all__ = ["Retries"]


class Retries:
    """The waiting messages of one queue, with one timer: `count` of them, with `bytes` bytes of body in total.

    `due` is called with those whose delay has ended, in order.
    """

    def __init__(self, timers: Timers, due: Callable[[list[Held]], None]) -> None:
        self._timers, self._due = timers, due
        self._heap: list[tuple[int, int, Held]] = []  # due time, position, message
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

    def messages(self) -> list[Held]:
        return [held for _, _, held in self._heap]

    def clear(self) -> int:
        """Drop all of them. Returns their number."""
        count = len(self._heap)
        self._heap.clear()
        self.bytes = 0
        self._arm()
        return count

    def _arm(self) -> None:
        when = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer.deadline == when:
                return
            self._timer.cancel()
        self._timer = None if when is None else self._timers.at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now, ready = self._timers.now(), []
        while self._heap and self._heap[0][0] <= now:
            held = heapq.heappop(self._heap)[2]
            self.bytes -= held.size
            ready.append(held)
        self._arm()
        self._due(ready)
