"""When the deliveries of one channel were made, at a bounded cost: samples of the number of its last delivery.

A delivery was made before the first sample whose last delivery has its number or a higher one, and after the sample
before that. So a delivery costs nothing, and its time is known to one interval: a sample that tells nothing (nothing
was delivered since the one before it, or nothing of that is outstanding) is not kept.

With MOST samples, old ones are thinned out. A delivery whose sample has left has the time of the next one, which is
later by at most one part in SHARE of its age; after weeks of samples, by one in half of that, and so on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

__all__ = ["MOST", "SAMPLE", "SHARE", "Marks"]

MOST: Final = 256  # samples
SAMPLE: Final = 16  # bytes of one
THINNED: Final = MOST * 3 // 4  # samples that are left when they are thinned out, at most
SHARE: Final = 8


class Marks:
    """The samples of one channel, oldest first. `seen` is the caller's."""

    __slots__ = ("_numbers", "_times", "seen")

    def __init__(self) -> None:
        self._times = array("q")
        self._numbers = array("q")
        self.seen = 0

    def __len__(self) -> int:
        return len(self._times)

    def note(self, now: int, last: int, oldest: int | None) -> None:
        """Note the number of the last delivery until now.

        `oldest` is that of the oldest delivery that is not acknowledged; None: there is none. Times never go back.
        """
        times, numbers = self._times, self._numbers
        needless = len(numbers) if oldest is None else bisect_left(numbers, oldest)
        del times[:needless], numbers[:needless]
        if oldest is not None and (not numbers or numbers[-1] < last):
            times.append(now)
            numbers.append(last)
            if len(times) >= MOST:
                self._thin_out(now)

    def samples(self) -> tuple[Sequence[int], Sequence[int]]:
        """The times of the samples, and the number of the last delivery at each: a copy."""
        return self._times[:], self._numbers[:]

    def _thin_out(self, now: int) -> None:
        for share in (SHARE, SHARE // 2, SHARE // 4, SHARE // 8, 0):  # 0 leaves the first and the last one
            self._drop_close(now, share)
            if len(self._times) <= THINNED:
                return

    def _drop_close(self, now: int, share: int) -> None:
        """Drop each sample between two that are closer together than one part in `share` of the age of the later."""
        times, last = self._times, len(self._times) - 1
        left = [0]
        for at in range(1, last):
            later = times[at + 1]
            if (later - times[left[-1]]) * share > now - later:
                left.append(at)
        left.append(last)
        self._times = array("q", [times[at] for at in left])
        self._numbers = array("q", [self._numbers[at] for at in left])
