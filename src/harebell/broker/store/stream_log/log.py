"""The log of one stream queue: records appended to 8 MiB segment files, read by offset, never rewritten.

A record is what a delivery needs, in wire form (`records`). Offsets count records from 0. A segment file is
named by the offset of its first record, and by the seed of its checksums. In memory there are only a sparse index per
segment (one entry per 64 KiB), its holes, and what was appended in the current batch.

Recovery reads the segments, cuts a torn tail (after the last whole record of the last segment), and reports what it
cut. It syncs the records that readers will see, where the last process may not have done so.

A damaged record does not affect others: they keep their offsets, the loss is reported, and readers continue after the
damage. The same applies to bytes that are damaged later, when a reader finds them.

Retention drops whole segments, the oldest first: offsets stay, `first` grows, and a reader of a dropped segment
continues at `first`. The segment that is being written always stays. After a power cut, segments that retention has
dropped may exist again, with a gap after them.

It knows no queues, consumers or protocols, and does not sync what is appended (`group_commit` does).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from harebell.broker.store.files import Damage, Files, write_all
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.stream_log.records import (
    HEAD,
    LEAST,
    MARKS,
    MOST_BEFORE_FRAMES,
    NUMBERED,
    REST,
    TIME,
    Record,
    number_of,
    read_records,
    record_end,
    scan,
)
from harebell.broker.store.sync import sync_files

__all__ = ["SEGMENT_BYTES", "StreamCursor", "Record", "StreamLog"]

SEGMENT_BYTES: Final = 8 * 1024 * 1024
INDEX_BYTES: Final = 64 * 1024  # a seek reads at most this much before its record
READ_BYTES: Final = 256 * 1024  # one read of a cursor: several hundred messages, and a limit on memory

_UNNAMED: Final = ".next"  # the suffix of a segment that nothing may be in yet

_SEGMENT: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_pack_head, _pack_rest = HEAD.pack, REST.pack


class _Segment:
    __slots__ = ("base", "end", "fd", "holes", "index", "indexed", "last", "path", "seed", "size")

    def __init__(self, files: Files, folder: Path, name: str, suffix: str = "") -> None:
        base, _, seed = name.removesuffix(".log").partition("-")
        self.path, self.base, self.seed = f"{folder}/{name}", int(base), int(seed or "0", 16)
        self.fd = files.open(self.path + suffix, _SEGMENT, 0o640)
        self.size = 0
        self.end = self.base  # the offset after its last record
        self.holes: dict[int, tuple[int, int]] = {}  # where damage begins: where it ends, and the offset there
        self.last = 0  # time of the last record
        self.index: list[tuple[int, int, int]] = []  # (offset, position, time of that record)
        self.indexed = -INDEX_BYTES

    def note(self, offset: int, position: int, timestamp: int) -> None:
        """Put a record into the index; one for each INDEX_BYTES is enough."""
        self.index.append((offset, position, timestamp))
        self.indexed = position


class StreamLog:
    """The log in the folder `path`, which is made when it is missing. `clean`: the last process has synced all of it.

    `first` is the offset of the oldest record, `written` the offset after the last one in the files, `durable` the
    offset after the last synced one (readers see no further), `next_offset` that of the next one to append. `cut` is
    the number of bytes that recovery cut off a torn tail, `damages` the other damage it found; `on_damage` is called
    with damage that readers find later. `segment_bytes`, `max_bytes` and `max_age` (milliseconds; None: without limit)
    may be changed at any time, for the next `retain`; `rolled`: a new segment was begun since, so that `retain` may
    have something to drop.
    """

    def __init__(
        self, path: Path, commit: GroupCommit, *, segment_bytes: int = SEGMENT_BYTES, clean: bool = False,
        files: Files = os,
    ) -> None:  # fmt: skip
        self.path, self._commit, self._files, self.segment_bytes = path, commit, files, segment_bytes
        self.max_bytes: int | None = None
        self.max_age: int | None = None
        self.cut = 0
        self.damages: list[Damage] = []
        self.on_damage: Callable[[Damage], None] = self.damages.append
        self.rolled = False
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._awaiting: deque[tuple[int, int]] = deque()  # (ticket, offset after what it covers)
        self._ticket = 0
        self._handed = self._done = 0  # how much the thread that syncs was given to do, and has done
        self._rolled_at = 0  # the number in `_handed` of the last segment that it was to begin
        self._segments: list[_Segment] = []
        try:
            names = files.listdir(str(path))
        except FileNotFoundError:
            files.mkdir(str(path), 0o750)
            names = []
        for name in names:
            if name.endswith(_UNNAMED):
                files.unlink(f"{path}/{name}")
        try:
            self._open(sorted(name for name in names if name.endswith(".log")), clean)
        except BaseException:
            for segment in self._segments:
                files.close(segment.fd)
            raise
        last = self._segments[-1]
        self.written = self.durable = self.last_batch = self.next_offset = last.end
        if last.index:
            self.last_batch = last.index[-1][0]

    def _open(self, names: list[str], clean: bool) -> None:
        for name in names:
            self._segments.append(_Segment(self._files, self.path, name))
        for segment, following in pairwise((*self._segments, None)):
            if segment is not None:
                self._recover(segment, following)
        if names and not clean:
            sync_files(self._files, [segment.fd for segment in self._segments])
        if not names:
            self._segments.append(_Segment(self._files, self.path, _new_name(0)))
        if not names or not clean:
            self._sync_folder()

    @property
    def first(self) -> int:
        return self._segments[0].base

    @property
    def size(self) -> int:
        """Bytes of the log, with those of the messages' addresses and properties."""
        return sum(segment.size for segment in self._segments)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(
        self, address: bytes, frames: Iterable[bytes], timestamp: int | None = None, *, number: bytes = b""
    ) -> None:
        """Add a record to the current batch, its frames in any number of pieces; `flush` writes the batch.

        number  the transaction and the place in it that the message has; b"" without one
        """
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        offset = self.next_offset
        width = len(address) | NUMBERED if number else len(address)
        rest = b"".join((_pack_rest(offset % MARKS + 1 << 48 | timestamp, width), address, number, *frames))
        segment = self._segments[-1]
        position = segment.size + self._buffered_bytes
        if position >= self.segment_bytes and position and (self._done >= self._rolled_at or position >= SEGMENT_BYTES):
            self.flush()
            segment = self._roll()
            position = 0
        if position - segment.indexed >= INDEX_BYTES:
            segment.note(offset, position, timestamp)
        self._buffer += (_pack_head(len(rest), crc32(rest, segment.seed)), rest)
        self._buffered_bytes += 8 + len(rest)
        self.next_offset = offset + 1

    def flush(self) -> int:
        """Write the batch. Returns the ticket of the sync that will cover it. OSError when the disk refuses."""
        if self._buffer:
            segment = self._segments[-1]
            data = b"".join(self._buffer)
            if self._handed > self._done:
                self._ticket = self._hand(segment, partial(write_all, self._files, segment.fd, data, segment.size))
            else:
                write_all(self._files, segment.fd, data, segment.size)
                self._ticket = self._commit.ticket(segment.fd)
            self.last_batch = self.written
            segment.last = REST.unpack_from(self._buffer[-1])[0] & TIME
            segment.size += len(data)
            segment.end = self.written = self.next_offset
            self._buffer.clear()
            self._buffered_bytes = 0
            self._awaiting.append((self._ticket, self.written))
        return self._ticket

    def advance(self) -> bool:
        """Move `durable` to the end of the finished syncs. Returns whether it moved."""
        before, synced = self.durable, self._commit.synced
        while self._awaiting and self._awaiting[0][0] <= synced:
            self.durable = self._awaiting.popleft()[1]
        return self.durable != before

    def _roll(self) -> _Segment:
        """Begin another segment, with nothing in it before this one is on disk: a power cut leaves no gap between them.

        That takes two syncs, for which the confirms of all publishers wait. So a small segment becomes larger than it
        should be while that thread is busy with the one before.

        The thread that syncs sees to that, and writes what comes meanwhile: nobody waits for the disk.
        """
        before = self._segments[-1]
        segment = _Segment(self._files, self.path, _new_name(self.written), _UNNAMED)
        self._segments.append(segment)
        self.rolled = True
        if self._commit.enabled:
            self._rolled_at = self._handed + 1
            self._hand(segment, partial(self._begin, before if self._ticket > self._commit.synced else None, segment))
        else:
            self._files.replace(segment.path + _UNNAMED, segment.path)
        return segment

    def _hand(self, segment: _Segment, work: Callable[[], None]) -> int:
        """Have the thread that syncs do this, in the order of these calls. The ticket of the sync that follows."""

        def done() -> None:
            work()
            self._done += 1

        self._handed += 1
        return self._commit.write(segment.fd, done)

    def _begin(self, before: _Segment | None, segment: _Segment) -> None:
        if before is not None:
            self._files.fdatasync(before.fd)
        self._files.replace(segment.path + _UNNAMED, segment.path)
        self._sync_folder()

    def _sync_folder(self) -> None:
        fd = self._files.open(str(self.path), _FOLDER)
        try:
            self._files.fsync(fd)  # the new file's name must survive a power loss too
        finally:
            self._files.close(fd)

    # -- retention -----------------------------------------------------------------------------------------------

    def retain(self, now: int) -> bool:
        """Drop the oldest segments by `max_bytes` and `max_age`. Returns whether any was dropped.

        `now` is in milliseconds since 1970. Records that readers cannot see yet stay, and so does the segment being
        written.
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

    def cursor(self, offset: int) -> StreamCursor:
        """A cursor that begins at that offset, or at the first record; the offset may be a future one."""
        return StreamCursor(self, max(offset, self.first))

    def locate(self, offset: int) -> tuple[_Segment, int, int]:
        """The segment that contains `offset`, and the indexed (offset, position) at or before it."""
        at = max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base) - 1)
        segment = self._segments[at]
        entry = bisect_right(segment.index, offset, key=lambda e: e[0]) - 1
        if entry < 0:
            return segment, segment.base, 0
        known, position, _ = segment.index[entry]
        return segment, known, position

    def load(self, segment: _Segment, size: int, position: int) -> bytes:
        """Read `size` bytes of a segment's file; fewer only at the end of the file."""
        data = self._files.pread(segment.fd, size, position)
        while len(data) < size and (more := self._files.pread(segment.fd, size - len(data), position + len(data))):
            data += more
        return data

    def after(self, segment: _Segment) -> _Segment | None:
        at = bisect_right(self._segments, segment.base, key=lambda other: other.base)
        return self._segments[at] if at < len(self._segments) else None

    def offset_at(self, milliseconds: int) -> int:
        """The first offset whose record is not older than that time; the next new one when all are older."""
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

    def numbers(self, offset: int) -> Iterator[bytes]:
        """The numbers of the records from that offset on that have one. It reads all of these: for a start."""
        first, at, position = self.locate(max(offset, self.first))
        for segment in self._segments[self._segments.index(first) :]:
            for found in scan(
                partial(self.load, segment), position, segment.size, segment.seed, max(at, segment.base), segment.end
            ):
                if found.offset >= offset and (number := number_of(self.load(segment, MOST_BEFORE_FRAMES, found.at))):
                    yield number
            at = position = 0

    # -- life ----------------------------------------------------------------------------------------------------

    def _wait_handed(self) -> None:
        if self._handed > self._done:
            self._commit.wait_written()

    def close(self) -> None:
        self.flush()
        self._wait_handed()
        for segment in self._segments:
            self._commit.close(segment.fd)

    def delete(self) -> Iterator[None]:
        """Remove the log and its folder, a file a step."""
        self._wait_handed()
        for segment in self._segments:
            self._commit.hand_over(segment.fd)
        with suppress(FileNotFoundError):
            for name in sorted(self._files.listdir(str(self.path))):
                self._files.unlink(f"{self.path}/{name}")
                yield
            self._files.rmdir(str(self.path))

    # -- damage --------------------------------------------------------------------------------------------------

    def _recover(self, segment: _Segment, following: _Segment | None) -> None:
        files, fd = self._files, segment.fd
        size = files.lseek(fd, 0, os.SEEK_END)
        position, offset = 0, segment.base
        limit = following.base if following else None
        for found in scan(partial(self.load, segment), 0, size, segment.seed, offset, limit):
            if found.at != position or found.offset != offset:
                self._hole(segment, position, found.at, offset, found.offset)
            if found.at - segment.indexed >= INDEX_BYTES:
                segment.note(found.offset, found.at, found.timestamp)
            segment.last = found.timestamp
            position, offset = found.end, found.offset + 1
        if position < size and following is None:
            files.ftruncate(fd, position)
            files.fsync(fd)
            self.cut += size - position
            size = position
        elif position < size and following is not None:
            end = min(following.base, offset + max(1, (size - position) // LEAST))
            self._hole(segment, position, size, offset, end)
            offset = end
        segment.size, segment.end = size, offset

    def _hole(self, segment: _Segment, at: int, end: int, offset: int, following: int) -> None:
        """Note that the bytes from `at` to `end` cannot be read; `following` is the offset of the record after them."""
        if segment.holes.get(at) != (end, following):
            segment.holes[at] = end, following
            lost = following - offset
            if not segment.seed:  # without marks, more may be lost than were counted
                lost = max(lost, (end - at) // LEAST)
            self.on_damage(Damage(segment.path, at, end - at, (offset, following), lost))

    def behind_damage(self, segment: _Segment, position: int, offset: int) -> tuple[int, int]:
        """The place and the offset where reading continues when the record there cannot be read."""
        if position not in segment.holes:
            at, following = position, offset
            for found in scan(partial(self.load, segment), at, segment.size, segment.seed, offset, segment.end):
                if found.at != at or found.offset != following:
                    self._hole(segment, at, found.at, following, found.offset)
                at, following = found.end, found.offset + 1
            if at < segment.size:
                self._hole(segment, at, segment.size, following, segment.end)
        return segment.holes.get(position, (position, offset))


class StreamCursor:
    """A place in a log: `offset` is that of the next record to read."""

    __slots__ = ("_at", "_block", "_log", "_position", "_segment", "_start", "offset")

    def __init__(self, log: StreamLog, offset: int) -> None:
        self.offset = offset
        self._log = log
        self._block, self._start = b"", 0
        self._segment, self._at, self._position = log.locate(offset)  # _at: of the record at _position

    def read(self, count: int) -> list[Record]:
        """Read up to `count` durable records, and about READ_BYTES of them at most; [] at the end."""
        records: list[Record] = []
        read = 0
        log = self._log
        if self._segment.base < log.first:  # retention dropped it
            self.offset = max(self.offset, log.first)
            self._segment, self._at, self._position = log.locate(self.offset)
            self._block, self._start = b"", 0
        while len(records) < count and (read < READ_BYTES or not records) and self._at < log.durable:
            segment = self._segment
            if self._position >= segment.size:
                following = log.after(segment)
                if following is None:
                    break
                self._go(following, 0, following.base)  # there may be a gap between them
                continue
            at, self._at = read_records(
                self._block, self._position - self._start, segment.seed, self._at, self.offset, log.durable,
                records, count,
            )  # fmt: skip
            if self._start + at == self._position:
                self._fill()
            else:
                read += self._start + at - self._position
                self._position = self._start + at
        self.offset = max(self.offset, self._at)
        return records

    def _go(self, segment: _Segment, position: int, offset: int) -> None:
        self._segment, self._position, self._at = segment, position, offset
        self._block, self._start = b"", position

    def _fill(self) -> None:
        """Read the next block, which begins with a whole record; damaged bytes are skipped."""
        log, segment, position = self._log, self._segment, self._position
        left = segment.size - position
        block = log.load(segment, min(READ_BYTES, left), position)
        length = HEAD.size + int.from_bytes(block[:4], "big")
        if len(block) < length <= left:
            block = log.load(segment, length, position)
        if record_end(block, 0, segment.seed, self._at):
            self._block, self._start = block, position
        else:
            self._go(segment, *log.behind_damage(segment, position, self._at))


def _new_name(base: int) -> str:
    return f"{base:020}-{os.urandom(4).hex()}.log"
