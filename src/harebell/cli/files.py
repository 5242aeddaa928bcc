"""The files that a user names for a command to read or write.

A file that cannot be written whole stays as it was: on a full disk an old export is worth more than half of a new one.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["why_unread", "write_file"]

IN_PLACE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)  # of a folder, or of a mount
BEGINNING: Final = 40  # characters of the file's name in that of the temporary one: a name has at most 255 bytes


def why_unread(error: OSError | UnicodeDecodeError) -> str:
    """Why a file was not read, in words that leave out its name."""
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)


def write_file(path: Path | str, text: str, *, private: bool = False) -> None:
    """Write the text, in UTF-8, as the content of the file, in place of an older one. OSError when that fails.

    An older file keeps its owner and its permissions; with `private` the file is for its owner alone. What is no file
    of a disk, such as a pipe or /dev/null, is written to; and so is a file in whose place no other can be put, because
    its folder may not be written or it is a mount of its own.
    """
    path = Path(path)
    try:
        older = path.stat()
    except FileNotFoundError:
        older = None
    if older is None:
        _write_beside(path, text, None, private=private)
        return
    if not stat.S_ISREG(older.st_mode):
        _write_into(path, text)
        return
    if not os.access(path, os.W_OK):  # a new name in its place would need no such permission
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    try:
        _write_beside(path, text, older, private=private)
    except OSError as error:
        if error.errno not in IN_PLACE:
            raise
        if private:
            path.chmod(0o600)
        _write_into(path, text)


def _write_into(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)


def _write_beside(path: Path, text: str, older: os.stat_result | None, *, private: bool) -> None:
    """Write a new file, and put it in the place of the older one."""
    place = Path(os.path.realpath(path))  # a link stays; the file behind it is replaced
    temporary = place.with_name(f".{place.name[:BEGINNING]}.{os.getpid()}.tmp")
    mode = 0o666 if older is None and not private else 0o600
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # some disks say only now that they are full
        if older is not None:
            with suppress(PermissionError):  # only root gives files away
                os.chown(temporary, older.st_uid, older.st_gid)
            temporary.chmod(0o600 if private else stat.S_IMODE(older.st_mode))
        temporary.replace(place)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the one that the user named
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
