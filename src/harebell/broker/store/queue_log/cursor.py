"""Reading a queue's log: a cursor is a place in it, from which messages are read in order.

The cursor reads a chunk of a segment at a time where the segment knows its CRC-32: one call then checks the whole
chunk, and plain messages are slices of it (`read_run`). Everything else is read and checked record by record (`read`):
messages that were delivered or have marks, a chunk that has grown, and damaged bytes.

It knows segments and records, and the log by `ReadLog`; it writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar
from zlib import crc32

from harebell.broker.store.files import Files
from harebell.broker.store.queue_log.records import (
    Stored,
    find_record,
    position_of,
    read_records,
    read_run,
    record_end,
    skip_records,
)  # fmt: skip
from harebell.broker.store.queue_log.segment import Segment

__all__ = ["QueueCursor"]

BLOCK_BYTES: Final = 256 * 1024  # one read, ...
MAX_CHUNK: Final = 4 * BLOCK_BYTES  # ... but a whole chunk (a large batch makes a large one) up to this
_AddressT = TypeVar("_AddressT")


class ReadLog(Protocol):
    """The part of a queue's log that a cursor uses."""

    @property
    def files(self) -> Files: ...

    def apply(self) -> None:
        """Apply settlements that are not written yet."""

    def segment_from(self, position: int) -> Segment | None:
        """The segment that contains the first message from this position on."""

    def damaged(self, segment: Segment, at: int, size: int, start: int, end: int) -> None:
        """Report bytes of the segment that cannot be read: messages from position `start` to before `end`."""


class QueueCursor:
    """A place in a log: `position` is the first that may be read next. Settled messages are skipped."""

    __slots__ = ("_at", "_block", "_checked", "_fd", "_log", "_segment", "_start", "position")

    def __init__(self, log: ReadLog, position: int) -> None:
        self.position = position
        self._log = log
        self._segment: Segment | None = None
        self._fd = -1
        self._at = 0  # of the next record, in the file
        self._block, self._start = b"", 0
        self._checked = False  # whether the block is a whole chunk with the right CRC

    def read_run(self, count: int, addresses: Mapping[bytes, _AddressT]) -> tuple[int, list[_AddressT], list[bytes]]:
        """Up to `count` plain messages without a gap, as columns: first position, addresses, frames.

        A message is plain when it was never delivered and has neither deadline nor marks. Both columns are empty where
        the next message is not plain, or its chunk is incomplete or damaged: then `read` gives the message, or reports
        damage.
        """
        self._log.apply()
        while True:
            segment = self._segment
            if segment is None or self._at >= segment.size or not segment.left:
                if not self._move():
                    break
                continue
            if self._at - self._start >= len(self._block):
                self._fill(segment)
            if not self._checked:
                break
            block, start = self._block, self._start
            at, first = skip_records(block, self._at - start, self.position)
            inside, until = segment.settled.span(first)
            while inside and at < len(block):
                at, first = skip_records(block, at, until)
                inside, until = segment.settled.span(first)
            self._at, self.position = start + at, first
            if at == len(block):
                continue
            if first < segment.delivered or (segment.returned and first <= max(segment.returned)):
                break
            at, found, frames = read_run(block, at, first, min(until, first + count), addresses)
            self._at, self.position = start + at, first + len(found)
            return first, found, frames
        return self.position, [], []

    def read(self, count: int, limit: int = BLOCK_BYTES) -> list[Stored]:
        """Read up to `count` messages, fewer when they reach `limit` bytes; [] at the end of the flushed ones."""
        log = self._log
        log.apply()
        found: list[Stored] = []
        while len(found) < count and limit > 0:
            segment = self._segment
            if segment is None or self._at >= segment.size or not segment.left:
                if not self._move():
                    break
                continue
            block, start = self._block, self._at - self._start
            end, self.position, limit = read_records(
                block, start, segment.key, self.position, segment.delivered, segment.settled, segment.returned,
                found, count, limit,
            )  # fmt: skip
            if end == start:
                self._fill(segment)
            else:
                self._at += end - start
        return found

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._log.files.close(fd)
        self._segment = None

    def _move(self) -> bool:
        """Move on to the segment that contains `position`. Returns whether there is anything to read there."""
        if self._segment is not None:
            self.position = max(self.position, self._segment.end)
        segment = self._log.segment_from(self.position)
        if segment is None:
            return False
        self.close()
        self._fd = self._log.files.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self._segment = segment
        self._at = segment.place(self.position)
        self._block, self._start, self._checked = b"", 0, False
        return True

    def _fill(self, segment: Segment) -> None:
        """Read the next block, which begins with a whole record; damaged bytes are skipped and reported."""
        chunk, check = segment.chunk(self._at)
        if chunk > MAX_CHUNK:
            chunk, check = BLOCK_BYTES, None
        for size in (chunk, segment.size - self._at):  # a record may be larger than a block
            self._load(segment, size)
            self._checked = check is not None and len(self._block) == size and crc32(self._block) == check
            if self._checked or record_end(self._block, 0, segment.key):
                return
        start = find_record(self._block, 0, segment.key)
        if start >= 0:
            self._log.damaged(segment, self._at, start, self.position, position_of(self._block, start))
            self._at += start
        else:
            self._log.damaged(segment, self._at, len(self._block), self.position, segment.end)
            self._at, self.position = segment.size, segment.end

    def _load(self, segment: Segment, size: int) -> None:
        files = self._log.files
        size = min(size, segment.size - self._at)
        block = files.pread(self._fd, size, self._at)
        while len(block) < size and (more := files.pread(self._fd, size - len(block), self._at + len(block))):
            block += more
        self._block, self._start = block, self._at
