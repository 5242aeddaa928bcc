"""The operating system's file calls that the store uses, as a protocol, so that tests can replace it by a failing disk.

The `os` module implements it. Every call may raise OSError; `pwrite` may write less than its data. Few of these errors
say that a file is damaged (`shows_damage`): the others say something of this process or this machine, and the same
file may be whole for the next one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple, Protocol

__all__ = ["Damage", "Files", "is_full", "read_all", "remove", "shows_damage", "status", "write_all"]

_READ: Final = 8 * 1024 * 1024
# Nothing is there, something else than a file is there, a link leads nowhere, or the disk has lost what is there.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_DAMAGE: Final = (
    *_GONE, errno.EISDIR, errno.ENXIO, errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)
)  # fmt: skip


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
    """Bytes of a file that cannot be read.

    `positions`: (first, end) of the messages that the bytes may have contained, for a segment; in a stream they are
    offsets.

    `lost` is the greatest number of messages that may be lost: positions there that were not settled. For a file of
    settlements it is 0: the messages that they settled may be delivered again.
    """

    path: str
    at: int
    size: int
    positions: tuple[int, int]
    lost: int


def write_all(files: Files, fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of the data. After an OSError any part may be written: a retry writes to the same place."""
    done = files.pwrite(fd, data, offset)
    while done < len(data):
        more = files.pwrite(fd, memoryview(data)[done:], offset + done)
        if not more:
            raise OSError(errno.EIO, "nothing was written")
        done += more


def shows_damage(error: OSError) -> bool:
    """Whether the error says that the file itself is damaged or gone. One without a number is of its contents."""
    return error.errno is None or error.errno in _DAMAGE


def is_full(error: OSError) -> bool:
    """Whether the error says that there is no room on the disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def status(path: Path) -> os.stat_result | None:
    """What is there, behind links; None for nothing. OSError when that cannot be known, as `Path.exists` hides."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return None


def read_all(files: Files, path: str) -> bytes:
    """The contents of the whole file; b"" when it does not exist."""
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
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # which file is it?
    finally:
        files.close(fd)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def remove(files: Files, path: str) -> None:
    """Unlink the file, if it exists."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        pass
