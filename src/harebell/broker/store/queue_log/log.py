"""The log of one durable queue: messages in segment files of 8 MiB, and a file of settlements beside each.

- Positions are the queue's, and grow. Not all are stored: transient messages are not, nor are messages that were
  settled in the batch in which they arrived.
- A batch is written at `flush`, with one write for the messages and one per segment for the settlements in it. Only
  messages need a sync. Settlements are written, so they survive the end of the process; a power cut may lose them, and
  then a message is delivered again, marked as redelivered.
- A segment is unlinked when all its messages are settled, wherever it is in the log. Its settlements are unlinked
  later, when the folder without the segment is on disk: otherwise a power cut could restore the messages without them.
- Messages that sessions sent have the numbers of their commands: after a kill a command that is sent again is known by
  them. So they are written though they were settled in the batch, and their segment stays until the positions of the
  sessions are on disk (`GroupCommit.covered`).
- A damaged record does not affect others (`records`); lost messages are reported. A torn end is cut, and reported
  separately.
- Large messages, and batches that follow one which is not written yet, are written by the group commit's thread, in
  their order. A reader waits for them.
- OSError from `flush` or `read`: the log's state matches what was written, and the same call may be tried again when
  the disk has room.

Memory holds a few numbers per segment and the ranges of settled positions; no message. The log knows neither queues nor
protocols, and it does not sync (`group_commit` does). The format of the files is in `records`, recovery in
`recovery`, reading in `cursor`.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final
from zlib import crc32

from harebell.broker.store.files import Damage, Files, remove, write_all
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.queue_log.cursor import QueueCursor
from harebell.broker.store.queue_log.pieces import LARGE, LATE, Piece, Unchecked, combined, write_pieces
from harebell.broker.store.queue_log.records import (
    FIELDS,
    HEAD,
    NUMBERED,
    TRANSIENT,
    Header,
    Key,
    encode_header,
)  # fmt: skip
from harebell.broker.store.queue_log.recovery import Recovery
from harebell.broker.store.queue_log.segment import Segment

__all__ = ["SEGMENT_BYTES", "QueueLog"]

SEGMENT_BYTES: Final = 8 * 1024 * 1024
RETIRED: Final = 2  # segments that one flush unlinks: the file system takes some milliseconds to free one
FOR_GOOD: Final = 1 << 62  # a sync that never comes: a recovered segment stays until the next start
_pack_head, _pack_fields = HEAD.pack, FIELDS.pack
_BASE: Final = attrgetter("base")
_POSITION: Final = itemgetter(0)
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_OLD: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _forget(numbers: list[bytes]) -> bool:
    return False


class QueueLog:
    """The log in the folder `path`, which is made with the first message.

    If the folder exists, `recover` is called first. `next_position` follows the last stored one; `count` is the number
    of messages left, `damages` and `cut` (bytes of torn ends) are what could not be read; `expires`: some of the
    recovered messages have a deadline.
    """

    def __init__(
        self, path: str | os.PathLike[str], commit: GroupCommit, *, segment_bytes: int = SEGMENT_BYTES,
        files: Files = os,
    ) -> None:  # fmt: skip
        self.path = os.fspath(path)
        self.next_position = 0
        self.damages: list[Damage] = []
        self.cut = 0
        self.expires = False
        self._commit, self._files, self._segment_bytes = commit, files, segment_bytes
        self._segments: list[Segment] = []
        # The batch: position, address, frames, expiry, flags and marks of each message, ...
        self._batch: list[tuple[int, bytes, bytes, int, int, bytes]] = []
        self._numbered = False  # whether sessions sent any of these
        self._tried = False  # whether any part of it may be in the file already
        self._key = Key.random()  # of the segment that is written
        # ... and the settlements in it.
        self._settled: list[tuple[int, int]] = []
        self._settled_first = self._settled_end = 0
        self._delivered = self._known_delivered = 0
        self._returned: list[tuple[int, int]] = []
        self._changed: dict[Segment, None] = {}  # segments that have settlements to write
        # Files
        self._tail: Segment | None = None  # the segment that is written
        self._fd = -1  # its file
        self._ticket = 0  # of written messages, until a flush succeeds
        self._late: _Late = _NOTHING_LATE  # the last batch that another thread writes
        self._new_folders: dict[str, int] = {}  # folders with a new name in them, which must be synced too
        self._settled_fd = -1
        self._settled_of: Segment | None = None
        self._unsynced: dict[Segment, None] = {}  # segments with settlements that were written but not synced
        self._recovered: list[Segment] = []  # segments of an earlier process, which may not have synced them
        self._renamed = False  # whether names in the folder have changed since it was synced
        self._unsure = False  # whether the earlier process may not have synced the folder and its files
        # All settled, but the positions of sessions are not on disk, or the last flush had unlinked enough.
        self._held: dict[Segment, None] = {}
        self._retirable = RETIRED  # segments that this flush may still unlink
        self.unfinished = False  # whether it had to leave some for another one
        self._retired: list[str] = []  # settlements of segments that were unlinked
        self._leaving: tuple[int, list[str]] = (0, [])  # those of them that may be unlinked after that sync

    @property
    def count(self) -> int:
        return sum(segment.left for segment in self._segments) + len(self._batch)

    @property
    def first(self) -> int:
        """The position of the first message that is written and not settled; the next new one when there is none."""
        for segment in self._segments:
            if segment.left:
                settled, until = segment.settled.span(segment.base)
                return until if settled else segment.base
        return self.next_position

    @property
    def size(self) -> int:
        """The size of the log's files on disk, in bytes."""
        return sum(each.size + each.settled_size for each in self._segments)

    # -- the batch -------------------------------------------------------------------------------------------------

    def append(
        self, position: int, address: bytes, frames: bytes, expiry: int = 0, flags: int = 0, marks: bytes = b""
    ) -> None:
        """Add a message to the batch. Never fails; `position` is greater than all before.

        address  exchange and routing key, as short strings
        frames   header and body frames, channel 1
        expiry   its deadline in ms since 1970; 0: none
        flags    TRANSIENT, NUMBERED, or 0
        marks    up to 65,535 bytes that the queue reads back
        """
        self.next_position = position + 1
        self._batch.append((position, address, frames, expiry, flags, marks))
        if flags == NUMBERED:
            self._numbered = True

    def append_all(self, batch: list[tuple[int, bytes, bytes, int, int, bytes]], *, numbered: bool) -> None:
        """As `append`, for several messages: the tuples are its arguments. `numbered`: some of them are NUMBERED."""
        self.next_position = batch[-1][0] + 1
        self._batch += batch
        self._numbered = self._numbered or numbered

    def settle(self, position: int, count: int = 1) -> None:
        """Settle `count` messages from `position` on; positions that were not stored may be among them."""
        if position == self._settled_end:
            self._settled_end += count
        else:
            if self._settled_end:
                self._settled.append((self._settled_first, self._settled_end))
            self._settled_first, self._settled_end = position, position + count

    def settle_many(self, positions: Sequence[int]) -> None:
        """Settle the messages at these positions, which are in order and without duplicates."""
        if not positions:
            return
        first, last = positions[0], positions[-1]
        if last - first + 1 == len(positions):
            self.settle(first, len(positions))
        else:
            for position in positions:
                self.settle(position)

    def delivered(self, upto: int) -> None:
        """Note that all messages before this position have been delivered, or may have been."""
        self._delivered = max(self._delivered, upto)

    def returned(self, position: int, count: int) -> None:
        """Note that a message came back; `count` is a number of the caller's, which the records give back."""
        self._returned.append((position, count))

    # -- writing ---------------------------------------------------------------------------------------------------

    def returns(self) -> Iterator[tuple[int, int]]:
        """Messages that came back and are there still: place, and the number that `returned` noted last."""
        for segment in self._segments:
            for position, number in segment.returned.items():
                if not segment.settled.span(position)[0]:
                    yield position, number

    def flush(self) -> int:
        """Write the batch. Returns the ticket of the sync that will cover its messages, 0 when none need one."""
        self._retirable, self.unfinished = RETIRED, False
        if self._batch:
            if self._settled_end and not self._tried and not self._numbered:
                self._leave_out_settled()
            if self._batch:
                self._write_messages()
        if self._settled_end or self._delivered or self._returned or self._settled:
            self._apply()
        if self._changed or self._held:
            self._write_settlements()
        ticket, self._ticket = self._ticket, 0
        return ticket

    def _leave_out_settled(self) -> None:
        """Take out of the batch the messages that were settled in it."""
        batch = self._batch
        for first, end in (*self._settled, (self._settled_first, self._settled_end)):
            if end > batch[0][0]:
                del batch[bisect_left(batch, first, key=_POSITION) : bisect_left(batch, end, key=_POSITION)]
                if not batch:
                    return

    def _encode(self) -> tuple[list[Piece | Unchecked], list[tuple[int, int]], bool]:
        """The records of the batch, the positions between them without a message, and whether one must be durable."""
        mark, seed = self._key
        now, following = time.time_ns() // 1_000_000, self._batch[0][0]
        parts: list[bytes] = []
        pieces: list[Piece | Unchecked] = []
        holes: list[tuple[int, int]] = []
        durable = False
        for position, address, frames, expiry, flags, marks in self._batch:
            if position != following:
                holes.append((following, position))
            following = position + 1
            start = _pack_fields(position, now, expiry, flags, len(address), len(marks)) + address + marks
            if len(frames) < LARGE:
                parts += (_pack_head(mark, len(start) + len(frames), crc32(frames, crc32(start, seed))) + start, frames)
            elif len(frames) >= LATE:
                pieces.append(Unchecked(mark, seed, b"".join(parts), start, frames))
                parts = []
            else:
                check = crc32(frames)
                whole = combined(crc32(start, seed), check, len(frames))
                parts.append(_pack_head(mark, len(start) + len(frames), whole) + start)
                pieces += (Piece.of(b"".join(parts)), Piece(frames, check))
                parts = []
            if flags != TRANSIENT:
                durable = True
        if parts:
            pieces.append(Piece.of(b"".join(parts)))
        return pieces, holes, durable

    def _write_messages(self) -> None:
        if self._unsure:
            self._open_folder(str(Path(self.path).parent))
            self._open_folder(self.path)
        pieces, holes, durable = self._encode()
        tail, batch, self._tried = self._tail, self._batch, True
        first = batch[0][0]
        header = b""
        if tail is None:
            tail = Segment(self.path, first, self._key)
            if self._fd < 0:
                self._begin(tail.path)
            before = self._segments[-1] if self._segments else None
            header = encode_header(
                Header(first, tail.key, before.base, before.size) if before else Header(first, tail.key), tail.path
            )
        elif self._fd < 0:
            self._fd = self._files.open(tail.path, _OLD, 0o640)
        now = [piece for piece in pieces if isinstance(piece, Piece)] if self._late.done else []
        late = len(now) < len(pieces)
        at = tail.size
        if late:
            if header:
                write_all(self._files, self._fd, header, 0)
        else:
            write_all(self._files, self._fd, header + now[0].data, at - len(header))
            write_pieces(self._files, self._fd, now[1:], at + now[0].size)
        if header:
            self._tail = tail
            self._segments.append(tail)
        elif first > tail.end:
            tail.settled.add(tail.end, first)
        for hole in holes:
            tail.settled.add(*hole)
        begun = tail.extend(first, sum(piece.size for piece in pieces))
        tail.left += len(batch)
        tail.end = batch[-1][0] + 1
        full, fd, self._tried = tail.size >= self._segment_bytes, self._fd, False
        batch.clear()
        ticket = 0
        if late:
            self._late = _Late(self._files, fd, at, tail, begun, pieces)
            ticket = self._commit.write(fd, self._late.write)
        else:
            tail.continue_check(begun, now)
        if full:
            self._tail, self._fd, self._key = None, -1, Key.random()
            ticket = self._commit.hand_over(fd)
            self._changed.setdefault(tail)  # all of it may be settled already
        elif durable and not late:
            ticket = self._commit.ticket(fd)
        while self._new_folders:
            ticket = max(ticket, self._commit.hand_over(self._new_folders.popitem()[1]))
            self._part_with_retired(ticket)
        self._unsure = False
        if self._numbered:
            self._numbered, tail.numbered = False, max(tail.numbered, ticket)
        if durable:
            self._ticket = max(self._ticket, ticket)

    def _begin(self, path: str) -> None:
        """Create a segment's file, and the folder if it is missing."""
        try:
            self._open_folder(self.path)
        except FileNotFoundError:
            self._open_folder(str(Path(self.path).parent))
            self._files.mkdir(self.path, 0o750)
            self._open_folder(self.path)
        self._fd = self._files.open(path, _NEW, 0o640)

    def _open_folder(self, path: str) -> None:
        if path not in self._new_folders:
            self._new_folders[path] = self._files.open(path, _FOLDER)

    def _apply(self) -> None:
        """Apply the batch's settlements, deliveries and returns to the segments, as far as the messages are written."""
        spans = self._settled
        if self._settled_end:
            spans.append((self._settled_first, self._settled_end))
            self._settled_first = self._settled_end = 0
        written = self._segments[-1].end if self._segments else 0
        later: list[tuple[int, int]] = []
        for first, end in spans:
            for segment in self._between(first, end):
                segment.settle(max(first, segment.base), min(end, segment.end))
                self._changed[segment] = None
            if self._batch and end > written:
                later.append((max(first, written), end))
        self._settled = later
        if self._delivered:
            for segment in self._between(self._known_delivered, self._delivered):
                segment.deliver(min(self._delivered, segment.end))
                self._changed[segment] = None
            self._known_delivered = max(self._known_delivered, min(self._delivered, written))
            if not self._batch or self._delivered <= written:
                self._delivered = 0
        returned, self._returned = self._returned, []
        for position, count in returned:
            if self._batch and position >= written:
                self._returned.append((position, count))
                continue
            for segment in self._between(position, position + 1):
                segment.give_back(position, count)
                self._changed[segment] = None

    def _between(self, first: int, end: int) -> Iterator[Segment]:
        """The segments with positions from `first` to before `end`."""
        segments = self._segments
        for at in range(max(0, bisect_right(segments, first, key=_BASE) - 1), len(segments)):
            segment = segments[at]
            if segment.base >= end:
                return
            if segment.end > first:
                yield segment

    def _write_settlements(self) -> None:
        for segment in tuple(self._held):
            if segment.numbered <= self._commit.covered:
                self._retire(segment)
                self._changed.pop(segment, None)
        for segment in tuple(self._changed):
            if not segment.left and segment is not self._tail and self._retire(segment):
                pass
            elif segment.unwritten:
                if segment is not self._settled_of:
                    self._close_settled()
                    self._settled_fd = self._files.open(segment.settled_path, _OLD, 0o640)
                    self._settled_of = segment
                segment.write_settlements(self._files, self._settled_fd)
                self._unsynced[segment] = None
                if segment.bloated:
                    self._close_settled()
                    segment.compact(self._files)
            del self._changed[segment]

    def _retire(self, segment: Segment) -> bool:
        """Unlink a segment with nothing left, or hold it while its numbers are needed. Returns whether it is gone."""
        if segment.numbered > self._commit.covered or not self._retirable:
            self._held[segment] = None
            self.unfinished = self.unfinished or not self._retirable
            return False
        self._retirable -= 1
        self._held.pop(segment, None)
        if segment is self._settled_of:
            self._close_settled()
        remove(self._files, segment.path)
        self._renamed = True
        self._segments.remove(segment)
        self._unsynced.pop(segment, None)
        if segment.settled_size:
            self._retired.append(segment.settled_path)
        return True

    def _part_with_retired(self, ticket: int) -> None:
        """Note that the sync of this ticket covers the folder, so that retired settlements may be unlinked after it."""
        self._renamed = False
        self._forget_retired()
        if not self._leaving[1]:
            self._leaving, self._retired = (ticket, self._retired), []

    def _forget_retired(self) -> None:
        """Unlink the settlements of segments whose removal is on disk."""
        ticket, paths = self._leaving
        if ticket <= self._commit.synced:
            while paths:
                remove(self._files, paths[-1])
                paths.pop()

    def sync_settled(self) -> int:
        """Sync the settlements too; returns the ticket. It is optional: see the rules above."""
        ticket = 0
        if self._unsynced or self._retired or self._renamed:
            ticket = self._commit.hand_over(self._files.open(self.path, _FOLDER))
            self._part_with_retired(ticket)
        while self._unsynced:
            segment = next(iter(self._unsynced))
            ticket = self._commit.hand_over(self._files.open(segment.settled_path, _OLD, 0o640))
            del self._unsynced[segment]
        return ticket

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, position: int) -> QueueCursor:
        """A cursor on the messages from that position on. It sees what is flushed."""
        return QueueCursor(self, position)

    def segment_from(self, position: int) -> Segment | None:
        """The segment that contains the position, or the first one after it."""
        for segment in self._between(position, 1 << 64):
            return segment
        return None

    def apply(self) -> None:
        """Apply the batch's settlements and returns, and let what was flushed be written, for readers."""
        if not self._late.done:
            self._commit.wait_written()
        if self._settled_end or self._returned:
            self._apply()

    # -- recovery --------------------------------------------------------------------------------------------------

    def recover(self, *, suspect: bool = False, note: Callable[[list[bytes]], bool] = _forget) -> None:
        """Recover the log: `count`, `first`, `expires`, `next_position`. Each record is read and checked.

        suspect  the machine stopped, not only the process, so that any message may have been delivered
        note     takes session and command of the messages of a segment; whether any of these may be sent again

        OSError for files of a newer format, or files that cannot be read at all.
        """
        try:
            found = Recovery(self.path, self._files, suspect=suspect)
        except FileNotFoundError:
            return
        self._segments, self.damages, self.cut = found.segments, found.damages, found.cut
        self.next_position, self.expires = found.next_position, found.expires
        for segment, numbers in found.numbers.items():
            if note(numbers):
                segment.numbered = FOR_GOOD
        self._changed.update(dict.fromkeys(found.changed))
        for segment in tuple(self._segments):
            if not segment.left:
                self._changed[segment] = None
        self._write_settlements()
        self._recovered = list(self._segments)
        self._renamed = True  # the earlier process may not have synced its unlinks
        self._unsure = True
        last = self._segments[-1] if self._segments else None
        if last is not None and last.base == found.last_base and last.size < self._segment_bytes:
            self._tail, self._key = last, last.key

    def damaged(self, segment: Segment, at: int, size: int, first: int, end: int) -> None:
        """Report damage that a reader found: bytes that recovery could still read, or that were written since."""
        lost = segment.settled.missing(first, end)
        if lost:
            self.damages.append(Damage(segment.path, at, size, (first, end), lost))
            self.settle(first, end - first)

    # -- life ------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Close the open files; the next write opens them again. The batch must be empty."""
        if self._held:
            self._retirable = RETIRED
            self._write_settlements()
        self._close_settled()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._commit.hand_over(fd)

    def close(self) -> None:
        """Write and sync everything; a log without messages loses its files."""
        self.flush()
        while self.unfinished:
            self.flush()
        if self._tail is not None and not self._tail.left:
            self._drop_tail()
        self.sync_recovered()
        self.sync_settled()
        self.rest()

    def sync_recovered(self) -> int:
        """Sync the recovered files, which the earlier process may not have done. Returns the ticket; 0: they are."""
        files, commit, ticket = self._files, self._commit, 0
        if self._recovered:
            for folder in (str(Path(self.path).parent), self.path):
                ticket = commit.hand_over(files.open(folder, _FOLDER))
            self._renamed = True
        while self._recovered:
            segment = self._recovered[-1]
            if segment in self._segments:
                ticket = commit.hand_over(files.open(segment.path, _OLD, 0o640))
                if segment.settled_size:
                    self._unsynced[segment] = None
            self._recovered.pop()
        return ticket

    def delete(self) -> Iterator[None]:
        """Remove the log and its folder, a file a step."""
        self._close_settled()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._commit.hand_over(fd)
        while self._new_folders:
            self._commit.hand_over(self._new_folders.popitem()[1])
        self._segments, self._tail = [], None
        self._held.clear()
        try:
            names = self._files.listdir(self.path)
        except FileNotFoundError:
            return
        for name in sorted(names):  # a segment before its settlements: a half-deleted log must not come back whole
            remove(self._files, f"{self.path}/{name}")
            yield
        self._files.rmdir(self.path)

    def _drop_tail(self) -> None:
        """End the segment that is being written, which has no messages left: the next message begins another."""
        tail, self._tail, self._key = self._tail, None, Key.random()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._commit.hand_over(fd)
        if tail is not None and self._retire(tail):
            self._changed.pop(tail, None)

    def _close_settled(self) -> None:
        if self._settled_fd >= 0:
            fd, self._settled_fd, self._settled_of = self._settled_fd, -1, None
            self._files.close(fd)

    @property
    def files(self) -> Files:
        return self._files


class _Late:
    """A batch that another thread writes. `done`: it is in the file, and the segment has its check."""

    def __init__(
        self, files: Files, fd: int, at: int, segment: Segment, begun: int, pieces: Sequence[Piece | Unchecked]
    ) -> None:
        self.done = not pieces
        self._files, self._fd, self._at = files, fd, at
        self._segment, self._begun, self._pieces = segment, begun, pieces

    def write(self) -> None:
        """Write the batch, without any of the log's own state. OSError when the disk refuses."""
        pieces = [part for piece in self._pieces for part in piece.pieces()]
        write_pieces(self._files, self._fd, pieces, self._at)
        self._segment.continue_check(self._begun, pieces)
        self._pieces = ()
        self.done = True


_NOTHING_LATE: Final = _Late(os, -1, 0, Segment("", 0, Key.random()), 0, ())
