"""Failures in a row of a handler whose refused messages would be lost: the queue has no dead-letter exchange.

A handler that fails on every message, by a mistake of the program's, must not empty the queue. So

1. a failed message is held back, unsettled, as long as it is not known whether the message or the handler is at fault:
   until the next success, or QUIET seconds without a failure. Then it is dropped, and the log says so;
2. after `most` failures in a row the consumer ends, and what is held back returns to the queue;
3. no more are held back than leave the consumer `capacity` to go on: beyond that the earliest is dropped.

It knows no broker; `keep` and `drop` settle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from harebell.client.messages import Delivery

__all__ = ["Streak"]

QUIET: Final = 30.0  # seconds; a broker's consumer timeout is longer


class Streak:
    """The failures of one consumer since its last success.

    failures  how many there are
    """

    def __init__(
        self, most: int, capacity: int, drop: Callable[[Delivery], None], keep: Callable[[Delivery], None]
    ) -> None:
        self.failures = 0
        self._most = most
        self._capacity = capacity
        self._drop = drop
        self._keep = keep
        self._held: deque[Delivery] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, delivery: Delivery) -> bool:
        """One more failure: whether the consumer is to end. The delivery is settled here, in the end."""
        self.failures += 1
        self._held.append(delivery)
        if self.failures >= self._most:
            return True
        if len(self._held) > self._capacity:
            self._drop(self._held.popleft())
        self._stop_timer()
        if self._held:
            self._timer = asyncio.get_running_loop().call_later(QUIET, self.over)
        return False

    def over(self) -> None:
        """The handler works: what has failed until now was the messages' fault."""
        self.failures = 0
        self._stop_timer()
        while self._held:
            self._drop(self._held.popleft())

    def end(self) -> None:
        """The consumer ends: what is held back returns to the queue."""
        self._stop_timer()
        while self._held:
            self._keep(self._held.popleft())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
