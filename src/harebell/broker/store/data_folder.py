"""The data folder of a broker: its creation, its lock against other brokers, and how the last broker stopped.

The file `running` exists from a start to a clean stop, and names the boot of the machine: a broker that finds it knows
that the last process was killed, and whether the machine stopped too. After a kill, everything that was written is on
disk; after a power cut, only what was synced.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
from enum import Enum
from pathlib import Path
from typing import Final, TextIO

from harebell.broker.store.private import FOLDER, close_to_others, is_open_to_others, private_opener
from harebell.synced_files import make_folder, sync_folder

__all__ = ["LastStop", "hold_folder", "make_folders", "mark_recovered", "mark_running", "mark_stopped"]

log = logging.getLogger("harebell.broker.store")

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

    A folder that others may enter is closed to them, and the log says so.

    Raises OSError when it cannot be used, BlockingIOError when another broker uses it.
    """
    make_folder(folder, FOLDER)
    lock = open(folder / LOCK, "a", opener=private_opener)  # noqa: SIM115  the caller closes it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another broker", os.fspath(folder)) from error
        raise
    try:
        if is_open_to_others(folder) and (count := close_to_others(folder)):
            log.warning("%s was open to other users of this machine: closed, with %d files and folders", folder, count)
    except PermissionError as error:
        log.error(
            "%s is open to other users of this machine, and %s belongs to another one: they may read hashes of "
            "passwords and messages; give the folder to the broker's user, with `chown -R` and `chmod -R go=`",
            folder, error.filename,
        )  # fmt: skip
    return lock


def make_folders(folder: Path, *names: str) -> None:
    """Make these folders, and sync the names of new ones. Raises OSError when the disk refuses."""
    missing = [name for name in names if not (folder / name).is_dir()]
    for name in missing:
        (folder / name).mkdir(FOLDER)
    if missing:
        sync_folder(folder)


def mark_running(folder: Path, *, boot_id: Path = BOOT_ID) -> LastStop:
    """Write that a broker runs on the folder, which it has locked. Returns how the last one stopped.

    A power cut counts until its damage is recovered (`mark_recovered`), also when later starts fail. Raises OSError
    when the disk refuses.
    """
    marker = folder / RUNNING
    if not marker.exists() and not marker.is_symlink():
        _write_marker(folder, _boot(boot_id))
        return LastStop.CLEAN
    try:
        before = marker.read_bytes() if marker.is_file() else b""
    except OSError:
        before = b""
    return LastStop.KILLED if before and before == _boot(boot_id).encode() else LastStop.POWER_CUT


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
    marker = folder / RUNNING
    if marker.is_symlink() or (marker.exists() and not marker.is_file()):  # not ours: it is moved out of the way
        marker.rename(folder / f"{RUNNING}.{secrets.token_hex(4)}")
    with open(folder / RUNNING, "w", opener=private_opener) as file:
        file.write(boot)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def mark_stopped(folder: Path) -> None:
    """Write that everything is synced: the last step of a clean stop."""
    (folder / RUNNING).unlink(missing_ok=True)
    sync_folder(folder)
