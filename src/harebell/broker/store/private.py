"""What the broker writes is for its own user only: it has hashes of passwords, and messages.

Folders are 0700 and files 0600, whatever the umask of the process is. A data folder that was open to others, as earlier
versions made it, is closed with everything in it when a broker starts on it. Links are left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["FILE", "FOLDER", "close_to_others", "is_open_to_others", "make_private", "private_opener"]

FOLDER: Final = 0o700
FILE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a new file is the user's alone."""
    return os.open(path, flags, FILE)


def make_private(path: Path) -> None:
    """Make an empty file, for a library that would make it open to others. FileExistsError when it is there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE))


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner have any access to the file or folder. A link has none of its own."""
    mode = path.lstat().st_mode
    return not stat.S_ISLNK(mode) and bool(mode & _OTHERS)


def close_to_others(folder: Path) -> int:
    """Take the access of others from the folder and everything in it; returns how many there were of them.

    A folder that was open to them gets all of FOLDER: `chmod 644 *` takes the way into it from its owner too.

    Raises PermissionError when one of them belongs to another user.
    """
    count = 0
    for path in (folder, *_below(folder)):
        if is_open_to_others(path):
            mode = path.lstat().st_mode
            path.chmod(FOLDER if stat.S_ISDIR(mode) else stat.S_IMODE(mode) & ~_OTHERS)
            count += 1
    return count


def _below(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        yield from (Path(above, name) for name in (*folders, *files))
