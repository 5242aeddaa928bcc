"""The data folder of a broker: its creation, its lock against other brokers, and how the last broker stopped.

The file `running` exists from a start to a clean stop, and names the boot of the machine: a broker that finds it knows
that the last process was killed, and whether the machine stopped too. After a kill, everything that was written is on
disk; after a power cut, only what was synced.
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
    """How the last broker stopped. POWER_CUT is assumed where the machine cannot tell its boots apart."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_CUT = "power cut"


def hold_folder(folder: Path) -> TextIO:
    """Make the folder and lock it until the returned file is closed; the kernel unlocks it when the process dies.

    Raises OSError when it cannot be used, BlockingIOError when another broker uses it.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        with suppress(PermissionError):  # creating a file needs no permission to read the folder
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
    """Make these folders, and sync the names of new ones. Raises OSError when the disk refuses."""
    missing = [name for name in names if not (folder / name).is_dir()]
    for name in missing:
        (folder / name).mkdir()
    if missing:
        _sync(folder)


def mark_running(folder: Path, *, boot_id: Path = BOOT_ID) -> LastStop:
    """Write that a broker runs on the folder, which it has locked. Returns how the last one stopped.

    A power cut counts until its damage is recovered (`mark_recovered`), also when later starts fail. Raises OSError
    when the disk refuses.
    """
    try:
        before = (folder / RUNNING).read_text()
    except FileNotFoundError:
        _write_marker(folder, _boot(boot_id))
        return LastStop.CLEAN
    return LastStop.KILLED if before and before == _boot(boot_id) else LastStop.POWER_CUT


def mark_recovered(folder: Path, *, boot_id: Path = BOOT_ID) -> None:
    """Write that the recovery is complete: the next start judges only how this broker stops."""
    _write_marker(folder, _boot(boot_id))


def _boot(boot_id: Path) -> str:
    """The identifier of this boot of the machine; "" on systems without one."""
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
    """Write that everything is synced: the last step of a clean stop."""
    (folder / RUNNING).unlink(missing_ok=True)
    _sync(folder)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
