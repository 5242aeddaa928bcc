"""The memory of a process that runs a broker: Python's garbage collector and the C library's allocator.

A broker's messages are many, long-lived and free of cycles: a full collection walks them all for nothing, and takes a
tenth of a second for each million. So the collector never begins one by itself. `collect_garbage` does, when few
objects are alive, or when so many clients have gone that what they leave behind outweighs the pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from typing import Final

from harebell.broker.counts import Churn

__all__ = ["Garbage", "tune_allocator", "tune_collector"]

# New objects before generation 0 is collected: half a millisecond of work; generation 1 after two of these, which takes
# two milliseconds (after five it took ten, in which nobody was served); the oldest one never.
COLLECTOR: Final = (5_000, 1, 1 << 30)
INTERVAL: Final = 30.0  # seconds between two looks at what has to be collected
FEW_BLOCKS: Final = 1_000_000  # blocks of memory, of which a full collection walks the half in some 20 milliseconds
MANY_CLOSED: Final = 5_000  # connections and channels, which leave some 10 KB each
# glibc's mallopt: give memory back when this much of it is free at the end of the heap, and ask the kernel for blocks
# apart only above that size. Otherwise the memory of one batch of large messages is given back, and the next batch gets
# it again page by page.
MALLOC: Final = {-1: 8 << 20, -3: 1 << 20}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: bytes


def tune_collector() -> None:
    """Make Python's garbage collector collect young objects only, in this whole process."""
    gc.set_threshold(*COLLECTOR)


def tune_allocator() -> None:
    """Make glibc hold some megabytes of freed memory for the next large messages; no effect with other C libraries."""
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, size in MALLOC.items():
            mallopt(parameter, size)


class Garbage:
    """What closed connections and channels leave behind, of a broker with this `churn`."""

    def __init__(self, churn: Churn) -> None:
        self._churn = churn
        gc.collect()
        gc.freeze()  # modules and what the start has made stay: no collection walks them
        self._blocks = sys.getallocatedblocks()
        self._closed = self._count_closed()

    def collect(self) -> bool:
        """Collect all garbage, if the pause is worth it. Returns whether it was."""
        closed = self._count_closed() - self._closed
        if not closed or (sys.getallocatedblocks() - self._blocks > FEW_BLOCKS and closed < MANY_CLOSED):
            return False
        gc.collect()
        self._closed += closed
        return True

    async def collect_periodically(self) -> None:
        """Look every INTERVAL whether to collect, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.collect()

    def _count_closed(self) -> int:
        return self._churn.connection_closed + self._churn.channel_closed
