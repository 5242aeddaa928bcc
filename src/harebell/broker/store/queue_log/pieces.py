"""What a log writes of a batch: a few pieces with their CRC-32s, so that a large message is read once and not copied.

Records are small as a rule and joined into one piece. The frames of a message from LARGE on are a piece of their own:
the CRC-32 of the record and that of the segment's chunk are combined from theirs, which takes well under a millisecond
whatever the length. From LATE on, the record is an `Unchecked` one: reading and writing it takes so long that another
thread does both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from harebell.broker.store.files import Files, write_all
from harebell.broker.store.queue_log.records import HEAD

__all__ = ["LARGE", "LATE", "Piece", "Unchecked", "combined", "write_pieces"]

LARGE: Final = 1 << 20  # bytes: a copy of a MiB takes as long as the arithmetic that saves it
LATE: Final = 4 << 20  # bytes: their CRC-32 and their write take more than a few milliseconds
SHARE: Final = 1 << 20  # bytes of one write, during which other files wait (see `OpenFiles`)
_POLYNOMIAL: Final = 0xEDB88320  # CRC-32's, its highest power in the lowest bit: x**k is 1 << (31 - k)
_ONE: Final = 1 << 31
_BYTE: Final = 1 << 23  # x**8


class Piece:
    """Bytes to write. `check` is their CRC-32 where it is known; None: it is computed when it is needed."""

    __slots__ = ("check", "data")

    def __init__(self, data: bytes, check: int | None) -> None:
        self.data = data
        self.check = check

    @property
    def size(self) -> int:
        return len(self.data)

    def pieces(self) -> tuple[Piece]:
        return (self,)

    @classmethod
    def of(cls, data: bytes) -> Piece:
        return cls(data, None)

    def continued(self, check: int) -> int:
        """The CRC-32 of data whose CRC-32 is `check`, with this piece behind it."""
        return crc32(self.data, check) if self.check is None else combined(check, self.check, len(self.data))


class Unchecked:
    """A record with large frames, behind the pieces that come before it: its CRC-32s are not computed yet.

    mark, seed   of the segment
    before       encoded records
    start        fields, address and marks
    """

    __slots__ = ("_before", "_frames", "_mark", "_seed", "_start")

    def __init__(self, mark: bytes, seed: int, before: bytes, start: bytes, frames: bytes) -> None:
        self._mark, self._seed, self._before, self._start, self._frames = mark, seed, before, start, frames

    @property
    def size(self) -> int:
        return len(self._before) + HEAD.size + len(self._start) + len(self._frames)

    def pieces(self) -> tuple[Piece, Piece]:
        start, frames, check = self._start, self._frames, crc32(self._frames)
        whole = combined(crc32(start, self._seed), check, len(frames))
        head = HEAD.pack(self._mark, len(start) + len(frames), whole)
        return Piece.of(self._before + head + start), Piece(frames, check)


def write_pieces(files: Files, fd: int, pieces: Iterable[Piece], at: int) -> None:
    """Write the pieces one behind the other, from that place in the file on, a share at a time."""
    for piece in pieces:
        view = memoryview(piece.data)
        for start in range(0, len(view), SHARE):
            write_all(files, fd, view[start : start + SHARE], at + start)
        at += len(view)


def combined(first: int, second: int, length: int) -> int:
    """The CRC-32 of two pieces of data, one behind the other, from those of each; `length` is the second's in bytes."""
    shift, power = _ONE, _BYTE
    while length:
        if length & 1:
            shift = _product(power, shift)
        length >>= 1
        power = _product(power, power)
    return _product(shift, first) ^ second


def _product(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo CRC-32's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
