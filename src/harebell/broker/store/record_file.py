"""A file of records, each written behind the last one: what is known is what they say from first to last.

    CRC-32 of the rest (u32) | length of what follows (u32) | kind (u8) | whose it is (8 random bytes) | the payload

Kinds are 1 to 15, so that few bytes look like the head of a record that are none.
A torn end is cut. A whole record behind what is none is damage, and so is another size than at a clean stop. Who keeps
the file writes it anew when it has grown long.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from harebell.broker.store.checksums import Checksums
from harebell.broker.store.files import Files, read_all, write_all
from harebell.broker.store.group_commit import GroupCommit

__all__ = ["Record", "RecordFile", "record"]

_HEAD: Final = Struct(">II")
_KIND: Final = Struct(">B8s")
_WRITE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_NEW: Final = _WRITE | os.O_TRUNC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Record(NamedTuple):
    kind: int
    key: bytes
    payload: bytes


def record(kind: int, key: bytes, payload: bytes = b"") -> bytes:
    """A record in bytes; `key` has eight of them, and `kind` is 1 to 15."""
    rest = _KIND.pack(kind, key) + payload
    length = len(rest).to_bytes(4, "big")
    return crc32(length + rest).to_bytes(4, "big") + length + rest


class RecordFile:
    """The file at `path`. `size` is in bytes; `expected` is that of the last stop, where it is known."""

    def __init__(self, path: Path, commit: GroupCommit, files: Files, expected: int | None = None) -> None:
        self.size = 0
        self._expected = expected
        self._path, self._folder = str(path), str(path.parent)
        self._commit, self._files = commit, files
        self._fd = -1

    def __str__(self) -> str:
        return self._path

    def read(self) -> tuple[list[Record], int, str]:
        """The records, how many bytes of a torn one were at the end, and what the damage is, if there is any."""
        data, found, at = read_all(self._files, self._path), list[Record](), 0
        self.size = len(data)
        while at + _HEAD.size <= len(data):
            crc, length = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            if end > len(data) or length < _KIND.size or crc32(data[at + 4 : end]) != crc:
                break
            kind, key = _KIND.unpack_from(data, at + _HEAD.size)
            found.append(Record(kind, key, data[at + _HEAD.size + _KIND.size : end]))
            at = end
        damage = ""
        if _is_damaged(data, at):
            damage = f"is damaged at byte {at}"
        elif self._expected is not None and at != self._expected:
            damage = (
                f"has {at} bytes of records, and had {self._expected} at the last stop" if data else "is gone or empty"
            )
        return found, len(data) - at, damage

    def append(self, data: bytes) -> int:
        """Write at the end. Returns the ticket of the sync that will cover it. OSError when the disk refuses."""
        ticket = self._open()
        write_all(self._files, self._fd, data, self.size)
        self.size += len(data)
        return max(ticket, self._commit.ticket(self._fd))

    def sync(self) -> None:
        """Wait until what was appended is on disk. OSError when that refuses."""
        if self._fd >= 0 and self._commit.ticket(self._fd):
            self._files.fdatasync(self._fd)

    def _open(self) -> int:
        """Open the file. Returns the ticket of the sync that covers its name in the folder, if it is new."""
        if self._fd >= 0:
            return 0
        new = not self.size
        self._fd = self._files.open(self._path, _WRITE, 0o640)
        return self._commit.hand_over(self._files.open(self._folder, _FOLDER)) if new else 0

    def rewrite(self, data: bytes) -> None:
        """Write the file anew, synced."""
        files, new = self._files, self._path + ".new"
        fd = files.open(new, _NEW, 0o640)
        try:
            write_all(files, fd, data, 0)
            files.fdatasync(fd)
        finally:
            files.close(fd)
        files.replace(new, self._path)
        folder = files.open(self._folder, _FOLDER)
        try:
            files.fsync(folder)
        finally:
            files.close(folder)
        self.close()
        self.size = len(data)

    def close(self) -> None:
        """Close the file, synced soon."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._commit.hand_over(fd)


def _is_damaged(data: bytes, at: int) -> bool:
    """Whether a whole record follows somewhere behind what is none.

    That may be a part of a record whose bytes look like the heads of others, so each checksum costs the same.
    """
    most = min(255, len(data) - at >> 24)
    # A length that is in the file, and a kind. Zeros, as a torn end has, are no length.
    heads = re.compile(rb"(?=(?!\0\0\0[\0-\x08])[\0-%b]...[\x01-\x0f])" % re.escape(bytes([most])), re.DOTALL)
    sums = Checksums(data)
    for head in heads.finditer(data, at + 5):
        begin = head.start()
        crc, length = _HEAD.unpack_from(data, begin - 4)
        end = begin + 4 + length
        if end <= len(data) and sums.of(begin, end) == crc:
            return True
    return False
