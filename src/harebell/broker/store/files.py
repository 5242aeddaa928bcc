"""What the store asks of an operating system: a seam, so that tests can put a failing disk in its place.

The `os` module is one. Every call may raise OSError; `pwrite` may write less than it was given.
"""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple, Protocol

__all__ = ["Damage", "Files", "read_all", "remove", "write_all"]

_READ: Final = 8 * 1024 * 1024


class Files(Protocol):
    def open(self, path: str, flags: int, mode: int = ..., /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def lseek(self, fd: int, offset: int, whence: int, /) -> int: ...
    def pread(self, fd: int, length: int, offset: int, /) -> bytes: ...
    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int: ...
    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def replace(self, source: str, destination: str, /) -> None: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def mkdir(self, path: str, mode: int = ..., /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...


class Damage(NamedTuple):
    """Bytes of a file that cannot be read. `positions`: (first, end) of what may have stood there, for a segment; in a
    stream they are offsets.

    `lost` is the most messages that may be lost: positions there that were not settled. For a file of settlements it
    is 0: what they settled may come again.
    """

    path: str
    at: int
    size: int
    positions: tuple[int, int]
    lost: int


def write_all(files: Files, fd: int, data: bytes, offset: int) -> None:
    """Write all of it there. After an OSError any part may be written: a second try writes to the same place."""
    done = files.pwrite(fd, data, offset)
    while done < len(data):
        more = files.pwrite(fd, memoryview(data)[done:], offset + done)
        if not more:
            raise OSError(errno.EIO, "nothing was written")
        done += more


def read_all(files: Files, path: str) -> bytes:
    """The whole file; b"" when there is none."""
    try:
        fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        parts: list[bytes] = []
        size = 0
        while part := files.pread(fd, _READ, size):
            parts.append(part)
            size += len(part)
    finally:
        files.close(fd)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def remove(files: Files, path: str) -> None:
    """Unlink the file, if there is one."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        pass
