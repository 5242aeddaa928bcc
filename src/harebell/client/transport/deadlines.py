"""The deadlines of one connection's calls, under one timer of the loop.

A timer of the loop's own for each call costs more than a call. Futures that expire at about the same moment share a
bucket; a call adds its future and takes it out again, and the only timer is set to the earliest bucket. A deadline is
kept to within GRAIN seconds after it, never before.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

__all__ = ["EXPIRED", "Deadlines"]

NEVER: Final = 0  # no bucket: the clock of a loop has long passed it
GRAIN: Final = 0.05  # seconds


class _Expired:
    def __repr__(self) -> str:
        return "EXPIRED"


EXPIRED: Final = _Expired()  # a result and not an exception: asyncio complains of an exception that is never read

_Future = asyncio.Future[Any]  # of any result: each call knows its own, and checks for EXPIRED first


class Deadlines:
    """Futures that get the result EXPIRED when they are not done by their time."""

    __slots__ = ("_buckets", "_due", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[_Future]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0

    def add(self, future: _Future, deadline: float) -> int:
        """Have it expire at this time of the loop's clock, `math.inf`: never. The result is for `remove`."""
        if deadline == math.inf:
            return NEVER
        key = int(deadline / GRAIN) + 1
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = set()
            if self._timer is None or key < self._due:
                self._set_timer(key)
        bucket.add(future)
        return key

    def remove(self, key: int, future: _Future) -> None:
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.discard(future)

    def close(self) -> None:
        """No more deadlines: the connection is gone, and has failed every call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()

    def _set_timer(self, key: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = key
        self._timer = self._loop.call_at(key * GRAIN, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = int(self._loop.time() / GRAIN + 1e-6)
        for key in [key for key in self._buckets if key <= now]:
            for future in self._buckets.pop(key):
                if not future.done():
                    future.set_result(EXPIRED)
        if self._buckets:
            self._set_timer(min(self._buckets))
