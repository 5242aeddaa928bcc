"""Expiry: messages leave a queue when their deadline has passed, wherever they are; each queue has one timer.

The timer is set to the earliest deadline in the queue; expired messages are also dropped before each delivery, because
a timer may be late. They are dead-lettered like other dropped messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.backlog import Backlog
from harebell.broker.timers import Timer, Timers
from harebell.routing import Reason

__all__ = ["Expiry"]

NEVER: Final = 1 << 62


class Expiry:
    """The timer of a queue's deadlines. `next` is its time; `drop` removes an expired message from the queue."""

    __slots__ = ("_backlog", "_drop", "_timer", "_timers", "next")

    def __init__(self, backlog: Backlog, timers: Timers, drop: Callable[[Held, Reason], None]) -> None:
        self.next = NEVER
        self._backlog, self._timers, self._drop = backlog, timers, drop
        self._timer: Timer | None = None

    def arm(self) -> None:
        """Set the timer: there may be an earlier deadline than before."""
        deadline = self._backlog.next_deadline
        if deadline and deadline < self.next:
            self.cancel()
            self.next = deadline
            self._timer = self._timers.at(deadline, self._ring)

    def drop_expired(self) -> None:
        """Drop expired messages, even where the timer is late."""
        backlog = self._backlog
        if backlog.next_deadline:
            for held in backlog.expired(self._timers.now()):
                self._drop(held, "expired")

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.next = NEVER

    def _ring(self) -> None:
        self._timer, self.next = None, NEVER
        self.drop_expired()
        self.arm()
