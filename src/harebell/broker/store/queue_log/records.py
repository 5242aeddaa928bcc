"""The file format of a queue's log: headers, messages and settlements.

A segment (`.log`) and the file beside it (`.settled`) begin with the same header, twice, so that damage to one copy
loses nothing:

    "WRNQ" | format (u16) | owner (u16) | first position (u64) | mark (4 bytes) | seed (u32)
    | first position of the segment before (u64) | its size in bytes (u64), 0: there is none | CRC-32 of these (u32)

Mark and seed are random and belong to one segment. The owner is made of the name of the folder, which no other queue
has: a file that was moved to another queue is not read there. 0 is of an older version. A message is

    mark | length of the rest (u32) | CRC-32 of the rest, begun with the seed (u32)
    | position (u64) | time stored, ms since 1970 (u64) | deadline, ms since 1970, 0: none (u64) | flags (u8)
    | length of address (u16) | length of marks (u16)
    | address: exchange and routing key as short strings | marks | header and body frames, channel 1

Marks that are too long for that are before the frames: `{"before_frames": SIZE}` is in their place (`journal`).
With the flag NUMBERED the marks begin with the session that sent the message (8 bytes) and its command (u64).

After damage, reading continues at the next mark with a right CRC. Mark and seed are secret: a message whose body looks
like a record is not taken for one, nor are old bytes of an earlier file on the disk.

A settlement has 24 bytes, so that a damaged one does not move the others:

    CRC-32 of the rest, begun with the seed (u32) | kind (u32) | position (u64) | number (u64)

    kind 1  `number` messages from `position` on are settled
    kind 2  all before `position` were delivered
    kind 3  the message at `position` came back for the `number`-th time
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from harebell.broker.store.queue_log.ranges import Ranges

__all__ = [
    "DELIVERED", "FIELDS", "FORMAT", "HEAD", "HEADER_BYTES", "NUMBER_BYTES", "NUMBERED", "RETURNED", "SETTLED",
    "SETTLEMENT_BYTES", "TRANSIENT", "Header", "Key", "Stored", "encode_header", "encode_settlement", "find_record",
    "pass_numbered", "pass_records", "position_of", "read_header", "read_records", "read_run", "read_settlements",
    "record_end", "skip_records",
]  # fmt: skip

FORMAT: Final = 1
SETTLED: Final = 1
DELIVERED: Final = 2
RETURNED: Final = 3
TRANSIENT: Final = 1
"""Flag of a transient message that is on disk because memory is short; it ends with the process."""
NUMBERED: Final = 2
"""Flag of a durable message that a session sent; its marks say in which command."""

NUMBER_BYTES: Final = 16  # of session and command

MANY: Final = 16  # the least number of records of one length that a separate loop pays off for

HEAD: Final = Struct(">4sII")
FIELDS: Final = Struct(">QQQBHH")
_RECORD: Final = Struct(">4sIIQQQBHH")  # HEAD and FIELDS
_CHECKED: Final = Struct(">4sIIQ8xQB")  # of these, all but the time and the last lengths
_PLACE: Final = Struct(">4xI4xQ")  # of these, the length and the position
_LENGTHS: Final = Struct(">QBHH")  # the end of FIELDS: deadline, flags and lengths
_AddressT = TypeVar("_AddressT")
_HEADER: Final = Struct(">4sHHQ4sIQQ")
_CRC: Final = Struct(">I")
_SETTLEMENT: Final = Struct(">IQQ")
_HEADER_COPY: Final = _HEADER.size + _CRC.size
HEADER_BYTES: Final = 2 * _HEADER_COPY
SETTLEMENT_BYTES: Final = _CRC.size + _SETTLEMENT.size
_MAGIC: Final = b"WRNQ"


class Key(NamedTuple):
    """The mark and the seed that identify the records of one segment."""

    mark: bytes
    seed: int

    @classmethod
    def random(cls) -> Key:
        return cls(os.urandom(4), int.from_bytes(os.urandom(4), "big"))


class Header(NamedTuple):
    base: int
    key: Key
    previous: int = 0
    previous_size: int = 0


class Stored(NamedTuple):
    """A message as a record of the log.

    `delivered`: it may have reached a consumer before; `delivery_count`: how often it came back.
    """

    position: int
    timestamp: int
    expiry: int
    flags: int
    address: bytes
    marks: bytes
    frames: bytes
    delivered: bool
    delivery_count: int


def _owner(path: str) -> int:
    """The number of the folder that a file is in."""
    return crc32(path.split("/")[-2].encode("utf-8", "surrogateescape")) % 0xFFFF + 1


def encode_header(header: Header, path: str) -> bytes:
    """The header of the file with that path."""
    base, key, previous, size = header
    copy = _HEADER.pack(_MAGIC, FORMAT, _owner(path), base, *key, previous, size)
    return (copy + _CRC.pack(crc32(copy))) * 2


def read_header(data: bytes, base: int, path: str) -> Header | None:
    """A file's header; None when both copies are damaged. OSError for a format newer than this one."""
    for at in (0, _HEADER_COPY):
        copy = data[at : at + _HEADER.size]
        if data[at + _HEADER.size : at + _HEADER_COPY] == _CRC.pack(crc32(copy)) and copy[:4] == _MAGIC:
            _, form, owner, position, mark, seed, previous, size = _HEADER.unpack(copy)
            if form > FORMAT:
                raise OSError(
                    f"{path}: store format {form}, this version reads {FORMAT}: use the version that wrote it, or "
                    "another data folder"
                )
            return (
                Header(position, Key(mark, seed), previous, size)
                if position == base and owner in (0, _owner(path))
                else None
            )
    return None


def record_end(data: bytes, start: int, key: Key) -> int:
    """The end of the whole and right record at `start`; 0 when there is none."""
    body = start + 12
    if body + 29 > len(data):
        return 0
    mark, length, crc = HEAD.unpack_from(data, start)
    end: int = body + length
    if mark != key[0] or length < 29 or end > len(data) or crc32(data[body:end], key[1]) != crc:
        return 0
    return end


def position_of(data: bytes, start: int) -> int:
    """The position of the message whose record begins at `start`."""
    return int.from_bytes(data[start + 12 : start + 20], "big")


def find_record(data: bytes, at: int, key: Key) -> int:
    """The start of the first whole record at or after `at`; -1 when there is none."""
    while (at := data.find(key.mark, at)) >= 0:
        if record_end(data, at, key):
            return at
        at += 1
    return -1


def read_records(
    data: bytes, at: int, key: Key, first: int, delivered: int, settled: Ranges, returned: dict[int, int],
    found: list[Stored], count: int, limit: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Append the records that begin at `at` to `found`: those from position `first` on that are not settled.

    Stops when `found` has `count`, after `limit` bytes, or at bytes that are no whole record. Returns the place where
    it stopped, the position after the last record seen, and the rest of the limit. One loop without calls: it decides
    the speed of reading a backlog.
    """
    mark, seed = key
    last = len(data) - 41
    unpack, make = _RECORD.unpack_from, tuple.__new__  # takes half the time of Stored(...)
    inside, until = False, 0
    while len(found) < count and limit > 0 and at <= last:
        begin, length, crc, position, timestamp, expiry, flags, address, marks = unpack(data, at)
        end = at + 12 + length
        if begin != mark or end > len(data) or crc32(data[at + 12 : end], seed) != crc:
            break
        if position >= first:
            first = position + 1
            if position >= until:
                inside, until = settled.span(position)
            if not inside:
                middle = at + 41 + address
                body = middle + marks
                times = returned.get(position, 0) if returned else 0
                before = position < delivered or times > 0
                fields = (
                    position, timestamp, expiry, flags, data[at + 41 : middle], data[middle:body], data[body:end],
                    before, times,
                )  # fmt: skip
                found.append(make(Stored, fields))
                limit -= end - at
        at = end
    return at, first, limit


def pass_records(data: bytes, at: int, stop: int, key: Key, first: int, end: int) -> tuple[int, int, bool]:
    """Check the records from `at` to `stop`, as long as they are whole, right, without a gap and not TRANSIENT.

    Their positions are those from `first` to before `end`. Returns the place and the position after the last of them,
    and whether any has a deadline. Stops at one that has any flag. One loop without calls: it decides how long a start
    takes.
    """
    mark, seed = key
    stop = min(stop, len(data) - 40)  # none is shorter than 41 bytes
    unpack, expires = _CHECKED.unpack_from, False
    while at < stop and first < end:
        begin, length, crc, position, expiry, flags = unpack(data, at)
        after = at + 12 + length
        if position != first or flags or begin != mark or crc32(data[at + 12 : after], seed) != crc:
            break
        if expiry:
            expires = True
        first += 1
        at = after
    return at, first, expires


def pass_numbered(
    data: bytes, at: int, stop: int, key: Key, first: int, end: int, numbers: list[bytes]
) -> tuple[int, int, bool]:
    """As `pass_records`, of NUMBERED ones: session and command of each are appended to `numbers`, as bytes."""
    mark, seed = key
    stop = min(stop, len(data) - 40)
    unpack, expires = _RECORD.unpack_from, False
    while at < stop and first < end:
        begin, length, crc, position, _, expiry, flags, address, _ = unpack(data, at)
        after, marks = at + 12 + length, at + 41 + address
        if position != first or flags != NUMBERED or begin != mark or crc32(data[at + 12 : after], seed) != crc:
            break
        numbers.append(data[marks : marks + NUMBER_BYTES])
        if expiry:
            expires = True
        first += 1
        at = after
    return at, first, expires


def skip_records(data: bytes, at: int, first: int) -> tuple[int, int]:
    """(place, position) of the first record at or after `at` whose position is at least `first`.

    If there is none, the place is the end of `data` and the position is `first`. The bytes have been checked.
    """
    while at < len(data):
        length, position = _PLACE.unpack_from(data, at)
        if position >= first:
            return at, position
        at += 12 + length
    return at, first


def read_run(
    data: bytes, at: int, first: int, end: int, addresses: Mapping[bytes, _AddressT]
) -> tuple[int, list[_AddressT], list[bytes]]:
    """The plain messages that begin at `at`, with the positions from `first` to before `end` and without a gap.

    A message is plain when it has neither deadline nor marks, but for its number. Returns the place where the run ends,
    the value in `addresses` for the address of each message, and its frames. The bytes have been checked, so a record
    costs little more than its slice: where deadline, lengths and address equal those of the record before, they are not
    parsed again, and where many have one length (the bytes one record further on look like it), C code reads them.
    """
    unpack, size, view = _PLACE.unpack_from, len(data), memoryview(data)
    found: list[_AddressT] = []
    frames: list[bytes] = []
    while at < size and first < end:
        length, position = unpack(data, at)
        expiry, flags, wire, marks = _LENGTHS.unpack_from(data, at + 28)
        if position != first or expiry or (marks and (marks != NUMBER_BYTES or not flags & NUMBERED)):
            break
        width, step = 41 + wire, 12 + length
        fields, further = data[at + 28 : at + width], at + MANY * step
        if data[further : further + 8] == data[at : at + 8]:
            count = min((size - at) // step, end - first)
            for other, position, rest, content in _alike(width, marks, step).iter_unpack(view[at : at + count * step]):
                if other != length or rest != fields or position != first:
                    break
                first += 1
                at += step
                frames.append(content)
        else:
            while at < size and first < end:
                length, position = unpack(data, at)
                body = at + width
                if data[at + 28 : body] != fields or position != first:
                    break
                first += 1
                at += 12 + length
                frames.append(data[body + marks : at])
        found += [addresses[fields[13:]]] * (len(frames) - len(found))
    return at, found, frames


@lru_cache(maxsize=64)
def _alike(width: int, marks: int, step: int) -> Struct:
    """The Struct of a record of `step` bytes: length, position, deadline to address, and frames.

    `width` bytes precede the marks, which are passed over.
    """
    return Struct(f">4xI4xQ8x{width - 28}s{marks}x{step - width - marks}s")


def encode_settlement(kind: int, position: int, number: int, seed: int) -> bytes:
    rest = _SETTLEMENT.pack(kind, position, number)
    return _CRC.pack(crc32(rest, seed)) + rest


def read_settlements(data: bytes, seed: int) -> Iterator[tuple[int, int, int] | None]:
    """(kind, position, number) of each settlement; None for a damaged one. An incomplete one at the end is left out."""
    for at in range(HEADER_BYTES, len(data) - SETTLEMENT_BYTES + 1, SETTLEMENT_BYTES):
        rest = data[at + _CRC.size : at + SETTLEMENT_BYTES]
        whole = data[at : at + _CRC.size] == _CRC.pack(crc32(rest, seed))
        yield _SETTLEMENT.unpack(rest) if whole else None
