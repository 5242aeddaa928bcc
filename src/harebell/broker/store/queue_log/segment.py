"""One segment of a queue's log in memory: its size, its settled positions, and the settlements not written yet.

A message takes no memory here. Settled positions are ranges; positions without a message (transient ones are not
stored) count as settled, so that a segment is finished when the ranges cover it.

The index cuts the file into chunks that begin with a record. The segment has the CRC-32 of each, so that a reader of a
whole chunk checks it with one call, and not record by record.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final
from zlib import crc32

from harebell.broker.store.files import Files, write_all
from harebell.broker.store.queue_log.pieces import Piece
from harebell.broker.store.queue_log.ranges import Ranges
from harebell.broker.store.queue_log.records import (
    DELIVERED,
    HEADER_BYTES,
    RETURNED,
    SETTLED,
    SETTLEMENT_BYTES,
    Header,
    Key,
    encode_header,
    encode_settlement,
)  # fmt: skip

__all__ = ["Segment"]

INDEX_BYTES: Final = 256 * 1024  # a search for a position reads at most so much before it, or one batch
COMPACT_BYTES: Final = 1024 * 1024  # of settlements above which they are rewritten, if that makes them much smaller


class Segment:
    """One segment: `base` and `end` are positions, `size` is the file's, `left` counts the messages not settled."""

    __slots__ = (
        "base", "checks", "delivered", "end", "index", "key", "left", "numbered", "path", "returned", "settled",
        "settled_path", "settled_size", "size", "unwritten",
    )  # fmt: skip

    def __init__(self, folder: str, base: int, key: Key) -> None:
        self.base = self.end = base
        self.key = key
        self.path = f"{folder}/{base:020}.log"
        self.settled_path = f"{folder}/{base:020}.settled"
        self.size = HEADER_BYTES
        self.settled_size = 0  # of the file of settlements; 0: there is none
        self.left = 0
        self.numbered = 0  # the sync that covers the last message that a session sent; 0: there is none
        self.delivered = base  # all messages before this position were delivered
        self.settled = Ranges()
        self.returned: dict[int, int] = {}
        self.unwritten: list[bytes] = []  # settlements
        self.index = (array("Q"), array("Q"))  # positions, and the places of their records in the file
        self.checks = array("I")  # of the chunks that begin there; empty after damage

    def note(self, position: int, at: int) -> None:
        """Note that the record of `position` begins at `at`."""
        positions, places = self.index
        if not places or at - places[-1] >= INDEX_BYTES:
            positions.append(position)
            places.append(at)

    @property
    def chunk_end(self) -> int:
        """The place in the file where the last chunk ends: the first record at or after it begins another."""
        places = self.index[1]
        return places[-1] + INDEX_BYTES if places else self.size

    def extend(self, position: int, size: int) -> int:
        """Note that records of `size` bytes are written, the first of them with that position.

        Returns the number of the chunk that they begin, for `continue_check`; 0: they begin none.
        """
        places = self.index[1]
        chunks = len(places)
        self.note(position, self.size)
        self.size += size
        return chunks + 1 if len(places) > chunks else 0

    def continue_check(self, begun: int, pieces: Iterable[Piece]) -> None:
        """Continue the check of the last chunk with the pieces added to it, which may have `begun` this one."""
        checks = self.checks
        if begun and len(checks) == begun - 1:
            checks.append(0)
        if checks:
            for piece in pieces:
                checks[-1] = piece.continued(checks[-1])

    def check(self, data: bytes) -> None:
        """Compute the checks of the chunks: `data` is the whole file, and all its records are right."""
        places = self.index[1]
        view = memoryview(data)[: self.size]
        self.checks = array("I", (crc32(view[at:end]) for at, end in pairwise((*places, self.size))))

    def chunk(self, at: int) -> tuple[int, int | None]:
        """The bytes left in the chunk from `at` on, and its CRC-32 if it begins there and is known."""
        places, checks = self.index[1], self.checks
        number = bisect_left(places, at)
        if checks and number < len(places) and places[number] == at:
            end = places[number + 1] if number + 1 < len(places) else self.size
            return end - at, checks[number]
        return (places[number] if number < len(places) else self.size) - at, None

    def place(self, position: int) -> int:
        """The place in the file where a search for a position begins."""
        positions, places = self.index
        at = bisect_right(positions, position)
        return places[at - 1] if at else HEADER_BYTES

    def settle(self, first: int, end: int) -> None:
        """Settle messages from `first` to before `end`, all of this segment."""
        new = self.settled.add(first, end)
        if not new:
            return
        self.left -= new
        self.unwritten.append(encode_settlement(SETTLED, first, end - first, self.key.seed))
        returned = self.returned
        if returned:
            for position in range(first, end) if end - first < len(returned) else tuple(returned):
                if first <= position < end:
                    returned.pop(position, None)

    def deliver(self, upto: int) -> None:
        if upto > self.delivered:
            self.delivered = upto
            if self.left:
                self.unwritten.append(encode_settlement(DELIVERED, upto, 0, self.key.seed))

    def give_back(self, position: int, count: int) -> None:
        if self.returned.get(position) != count and not self.settled.span(position)[0]:
            self.returned[position] = count
            self.unwritten.append(encode_settlement(RETURNED, position, count, self.key.seed))

    def take(self, kind: int, position: int, number: int) -> None:
        """Apply a settlement from the segment's file."""
        if kind == SETTLED:
            self.settled.add(position, position + number)
        elif kind == DELIVERED:
            self.delivered = max(self.delivered, position)
        elif kind == RETURNED:
            self.returned[position] = number

    def write_settlements(self, files: Files, fd: int) -> None:
        """Write the settlements not written yet; after an OSError they remain unwritten."""
        data = b"".join(self.unwritten)
        if not self.settled_size:
            data = encode_header(Header(self.base, self.key), self.settled_path) + data
        write_all(files, fd, data, self.settled_size)
        self.settled_size += len(data)
        self.unwritten.clear()

    @property
    def bloated(self) -> bool:
        """Whether the settlements should be rewritten."""
        least = HEADER_BYTES + SETTLEMENT_BYTES * (len(self.settled) + len(self.returned) + 1)
        return self.settled_size > COMPACT_BYTES and self.settled_size > 4 * least

    def compact(self, files: Files) -> None:
        """Rewrite the settlements in as few records as possible; the new file replaces the old when it is on disk."""
        seed = self.key.seed
        parts = [
            encode_header(Header(self.base, self.key), self.settled_path),
            encode_settlement(DELIVERED, self.delivered, 0, seed),
        ]
        parts += (encode_settlement(SETTLED, first, end - first, seed) for first, end in self.settled)
        parts += (encode_settlement(RETURNED, position, count, seed) for position, count in self.returned.items())
        data = b"".join(parts)
        fd = files.open(self.settled_path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            write_all(files, fd, data, 0)
            files.fdatasync(fd)
        finally:
            files.close(fd)
        files.replace(self.settled_path + ".new", self.settled_path)
        self.settled_size = len(data)
