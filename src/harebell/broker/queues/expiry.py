"""Expiry: messages leave a queue when their deadline has passed, wherever they are; each queue has one timer.

The timer is set to the earliest deadline in the queue; expired messages are also dropped before each delivery, because
a timer may be late. They are dead-lettered like other dropped messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell.broker.batch import Batch
from harebell.broker.message import Held
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.slices import SLICE
from harebell.broker.timers import Timer, Timers
from harebell.routing import Reason

__all__ = ["Expiry"]

SHARE: Final = 512  # messages dropped at a time
LOOK: Final = 8  # messages dropped between two looks at the stopwatch
NEVER: Final = 1 << 62


class Expiry:
    """The timer of a queue's deadlines. `next` is its time; `drop` removes an expired message from the queue."""

    __slots__ = ("_backlog", "_batch", "_drop", "_stopwatch", "_timer", "_timers", "next")

    def __init__(self, backlog: Backlog, timers: Timers, drop: Callable[[Held, Reason], None], batch: Batch) -> None:
        self.next = NEVER
        self._backlog, self._timers, self._drop, self._batch = backlog, timers, drop, batch
        self._stopwatch = batch.slices.stopwatch
        self._timer: Timer | None = None

    def arm(self, soonest: int = 0) -> None:
        """Set the timer, to `soonest` or later: there may be an earlier deadline than before."""
        deadline = self._backlog.next_deadline
        if deadline and deadline < self.next:
            self.cancel()
            deadline = max(deadline, soonest)
            self.next = deadline
            self._timer = self._timers.at(deadline, self._ring)

    def drop_expired(self) -> bool:
        """Drop expired messages, even where the timer is late, but one share at most. Returns whether none is left.

        A share is SHARE messages, or as many as one slice holds, or few where very many dead letters wait.
        """
        backlog = self._backlog
        if backlog.next_deadline:
            end = self._stopwatch() + SLICE
            for count, held in enumerate(backlog.expired(self._timers.now()), 1):
                self._drop(held, "expired")
                if count == SHARE or (count % LOOK == 0 and (self._stopwatch() > end or self._batch.letters.crowded)):
                    return not 0 < backlog.next_deadline <= self._timers.now()
        return True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.next = NEVER

    def _ring(self) -> None:
        self._timer, self.next = None, NEVER
        done = False
        try:
            done = self.drop_expired()
        finally:
            self.arm(0 if done else self._timers.now() + 1)  # others have their turns in between
