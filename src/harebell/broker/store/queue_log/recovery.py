"""Recovery of a queue's log after its process ended: it checks every record, cuts torn ends, and notes damage.

- A torn record at the end is cut and counted; a damaged one elsewhere is skipped and noted, and does not affect others.
- Settlements without their segment are removed, and so are unfinished segments.
- A segment that is shorter than when it was finished has lost whole records: that is noted as damage too.

The module reads and truncates files and settles nothing: the log takes over what it finds.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Final

from harebell.broker.store.files import Damage, Files, read_all, remove
from harebell.broker.store.queue_log.records import (
    HEADER_BYTES,
    NUMBERED,
    SETTLEMENT_BYTES,
    TRANSIENT,
    Header,
    Key,
    find_record,
    pass_numbered,
    pass_records,
    position_of,
    read_header,
    read_settlements,
    record_end,
)
from harebell.broker.store.queue_log.segment import Segment

__all__ = ["Recovery"]

_OLD: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Recovery:
    """The log in the folder `path`.

    segments       those that are left, in order; `changed` are those of them with settlements to write
    next_position  the position after the last stored one; `last_base` is the first position of the last file
    damages, cut   the unreadable parts, and the bytes of torn ends
    expires        whether any message has a deadline
    numbers        session and command of the messages of each segment that has any, as bytes
    `suspect`: the machine stopped, not only the process, so that any message may have been delivered. FileNotFoundError
    when the folder does not exist, OSError for files of a newer format, or files that cannot be read at all.
    """

    def __init__(self, path: str, files: Files, *, suspect: bool) -> None:
        self.segments: list[Segment] = []
        self.changed: list[Segment] = []
        self.damages: list[Damage] = []
        self.next_position = self.cut = 0
        self.expires = False
        self.numbers: dict[Segment, list[bytes]] = {}
        self._path, self._files = path, files
        names = files.listdir(path)
        bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
        self.last_base = bases[-1] if bases else 0
        kept = {f"{base:020}.settled" for base in bases}
        for name in names:  # of removed or unfinished segments
            if name.endswith((".settled", ".settled.new")) and name not in kept:
                remove(files, f"{path}/{name}")
        for base, following in pairwise((*bases, 0)):
            self._segment(base, following, suspect)

    def _segment(self, base: int, following: int, suspect: bool) -> None:
        """Recover one segment. `following` is the base of the next segment, 0 for the last one."""
        path = f"{self._path}/{base:020}.log"
        data = read_all(self._files, path)
        settlements = read_all(self._files, path[:-4] + ".settled")
        header = read_header(data, base, path)
        settled_header = read_header(settlements, base, path[:-4] + ".settled")
        self.next_position = max(self.next_position, base + 1)
        if header is None and settled_header is None:
            if following or len(data) > HEADER_BYTES:
                end = following or base + 1
                self._note_damage(path, 0, len(data), (base, end), end - base)
            else:
                self.cut += len(data)
                remove(self._files, path)
            return
        if header is None:
            self._note_damage(path, 0, HEADER_BYTES, (base, base), 0)
        else:
            self._check_previous(header)
        known = header or settled_header
        segment = Segment(self._path, base, known.key if known else Key.random())
        settled_key = settled_header.key if settled_header else None
        self._settlements(segment, settlements, settled_key)
        self._messages(segment, data, following, suspect)
        self.segments.append(segment)
        self.next_position = max(self.next_position, segment.end)

    def _check_previous(self, header: Header) -> None:
        """Check that the segment before has the length that it was finished with: else records may be missing."""
        if self.segments and self.segments[-1].base == header.previous:
            segment = self.segments[-1]
            missing = header.previous_size - segment.size
            if missing > 0:
                positions = (segment.end, header.base)
                self._note_damage(segment.path, segment.size, missing, positions, header.base - segment.end)

    def _settlements(self, segment: Segment, data: bytes, key: Key | None) -> None:
        if not data:
            return
        path, seed = segment.settled_path, segment.key.seed
        damaged: list[int] = []
        whole = HEADER_BYTES
        if key not in (None, segment.key):
            key, data = None, data[:HEADER_BYTES]  # from an earlier segment with the same first position
        at = HEADER_BYTES
        for settlement in read_settlements(data, seed):
            if settlement is None:
                damaged.append(at)
            else:
                segment.take(*settlement)
                whole = at + SETTLEMENT_BYTES
            at += SETTLEMENT_BYTES
        for at in damaged:
            if at < whole:
                self._note_damage(path, at, SETTLEMENT_BYTES, (segment.base, segment.base), 0)
        if key is None and whole > HEADER_BYTES:
            self._note_damage(path, 0, HEADER_BYTES, (segment.base, segment.base), 0)
        self.cut += max(0, len(data) - whole)
        segment.settled_size = whole if key is not None else 0
        if key is None:  # write it again, with its header
            segment.compact(self._files)

    def _messages(self, segment: Segment, data: bytes, following: int, suspect: bool) -> None:
        damages = len(self.damages)
        key, settled = segment.key, segment.settled
        numbers: list[bytes] = []
        position = segment.base  # the lowest position that the next record may have
        known = settled.end  # positions used before the end, whether or not their messages are there
        inside, until = False, 0
        at = HEADER_BYTES
        while at < len(data):
            end = record_end(data, at, key)
            if not end:
                start = find_record(data, at + 1, key)
                gap = position_of(data, start) if start >= 0 else following
                if not gap:
                    break
                lost = settled.missing(position, gap)
                self._note_damage(segment.path, at, (start if start >= 0 else len(data)) - at, (position, gap), lost)
                settled.add(position, gap)  # they are not counted, so they may not be settled again
                if start < 0:
                    position = gap
                    break
                at = start
                continue
            here = position_of(data, at)
            if here >= until:
                inside, until = settled.span(here)
            if here > position:
                settled.add(position, here)
            segment.note(here, at)
            position = here + 1
            if data[at + 36] & TRANSIENT:
                if not inside:
                    settled.add(here, position)
                at = end
                continue
            if data[at + 36] & NUMBERED:
                at, position, expires = pass_numbered(data, at, segment.chunk_end, key, here, until, numbers)
            else:
                at, position, expires = pass_records(data, at, segment.chunk_end, key, here, until)
            if not inside:
                segment.left += position - here
                self.expires = self.expires or expires
        segment.end = max(position, known, segment.delivered)
        if segment.end > position:
            settled.add(position, segment.end)
        if numbers:
            self.numbers[segment] = numbers
        if suspect:
            segment.deliver(segment.end)
            self.changed.append(segment)
        segment.size = len(data)
        if not following:
            self._cut_tail(segment, at)
        if len(self.damages) == damages:
            segment.check(data)

    def _cut_tail(self, segment: Segment, end: int) -> None:
        """Cut what is torn behind the last whole record, which ends at `end`."""
        size = segment.size
        if size < HEADER_BYTES:
            self.cut += size
        elif end < size:
            self.cut += size - end
            segment.size = end
            fd = self._files.open(segment.path, _OLD, 0o640)
            try:
                self._files.ftruncate(fd, end)
            finally:
                self._files.close(fd)

    def _note_damage(self, path: str, at: int, size: int, positions: tuple[int, int], lost: int) -> None:
        self.damages.append(Damage(path, at, size, positions, lost))
