"""The records of a segment log, and how reading continues after damage.

    length of the rest (u32) | CRC-32 of the rest, begun with the segment's seed (u32)
    | mark (u16): 1 + offset modulo 65,535 | time in ms since 1970 (u48) | length of the address (u16)
    | address: exchange and routing key as short strings
    | transaction and place in it (16 bytes, `positions.NUMBER`), where the length of the address has its highest bit
    | header frame and body frames, their channel number 1

After damage, the next record is at the first place where length, CRC and mark fit; the mark gives its offset, when
fewer than 65,535 records are lost in between. No more records can be lost than fit into the damaged bytes. The seed is
random and part of the segment's name: clients do not know it, so a message whose body looks like a record is not taken
for one.

Versions before the catalog's schema 2 wrote neither: there the seed and the mark are 0. The offset of such a record
follows from its place; damage between two of them counts as one record.

The module knows bytes; `stream_log` knows files, and what to do about damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from harebell.broker.store.checksums import Checksums

__all__ = [
    "HEAD", "LEAST", "MARKS", "MOST_BEFORE_FRAMES", "NUMBERED", "REST", "TIME", "Found", "Record", "number_of",
    "read_records", "record_end", "scan",
]  # fmt: skip

MARKS: Final = 65_535  # different ones; 0 is none
HEAD: Final = Struct(">II")
REST: Final = Struct(">QH")
LEAST: Final = HEAD.size + REST.size  # bytes of a record
TIME: Final = (1 << 48) - 1
NUMBERED: Final = 1 << 15  # in the length of the address
_NUMBER_BYTES: Final = 16
MOST_BEFORE_FRAMES: Final = LEAST + 2 * 256 + _NUMBER_BYTES  # bytes
_RECORD: Final = Struct(">IIQH")  # HEAD and REST
_BLOCK: Final = 1 << 20  # of one read, while nothing is damaged


class Record(NamedTuple):
    offset: int
    timestamp: int  # milliseconds
    address: bytes
    frames: bytes


class Found(NamedTuple):
    """A whole and right record: its start and end in the file, its offset, its time."""

    at: int
    end: int
    offset: int
    timestamp: int


def record_end(data: bytes, at: int, seed: int, offset: int) -> int:
    """The end of the whole and right record at `at`, which has that offset; 0 when there is none."""
    if at + LEAST > len(data):
        return 0
    length, crc, stamp, _ = _RECORD.unpack_from(data, at)
    end: int = at + HEAD.size + length
    mark = stamp >> 48
    if length < REST.size or end > len(data) or mark not in (0, offset % MARKS + 1):
        return 0
    return end if crc32(data[at + HEAD.size : end], seed) == crc else 0


def number_of(data: bytes) -> bytes:
    """The number of the record at the beginning of `data`, MOST_BEFORE_FRAMES of it at least; b"" where it has none."""
    width = _RECORD.unpack_from(data)[3]
    if width < NUMBERED:
        return b""
    at = LEAST + width - NUMBERED
    return data[at : at + _NUMBER_BYTES]


def read_records(
    data: bytes, at: int, seed: int, offset: int, first: int, end: int, found: list[Record], count: int
) -> tuple[int, int]:
    """Append the records from `at` on to `found`: those from offset `first` to before `end`.

    The one at `at` has the offset `offset`. Stops when `found` has `count`, or at bytes that are no whole and right
    record. Returns the place where it stopped, and the offset there. One loop without calls: it decides the speed of
    reading a stream.
    """
    size = len(data)
    last = size - LEAST
    unpack, make = _RECORD.unpack_from, tuple.__new__  # takes half the time of Record(...)
    while at <= last and offset < end and len(found) < count:
        length, crc, stamp, width = unpack(data, at)
        stop = at + 8 + length
        rest = data[at + 8 : stop]
        mark = stamp >> 48
        if stop > size or length < 10 or crc32(rest, seed) != crc or (mark and mark != offset % MARKS + 1):
            break
        if offset >= first:
            frames = width + 10
            if width >= NUMBERED:
                width -= NUMBERED
                frames = width + 10 + _NUMBER_BYTES
            found.append(make(Record, (offset, stamp & TIME, rest[10 : 10 + width], rest[frames:])))
        offset += 1
        at = stop
    return at, offset


def scan(
    load: Callable[[int, int], bytes], at: int, size: int, seed: int, offset: int, limit: int | None
) -> Iterator[Found]:
    """The records of a file of that size, from `at` on, where the one with that offset should begin.

    load   reads so many bytes from that place
    limit  the offset that all are below; None: no limit

    Damaged bytes are skipped, and the rest of the file is then held in memory.
    """
    block, start = b"", at
    sums: Checksums | None = None
    slack = 0  # how many more records may be lost in the skipped bytes than were counted
    unpack, make = _RECORD.unpack_from, tuple.__new__
    while True:
        place, whole = at - start, len(block)
        while place <= whole - LEAST:  # without calls: it decides how long a start takes
            length, crc, stamp, _ = unpack(block, place)
            end, mark = place + 8 + length, stamp >> 48
            if end > whole or length < 10 or (mark and mark != offset % MARKS + 1):
                break
            if crc32(block[place + 8 : end], seed) != crc:
                break
            yield make(Found, (start + place, start + end, offset, stamp & TIME))
            place, offset = end, offset + 1
        at = start + place
        if at >= size:
            return
        if start + whole < size:
            block, start, sums = load(min(_BLOCK, size - at), at), at, None
            length = int.from_bytes(block[:4], "big")
            if len(block) - HEAD.size < length <= size - at - HEAD.size:
                block = load(HEAD.size + length, at)
            if record_end(block, 0, seed, offset):
                continue
            block = load(size - at, at)
        sums = sums or Checksums(block)
        damaged = at - start
        here, lost = _find_record(sums, damaged, seed, offset, slack, None if limit is None else limit - offset)
        if here < 0:
            return
        marked = block[here + 8 : here + 10] != b"\0\0"
        slack = 0 if marked else max(0, slack + (here - damaged) // LEAST - lost)
        at, offset = start + here, offset + lost


def _find_record(
    sums: Checksums, damaged: int, seed: int, offset: int, slack: int, room: int | None
) -> tuple[int, int]:  # fmt: skip
    """The start of the first record from `damaged` on, and the number of lost ones before; place -1 when there is none.

    `offset` is that of the record that should be at `damaged`. At most so many may be lost as fit into the skipped
    bytes, and `slack` more, but fewer than `room`.
    """
    data = sums.data
    size = len(data)
    for match in _places((size - damaged) >> 24).finditer(data, damaged):
        at = match.start()
        if at + LEAST > size:
            break
        length, crc, stamp, width = _RECORD.unpack_from(data, at)
        end = at + HEAD.size + length
        if end > size or width > length - REST.size:
            continue
        mark = stamp >> 48
        if not mark and seed:
            continue
        lost = (mark - 1 - offset) % MARKS if mark else 1
        if mark and lost > (at - damaged) // LEAST + slack:
            continue
        if (room is None or lost < room) and sums.of(at + HEAD.size, end, seed) == crc:
            return at, lost
    return -1, 0


@lru_cache(maxsize=8)
def _places(highest: int) -> re.Pattern[bytes]:
    """A pattern for the places where a length may be, as far as C code can tell.

    Its first byte is at most `highest`, and it is at least that of the smallest record.
    """
    return re.compile(b"(?s)(?=[\\x00-\\x%02x])(?!\\x00\\x00\\x00[\\x00-\\x09])" % min(highest, 255))
