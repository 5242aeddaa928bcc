"""A limit on messages a second: a bucket that fills at that rate and holds a second's worth."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """Hands out leave to publish so many messages a second; one second's worth may be taken at once.

    per_second  the limit, above 0
    clock, sleep  seconds; for tests
    """

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._content = 0.0  # empty at the beginning: many short tasks must not add up to more
        self._filled = clock()

    def take(self, count: int) -> None:
        """Returns when `count` messages may go; more than a second's worth takes as long as it takes."""
        now = self._clock()
        self._content = min(self._content + (now - self._filled) * self._per_second, self._per_second)
        self._filled = now
        self._content -= count
        if self._content < 0:
            self._sleep(-self._content / self._per_second)
