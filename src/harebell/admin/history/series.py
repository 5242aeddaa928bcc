"""The last hour of one object: how much each of its figures changed in each interval, at a fixed cost.

A figure is an integer: a count that only grows, or a length that goes up and down. Every TICK seconds its change goes
into a ring of 16-bit numbers, and every COARSE_TICKS of these into a second ring, which reaches back an hour. Changes
below 1024 are exact, larger ones to 1 in 1024; what rounding leaves over is a part of the next change, so that no error
adds up. An object with ten figures costs less than LARGEST bytes.

Times are ticks: the number of the interval since the start. An object that does not change needs no call: the ticks in
between are filled up at the next change.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

__all__ = ["COARSE_TICKS", "LARGEST", "TICK", "Form", "Record"]

TICK: Final = 5  # seconds
COARSE_TICKS: Final = 20  # ticks in an interval of the second ring: 100 s
COARSE: Final = 37  # intervals of the second ring: an hour, and the one that is not full yet
MOST_FINE: Final = 121  # ticks of the first ring: ten minutes
LARGEST: Final = 2048  # bytes of an object with all that it refers to
OVERHEAD: Final = 480  # of these for the objects themselves

_MANTISSA: Final = 10  # bits, below 5 of the exponent and the sign
_EXACT: Final = 1 << _MANTISSA
_SIGN: Final = 0x8000


def pack(change: int) -> int:
    """The 16 bits for a change."""
    size = -change if change < 0 else change
    sign = _SIGN if change < 0 else 0
    if size < _EXACT:
        return sign | size
    shift = size.bit_length() - _MANTISSA
    mantissa = (size + (1 << shift >> 1)) >> shift
    if mantissa == _EXACT:  # rounded up to the next power of two
        mantissa >>= 1
        shift += 1
    if shift > 31:
        return sign | 31 << _MANTISSA | (_EXACT - 1)
    return sign | shift << _MANTISSA | mantissa


def unpack(bits: int) -> int:
    """The change that these 16 bits mean."""
    size = (bits & (_EXACT - 1)) << (bits >> _MANTISSA & 31)
    return -size if bits & _SIGN else size


class Form:
    """The form of the records of one kind of objects: the number of figures, and of ticks in the first ring.

    `many`: there may be thousands of such objects, so that each must cost no more than LARGEST.
    """

    __slots__ = ("fine", "width")

    def __init__(self, width: int, *, many: bool = True) -> None:
        self.width = width
        room = (LARGEST - OVERHEAD - 16 * width) // (2 * width) - COARSE
        self.fine = min(MOST_FINE, room) if many else MOST_FINE


class Record:
    """The changes of one object.

    tick   that of the last change; `first` is that of the first
    seen   the last tick in which the object was there; `mark`: a hash of its figures then; both are the caller's
    """

    __slots__ = ("_form", "_rings", "_values", "first", "mark", "seen", "tick")

    def __init__(self, form: Form, tick: int, values: Sequence[int]) -> None:
        """The record of an object that has had these figures until now."""
        self._form = form
        self._rings = array("H", bytes(2 * form.width * (form.fine + COARSE)))
        self._values = array("q", [*values, *values])  # now, and at the start of the coarse interval
        self.first = self.tick = self.seen = tick
        self.mark = 0

    def add(self, tick: int, values: Sequence[int]) -> bool:
        """Note the figures at the end of this tick, which is later than the last one. Returns whether any changed."""
        form, rings, own = self._form, self._rings, self._values
        width, fine = form.width, form.fine
        self._skip(tick)
        at, changed = (tick % fine) * width, False
        for number in range(width):
            change = values[number] - own[number]
            if change:
                bits = pack(change)
                rings[at + number] = bits
                own[number] += unpack(bits)
                changed = True
        self.tick = tick
        return changed

    def _skip(self, tick: int) -> None:
        """Go on to a tick: clear what the rings have of an earlier round."""
        form, rings, own = self._form, self._rings, self._values
        width, fine, last = form.width, form.fine, self.tick
        for each in range(max(last + 1, tick - fine + 1), tick + 1):
            at = each % fine * width
            rings[at : at + width] = array("H", bytes(2 * width))
        ended, now = last // COARSE_TICKS, tick // COARSE_TICKS
        if ended != now:
            coarse = fine * width
            at = coarse + ended % COARSE * width
            for number in range(width):
                change = own[number] - own[width + number]
                bits = pack(change)
                rings[at + number] = bits
                own[width + number] += unpack(bits)
            for each in range(max(ended + 1, now - COARSE + 1), now + 1):
                at = coarse + each % COARSE * width
                rings[at : at + width] = array("H", bytes(2 * width))

    def change(self, figure: int, tick: int) -> int:
        """How much a figure changed in a tick; 0 for one that is too long ago, or still to come."""
        form = self._form
        if tick > self.tick or tick <= self.tick - form.fine or tick < self.first:
            return 0
        return unpack(self._rings[tick % form.fine * form.width + figure])

    def values(self, figure: int, ticks: Sequence[int], value: int) -> list[int]:
        """The figure at the end of each of these ticks, which are the latest first; it is `value` now.

        Between two intervals of the second ring it is interpolated.
        """
        found, last, fine = list[int](), self.tick, self._form.fine
        reached = last - fine  # the first ring has the changes after the end of this tick
        at, now = last, value
        for tick in ticks:
            while at > tick and at > reached:
                now -= self.change(figure, at)
                at -= 1
            found.append(now if at <= tick else round(self._before(figure, tick, reached, now)))
        return found

    def _before(self, figure: int, tick: int, reached: int, value: int) -> float:
        """The figure at a tick before `reached`, where it was `value`."""
        form, rings = self._form, self._rings
        coarse = form.fine * form.width
        now, at = float(value), reached
        while at > tick:
            number = at // COARSE_TICKS  # the interval that `at` is in, or at the end of
            start = number * COARSE_TICKS - 1
            if start < self.first - COARSE_TICKS or number <= self.tick // COARSE_TICKS - COARSE:
                return now
            change = unpack(rings[coarse + number % COARSE * form.width + figure])
            if at == reached:  # a part of the interval is in the first ring
                change -= sum(self.change(figure, each) for each in range(at + 1, start + COARSE_TICKS + 1))
            down_to = max(start, tick)
            now -= change / (at - start) * (at - down_to)
            at = down_to
        return now
