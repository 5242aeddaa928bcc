"""Input of a connection that was received but not parsed yet: a long read is processed in slices.

As many pieces as one slice of time holds are one batch: no batch is long, and none is smaller than it has to be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from harebell.broker.slices import SLICE, Slices, Work

__all__ = ["PIECE", "UnreadInput"]

PIECE: Final = 1 << 14  # bytes of input until the time is looked at: half a millisecond of small messages
BATCH: Final = 1 << 16  # bytes of one batch


class UnreadInput:
    """The pieces in their order. `reading` while a work processes them.

    process  called with each piece
    end      called after the pieces of a batch
    pieces   those that are not processed
    held_up  whether something else has to be waited for before the next piece
    done     called when the work has processed all, or is held up
    """

    __slots__ = ("_done", "_end", "_held_up", "_process", "_slices", "pieces", "reading")

    def __init__(
        self,
        slices: Slices,
        process: Callable[[bytes], None],
        end: Callable[[], None],
        held_up: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self.reading = False
        self._slices, self._process, self._end, self._held_up, self._done = slices, process, end, held_up, done
        self.pieces: deque[bytes] = deque()

    def add(self, data: bytes) -> None:
        """Append a read."""
        self.pieces.extend(data[start : start + PIECE] for start in range(0, len(data), PIECE))

    def go_on(self) -> None:
        """Process the pieces, the first one at once if no other work waits for its turn."""
        if self.pieces and not self.reading and not self._held_up():
            self.reading = True
            if self._slices.idle:
                self._slices.run(self._read())
            else:
                self._slices.later(self._read())

    def clear(self) -> None:
        """Drop the pieces: the connection has ended."""
        self.pieces.clear()

    def _read(self) -> Work:
        pieces, stopwatch, held_up = self.pieces, self._slices.stopwatch, self._held_up
        try:
            while pieces and not held_up():
                late, size = stopwatch() + SLICE, 0
                while True:
                    piece = pieces.popleft()
                    self._process(piece)
                    size += len(piece)
                    if not pieces or size >= BATCH or held_up() or stopwatch() >= late:
                        break
                self._end()
                yield
        finally:
            self.reading = False
            self._done()
