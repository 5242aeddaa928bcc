"""The data folder of a broker: made when missing, held against every other broker, and how the last one left it.

The file `running` is there from a start to a clean stop, and names the boot of the machine: a broker that finds it
knows that the process before was killed, and whether the machine stopped with it. After a kill, everything that was
written is there; after a power cut, only what was synced.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, TextIO

__all__ = ["LastStop", "hold_folder", "make_folders", "mark_recovered", "mark_running", "mark_stopped"]

LOCK: Final = "lock"
RUNNING: Final = "running"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LastStop(Enum):
    """How the broker before ended. POWER_CUT is assumed where the machine cannot tell its boots apart."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_CUT = "power cut"


def hold_folder(folder: Path) -> TextIO:
    """Make the folder and hold it until the returned file is closed; the kernel lets go of it when the process dies.

    OSError when it cannot be used; BlockingIOError when another broker holds it.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        with suppress(PermissionError):  # to make a name there takes no right to read
            _sync(each.parent)
    lock = (folder / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another broker", os.fspath(folder)) from error
        raise
    return lock


def make_folders(folder: Path, *names: str) -> None:
    """These are in the folder, and on disk if they are new. OSError as the disk says."""
    missing = [name for name in names if not (folder / name).is_dir()]
    for name in missing:
        (folder / name).mkdir()
    if missing:
        _sync(folder)


def mark_running(folder: Path, *, boot_id: Path = BOOT_ID) -> LastStop:
    """Note that a broker runs on the folder, which it holds; how the one before ended. OSError as the disk says.

    What a power cut has left is noted as that until it is recovered: `mark_recovered`.
    """
    try:
        before = (folder / RUNNING).read_text()
    except FileNotFoundError:
        _write_marker(folder, _boot(boot_id))
        return LastStop.CLEAN
    return LastStop.KILLED if before and before == _boot(boot_id) else LastStop.POWER_CUT


def mark_recovered(folder: Path, *, boot_id: Path = BOOT_ID) -> None:
    """Note that what the broker before had left is recovered: from now on, what ends this one counts."""
    _write_marker(folder, _boot(boot_id))


def _boot(boot_id: Path) -> str:
    """What tells this boot of the machine from others; "" where nothing does."""
    try:
        return boot_id.read_text().strip()
    except OSError:
        return ""


def _write_marker(folder: Path, boot: str) -> None:
    with (folder / RUNNING).open("w") as file:
        file.write(boot)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def mark_stopped(folder: Path) -> None:
    """Note that everything is written and synced: the last thing that a clean stop does."""
    (folder / RUNNING).unlink(missing_ok=True)
    _sync(folder)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
