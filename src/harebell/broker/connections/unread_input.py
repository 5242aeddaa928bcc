"""Input of a connection that was received but not parsed yet: a long read is processed in slices.

A part of it is processed before the time is looked at. As many parts as one slice of time holds are one batch: no batch
is long, and none is smaller than it has to be. The reads are kept whole, and the dialect is told where a part begins:
to cut them would copy each large message once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from harebell.broker.slices import SLICE, Slices, Work

__all__ = ["PART", "UnreadInput"]

PART: Final = 1 << 14  # bytes of input until the time is looked at: half a millisecond of small messages
BATCH: Final = 1 << 18  # bytes of one batch


class UnreadInput:
    """The reads in their order. `reading` while a work processes them.

    process  called with a read, and where its unprocessed rest begins: processes a part, and returns the same of what
             is left
    end      called after the parts of a batch
    reads    those that are not processed, the first one from `_at` on
    held_up  whether something else has to be waited for before the next part
    done     called when the work has processed all, or is held up
    """

    __slots__ = ("_at", "_done", "_end", "_held_up", "_process", "_slices", "reading", "reads")

    def __init__(
        self,
        slices: Slices,
        process: Callable[[bytes, int], tuple[bytes, int]],
        end: Callable[[], None],
        held_up: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self.reading = False
        self._slices, self._process, self._end, self._held_up, self._done = slices, process, end, held_up, done
        self.reads: deque[bytes] = deque()
        self._at = 0

    def add(self, data: bytes) -> None:
        """Append a read."""
        self.reads.append(data)

    def go_on(self) -> None:
        """Process the reads, a part at once if no other work waits for its turn."""
        if self.reads and not self.reading and not self._held_up():
            self.reading = True
            if self._slices.idle:
                self._slices.run(self._read())
            else:
                self._slices.later(self._read())

    def clear(self) -> None:
        """Drop the reads: the connection has ended."""
        self.reads.clear()
        self._at = 0

    def _read(self) -> Work:
        reads, stopwatch, held_up = self.reads, self._slices.stopwatch, self._held_up
        try:
            while reads and not held_up():
                late, size = stopwatch() + SLICE, 0
                while True:
                    data, at = reads.popleft(), self._at
                    self._at = 0
                    before = len(data) - at
                    data, at = self._process(data, at)
                    size += before - len(data) + at
                    if at < len(data):
                        reads.appendleft(data)
                        self._at = at
                    if not reads or size >= BATCH or held_up() or stopwatch() >= late:
                        break
                self._end()
                yield
        finally:
            self.reading = False
            self._done()
