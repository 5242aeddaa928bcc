"""The data folder of a broker: made when missing, and held against every other broker."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final, TextIO

__all__ = ["hold_folder"]

LOCK: Final = "lock"


def hold_folder(folder: Path) -> TextIO:
    """Make the folder and hold it until the returned file is closed; the kernel lets go of it when the process dies.

    OSError when it cannot be used; BlockingIOError when another broker holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another broker", os.fspath(folder)) from error
        raise
    return lock
