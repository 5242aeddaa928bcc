"""A segment log: records appended to 8 MiB files, read by offset, never rewritten. The body of a stream queue.

A record is what a delivery needs, in wire form:

    length of the rest (u32) | CRC-32 of the rest (u32)
    | time in ms since 1970 (u64) | length of the address (u16) | address: exchange and routing key as short strings
    | header frame and body frames, their channel number 1

Offsets count records from 0. A segment file is named by the offset of its first record. In memory stand only a sparse
index per segment (one entry per 64 KiB) and what was appended in the current batch. Recovery reads the segments, cuts
a torn tail at the last whole record, and says what it cut. What it found it shows to readers, so it has it on disk
before, where the process before may not have synced it. Retention drops whole segments, the oldest first: offsets
stay, `first` moves, and a reader whose place is gone goes on there. The segment that is written always stays. After a
power cut, segments that retention has dropped may be there again, with a gap behind them.

It knows nothing of queues, consumers or protocols; what is appended it does not sync (`commit` does).
"""

from __future__ import annotations

import os
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from warren.broker.store.commit import GroupCommit
from warren.broker.store.files import Files, write_all
from warren.broker.store.syncing import sync_files

__all__ = ["SEGMENT_BYTES", "Cursor", "Record", "SegmentLog"]

SEGMENT_BYTES: Final = 8 * 1024 * 1024
INDEX_BYTES: Final = 64 * 1024  # a seek reads at most this much before its record
READ_BYTES: Final = 256 * 1024  # one read of a cursor: several hundred messages, and no more memory than that

_SEGMENT: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HEAD: Final = Struct(">II")
_REST: Final = Struct(">QH")


class Record(NamedTuple):
    offset: int
    timestamp: int  # milliseconds
    address: bytes
    frames: bytes


class _Segment:
    __slots__ = ("base", "count", "fd", "index", "indexed", "last", "path", "size")

    def __init__(self, files: Files, folder: Path, base: int) -> None:
        self.path, self.base = f"{folder}/{base:020}.log", base
        self.fd = files.open(self.path, _SEGMENT, 0o640)
        self.size = self.count = 0
        self.last = 0  # time of the last record
        self.index: list[tuple[int, int, int]] = []  # (offset, position, time of that record)
        self.indexed = -INDEX_BYTES

    def note(self, offset: int, position: int, timestamp: int) -> None:
        """Put a record into the index; one for each INDEX_BYTES is enough."""
        self.index.append((offset, position, timestamp))
        self.indexed = position


class SegmentLog:
    """The log in the folder `path`, which is made when it is missing. `clean`: whoever wrote it has synced it all.

    `first` is the offset of the oldest record, `written` the offset after the last one in the files, `durable` the
    offset after the last one that is synced (readers see no further), `cut` the bytes that recovery took off a torn
    tail. `segment_bytes`, `max_bytes` and `max_age` (milliseconds; None: without limit) may be changed at any time, and
    what `retain` drops follows from them; `rolled` says that it may have something to do since it was last asked.
    """

    def __init__(
        self, path: Path, commit: GroupCommit, *, segment_bytes: int = SEGMENT_BYTES, clean: bool = False,
        files: Files = os,
    ) -> None:  # fmt: skip
        self.path, self._commit, self._files, self.segment_bytes = path, commit, files, segment_bytes
        self.max_bytes: int | None = None
        self.max_age: int | None = None
        self.cut = 0
        self.rolled = False
        self._buffer: list[bytes] = []
        self._buffered_bytes = self._buffered = 0
        self._awaiting: deque[tuple[int, int]] = deque()  # (ticket, offset after what it covers)
        self._ticket = 0
        self._segments: list[_Segment] = []
        try:
            names = files.listdir(str(path))
        except FileNotFoundError:
            files.mkdir(str(path), 0o750)
            names = []
        try:
            self._open(sorted(name for name in names if name.endswith(".log")), clean)
        except BaseException:
            for segment in self._segments:
                files.close(segment.fd)
            raise
        last = self._segments[-1]
        self.written = self.durable = self.last_batch = last.base + last.count
        if last.index:
            self.last_batch = last.index[-1][0]

    def _open(self, names: list[str], clean: bool) -> None:
        for name in names:
            segment = _Segment(self._files, self.path, int(name.removesuffix(".log")))
            self._segments.append(segment)
            self._recover(segment)
        if names and not clean:
            sync_files(self._files, [segment.fd for segment in self._segments])
        if not names:
            self._segments.append(_Segment(self._files, self.path, 0))
        if not names or not clean:
            self._sync_folder()

    @property
    def first(self) -> int:
        return self._segments[0].base

    # -- writing -------------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The offset that the next appended record will have."""
        return self.written + self._buffered

    def append(self, address: bytes, frames: Iterable[bytes], timestamp: int | None = None) -> None:
        """Add a record to the current batch, its frames in any pieces; `flush` writes the batch."""
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        rest = b"".join((_REST.pack(timestamp, len(address)), address, *frames))
        segment = self._segments[-1]
        if segment.size + self._buffered_bytes >= max(self.segment_bytes, 1):
            self.flush()
            segment = self._roll()
        position = segment.size + self._buffered_bytes
        if position - segment.indexed >= INDEX_BYTES:
            segment.note(self.next_offset, position, timestamp)
        self._buffer += (_HEAD.pack(len(rest), zlib.crc32(rest)), rest)
        self._buffered_bytes += _HEAD.size + len(rest)
        self._buffered += 1

    def flush(self) -> int:
        """Write the batch; the ticket of the sync that will cover it. OSError when the disk refuses."""
        if self._buffer:
            segment = self._segments[-1]
            data = b"".join(self._buffer)
            write_all(self._files, segment.fd, data, segment.size)
            self.last_batch = self.written
            segment.last = _REST.unpack_from(self._buffer[-1])[0]
            segment.size += len(data)
            segment.count += self._buffered
            self.written += self._buffered
            self._buffer.clear()
            self._buffered_bytes = self._buffered = 0
            self._ticket = self._commit.ticket(segment.fd)
            self._awaiting.append((self._ticket, self.written))
        return self._ticket

    def advance(self) -> bool:
        """Move `durable` to what the finished syncs cover; whether it moved."""
        before, synced = self.durable, self._commit.synced
        while self._awaiting and self._awaiting[0][0] <= synced:
            self.durable = self._awaiting.popleft()[1]
        return self.durable != before

    def _roll(self) -> _Segment:
        """Begin another segment, once this one is on disk: a power cut leaves no gap between two."""
        if self._ticket > self._commit.synced:
            self._files.fdatasync(self._segments[-1].fd)
        segment = _Segment(self._files, self.path, self.written)
        self._segments.append(segment)
        self.rolled = True
        self._sync_folder()
        return segment

    def _sync_folder(self) -> None:
        fd = self._files.open(str(self.path), _FOLDER)
        try:
            self._files.fsync(fd)  # the new file's name must survive a power loss too
        finally:
            self._files.close(fd)

    # -- retention -----------------------------------------------------------------------------------------------

    def retain(self, now: int) -> bool:
        """Drop the oldest segments as `max_bytes` and `max_age` say; whether any went. `now`: milliseconds since 1970.

        What readers cannot see yet stays, and so does the segment that is written.
        """
        segments = self._segments
        size = sum(segment.size for segment in segments)
        dropped = 0
        for segment, following in pairwise(segments):
            large = self.max_bytes is not None and size > self.max_bytes
            old = self.max_age is not None and segment.last < now - self.max_age
            if not (large or old) or following.base > self.durable:
                break
            with suppress(FileNotFoundError):
                self._files.unlink(segment.path)
            self._commit.hand_over(segment.fd)
            size -= segment.size
            dropped += 1
        del segments[:dropped]
        self.rolled = segments[-1].base > self.durable
        return dropped > 0

    # -- reading -------------------------------------------------------------------------------------------------

    def cursor(self, offset: int) -> Cursor:
        """A reader that begins with the record of that offset, or with the first; an offset may be yet to come."""
        return Cursor(self, max(offset, self.first))

    def locate(self, offset: int) -> tuple[_Segment, int, int]:
        """The segment that holds `offset`, and the indexed (offset, position) at or before it."""
        at = max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base) - 1)
        segment = self._segments[at]
        entry = bisect_right(segment.index, offset, key=lambda e: e[0]) - 1
        if entry < 0:
            return segment, segment.base, 0
        known, position, _ = segment.index[entry]
        return segment, known, position

    def pread(self, segment: _Segment, size: int, position: int) -> bytes:
        return self._files.pread(segment.fd, size, position)

    def after(self, segment: _Segment) -> _Segment | None:
        at = bisect_right(self._segments, segment.base, key=lambda other: other.base)
        return self._segments[at] if at < len(self._segments) else None

    def offset_at(self, milliseconds: int) -> int:
        """The first offset whose record is not older than that time; the next one to come when all are older."""
        best = self.first
        for segment in self._segments:
            for offset, _, timestamp in segment.index:
                if timestamp >= milliseconds:
                    break
                best = offset
        cursor = self.cursor(best)
        while records := cursor.read(1000):
            for record in records:
                if record.timestamp >= milliseconds:
                    return record.offset
        return self.durable

    # -- life ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.flush()
        for segment in self._segments:
            self._commit.close(segment.fd)

    def delete(self) -> None:
        """Remove the log and its folder."""
        for segment in self._segments:
            self._commit.hand_over(segment.fd)
        with suppress(FileNotFoundError):
            for name in sorted(self._files.listdir(str(self.path))):
                self._files.unlink(f"{self.path}/{name}")
            self._files.rmdir(str(self.path))

    def _recover(self, segment: _Segment) -> None:
        files, fd = self._files, segment.fd
        size = files.lseek(fd, 0, os.SEEK_END)
        position, offset = 0, segment.base
        for length, record in _scan(files, fd, size):
            if position - segment.indexed >= INDEX_BYTES:
                segment.note(offset, position, record[0])
            segment.last = record[0]
            position += length
            offset += 1
        segment.size, segment.count = position, offset - segment.base
        if position < size:
            files.ftruncate(fd, position)
            files.fsync(fd)
            self.cut += size - position


class Cursor:
    """A reader's place in a log: `offset` is that of the next record that it may give."""

    __slots__ = ("_at", "_block", "_log", "_position", "_segment", "_start", "offset")

    def __init__(self, log: SegmentLog, offset: int) -> None:
        self.offset = offset
        self._log = log
        self._block, self._start = b"", 0
        self._segment, self._at, self._position = log.locate(offset)  # _at: of the record at _position

    def read(self, count: int) -> list[Record]:
        """Up to `count` records, as many as are durable; [] at the end."""
        records: list[Record] = []
        if self._segment.base < self._log.first:  # it was dropped
            self.offset = max(self.offset, self._log.first)
            self._segment, self._at, self._position = self._log.locate(self.offset)
            self._block, self._start = b"", 0
        while len(records) < count and self._at < self._log.durable:
            rest = self._next()
            if rest is None:
                break
            offset = self._at
            self._at += 1
            if offset < self.offset:
                continue  # the index leads to a little before the place
            timestamp, length = _REST.unpack_from(rest)
            at = _REST.size + length
            records.append(Record(offset, timestamp, rest[_REST.size : at], rest[at:]))
            self.offset = self._at
        return records

    def _next(self) -> bytes | None:
        """The rest of the record at the cursor, which moves behind it; None at the end of what is written."""
        if self._position >= self._segment.size:
            following = self._log.after(self._segment)
            if following is None or following.count == 0:
                return None
            self._segment, self._position = following, 0
            self._block, self._start = b"", 0
            self._at = following.base  # differs only where recovery had to cut a segment that is not the last
        at = self._position - self._start
        if not 0 <= at <= len(self._block) - _HEAD.size:
            at = self._load(READ_BYTES)
        length = _HEAD.unpack_from(self._block, at)[0]
        end = at + _HEAD.size + length
        if end > len(self._block):
            at = self._load(max(READ_BYTES, _HEAD.size + length))
            end = at + _HEAD.size + length
        self._position += _HEAD.size + length
        return self._block[at + _HEAD.size : end]

    def _load(self, size: int) -> int:
        self._block, self._start = self._log.pread(self._segment, size, self._position), self._position
        return 0


def _scan(files: Files, fd: int, size: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """The whole records of a file of that size, from its start: (length on disk, (time, length of the address))."""
    position = 0
    block = b""
    start = 0
    while position + _HEAD.size <= size:
        at = position - start
        if at + _HEAD.size > len(block):
            block, start, at = files.pread(fd, 1 << 20, position), position, 0
        length, crc = _HEAD.unpack_from(block, at)
        if not _REST.size <= length <= size - position - _HEAD.size:
            return
        if at + _HEAD.size + length > len(block):
            block, start, at = files.pread(fd, max(1 << 20, _HEAD.size + length), position), position, 0
        rest = block[at + _HEAD.size : at + _HEAD.size + length]
        if zlib.crc32(rest) != crc:
            return
        timestamp, address = _REST.unpack_from(rest)
        yield _HEAD.size + length, (timestamp, address)
        position += _HEAD.size + length
