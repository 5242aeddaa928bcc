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
import pwd
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final, TextIO

from harebell.broker.store.catalog.check import APPLICATION, CATALOG, COPY, SEAL
from harebell.broker.store.files import is_full, shows_damage, status
from harebell.broker.store.private import FOLDER, close_to_others, is_open_to_others, private_opener
from harebell.synced_files import make_folder, sync_folder

__all__ = [
    "ForeignFolder", "LastStop", "OthersFolder", "has_data", "hold_folder", "last_stop", "make_folders",
    "mark_recovered", "mark_running", "mark_stopped", "shared_folder", "strangers",
]  # fmt: skip

log = logging.getLogger("harebell.broker.store")

LOCK: Final = "lock"
RUNNING: Final = "running"
OWN: Final = re.compile(r"(catalog|segments|sessions|transactions|queues|streams|delays|damaged)([.-].*)?")
# What may be there before the first start: our lock, what file systems make, and what a broker is set up with.
BEFORE_DATA: Final = re.compile(r"(lock|running)(\..*)?|lost\+found|\.snapshot|.+\.(json|toml|pem|crt|key)")
SEGMENT: Final = re.compile(r"[0-9]{20}\..*")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LastStop(Enum):
    """How the last broker stopped. POWER_CUT is assumed where the machine cannot tell its boots apart."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_CUT = "power cut"


class OthersFolder(PermissionError):
    """The folder is another user's, and this process is root's: its files would be root's, for that user to find."""


class ForeignFolder(OSError):
    """The folder has files of something else, and no data of a broker."""


def has_data(folder: Path) -> bool:
    """Whether a broker has stored something there, whatever has become of it since."""
    return not strangers(folder) and any(OWN.fullmatch(name) for name in _names(folder))


def strangers(folder: Path) -> list[str]:
    """The names in the folder that a broker does not use; none where there are signs of a broker, or no folder.

    A name alone, such as `lock` or `queues`, is no sign: these are found elsewhere too.
    """
    names = _names(folder)
    others = sorted(name for name in names if not OWN.fullmatch(name) and not BEFORE_DATA.fullmatch(name))
    if not others or SEAL in names or any(name in names and not _of_other(folder / name) for name in (CATALOG, COPY)):
        return []
    for kind in ("queues", "streams", "delays"):
        if (folder / kind).is_dir() and any(SEGMENT.fullmatch(path.name) for path in (folder / kind).glob("*/*")):
            return []
    return others


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _of_other(path: Path) -> bool:
    """Whether the file is a database of another program; a damaged one counts as ours."""
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except OSError as error:
        if not shows_damage(error):
            raise
        return False
    return head.startswith(b"SQLite format 3\0") and head[68:] != APPLICATION.to_bytes(4, "big")


@contextmanager
def shared_folder(folder: Path) -> Iterator[None]:
    """Keep brokers from the folder in the block, and change nothing in it.

    Raises OSError when it cannot be read, BlockingIOError when a broker uses it. Without the file `lock`, which a
    broker makes first, nothing is held.
    """
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        _flock(lock, fcntl.LOCK_SH, folder)
        yield
    finally:
        os.close(lock)


def _flock(lock: int, operation: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another broker", os.fspath(folder)) from error
        raise


def hold_folder(folder: Path) -> TextIO:
    """Make the folder and lock it until the returned file is closed; the kernel unlocks it when the process dies.

    A folder that others may enter is closed to them, and the log says so.

    Raises OSError when it cannot be used, BlockingIOError when another broker uses it. ForeignFolder, before anything
    is changed, when it belongs to something else: it would be closed to that too. OthersFolder, likewise, for root when
    the catalog there, or without one the folder, is another user's of this machine.
    """
    _refuse_root(folder)
    if names := strangers(folder):
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        text = f"it has other files ({some}) and no data of a broker"
        raise ForeignFolder(errno.ENOTEMPTY, text, os.fspath(folder))
    make_folder(folder, FOLDER)
    lock = open(folder / LOCK, "a", opener=private_opener)  # noqa: SIM115  the caller closes it
    try:
        _flock(lock.fileno(), fcntl.LOCK_EX, folder)
    except OSError:
        lock.close()
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


def _refuse_root(folder: Path) -> None:
    found = status(folder / CATALOG) or status(folder)
    if os.geteuid() or found is None or not found.st_uid:
        return
    try:
        user = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return  # of another machine, whose folder this container has: no such user runs a broker here
    text = f"it belongs to user {user}, who could not read what root writes there: use `sudo -u {user} harebell ...`"
    raise OthersFolder(errno.EPERM, text, os.fspath(folder))


def make_folders(folder: Path, *names: str) -> None:
    """Make these folders, and sync the names of new ones. Raises OSError when the disk refuses."""
    missing = [name for name in names if not (folder / name).is_dir()]
    for name in missing:
        (folder / name).mkdir(FOLDER)
    if missing:
        sync_folder(folder)


def last_stop(folder: Path, *, boot_id: Path = BOOT_ID) -> LastStop:
    """How the last broker on the folder stopped. OSError when that cannot be read.

    A power cut counts until its damage is recovered (`mark_recovered`), also when later starts fail.
    """
    marker = folder / RUNNING
    if not os.path.lexists(marker):
        return LastStop.CLEAN
    try:
        before = marker.read_bytes() if marker.is_file() else b""
    except OSError as error:
        if not shows_damage(error):
            raise
        before = b""
    return LastStop.KILLED if before and before == _boot(boot_id).encode() else LastStop.POWER_CUT


def mark_running(folder: Path, *, boot_id: Path = BOOT_ID) -> LastStop:
    """Write that a broker runs on the folder, which it has locked. Returns how the last one stopped.

    On a full disk the mark has no boot, so that a kill will count as a power cut. OSError when the disk refuses.
    """
    last = last_stop(folder, boot_id=boot_id)
    if last is LastStop.CLEAN:
        _write_marker(folder, _boot(boot_id))
    return last


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
    descriptor = private_opener(str(marker), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        try:
            length = os.pwrite(descriptor, boot.encode(), 0)
        except OSError as error:
            if not is_full(error):
                raise
            length = 0
        os.ftruncate(descriptor, length)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)


def mark_stopped(folder: Path) -> None:
    """Write that everything is synced: the last step of a clean stop."""
    (folder / RUNNING).unlink(missing_ok=True)
    sync_folder(folder)
