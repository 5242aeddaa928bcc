"""Whether a catalog is certainly whole and the newest: what is found before it is opened, without changing a byte.

Any doubt refuses the start, because a broker that comes up with an older catalog, or a new one, would lose queues and
bring back users that were deleted. The checks are SQLite's own, the digest of all records, the seal (`seal`),
the copy beside the catalog, and the folders of messages: they can't be there without a catalog.

It opens the files read-only: SQLite would otherwise cut its journal at the first damaged byte, for ever.

A file that this process may not read, or cannot read because descriptors or memory run out, is not damaged: that is an
OSError, and no CatalogError, whose advice is a repair.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harebell.broker.store.catalog.seal import Seal, digest_of, read_seal
from harebell.broker.store.files import shows_damage, status

__all__ = [
    "APPLICATION", "CATALOG", "COPY", "MESSAGES", "NO_ROOM_FOR_INDEX", "SCHEMA", "SEAL", "CatalogError", "Inspection",
    "catalog_errors", "check_catalog", "inspect_catalog", "message_folders", "read_only", "sealed_by",
]  # fmt: skip

SCHEMA: Final = 5
SEALED: Final = 3  # the first schema with a seal
APPLICATION: Final = 0x57524E43  # "WRNC": marks the file as a catalog
CATALOG: Final = "catalog.sqlite"  # in the data folder
SEAL: Final = "catalog.seal"  # beside the catalog: see `seal`
COPY: Final = "catalog.good"  # beside it too: a copy of the catalog that was whole when it was written
MESSAGES: Final = ("queues", "streams", "delays")

NO_ROOM_FOR_INDEX: Final = "SQLITE_IOERR_SHMSIZE"  # SQLite's name of it: catalog.sqlite-shm cannot be made
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")  # of the files that SQLite opens for one catalog
# SQLite's errors that a damaged file explains; CANTOPEN is a folder or a lost link, once `_try_to_open` has passed.
_DAMAGE: Final = (
    "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_CANTOPEN", "SQLITE_FORMAT", "SQLITE_SCHEMA",
    "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS",
    "SQLITE_IOERR_DATA",
)  # fmt: skip
_NUMBERS: Final = {
    "SQLITE_BUSY": errno.EBUSY, "SQLITE_LOCKED": errno.EBUSY, "SQLITE_FULL": errno.ENOSPC, "SQLITE_NOMEM": errno.ENOMEM,
    "SQLITE_IOERR_NOMEM": errno.ENOMEM, "SQLITE_PERM": errno.EACCES, "SQLITE_READONLY": errno.EACCES,
    NO_ROOM_FOR_INDEX: errno.ENOSPC,
}  # fmt: skip

log = logging.getLogger("harebell.broker.store")


class CatalogError(OSError):
    """The catalog cannot be read or written. `errno` is ENOSPC when the disk is full."""


@contextmanager
def catalog_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into CatalogError."""
    try:
        yield
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", NO_ROOM_FOR_INDEX)
        number = errno.ENOSPC if full else errno.EIO
        raise CatalogError(number, f"the catalog cannot be used: {error}", str(path)) from error


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in the file of a catalog.

    problem   why it cannot be used; None: all of its records are those that were written together
    seal      the seal that it contains; None in a version before seals, and after some problems
    records   their number
    """

    path: Path
    problem: str | None
    seal: Seal | None = None
    records: int = 0


def sealed_by(connection: sqlite3.Connection) -> Seal:
    """The seal that the catalog itself contains."""
    identity, generation, digest = connection.execute("SELECT identity, generation, digest FROM state").fetchone()
    return Seal(int.from_bytes(identity, "big"), generation, int.from_bytes(digest, "big"))


def inspect_catalog(path: Path) -> Inspection:
    """Read the whole catalog and compare its records with its digest. CatalogError for one of a newer version.

    OSError when this process cannot read it, whatever is in it.
    """
    found = status(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return Inspection(path, "it is not a file" if os.path.lexists(path) else "it is missing")
    if found.st_size == 0:
        return Inspection(path, "it is empty")
    _try_to_open(path.resolve() if path.is_symlink() else path)
    try:
        with closing(read_only(path)) as connection:
            return _inspect(path, connection)
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"  # without one, it is a text of the module's
        if not name.startswith(_DAMAGE):
            number = next((number for start, number in _NUMBERS.items() if name.startswith(start)), errno.EIO)
            raise OSError(number, f"it cannot be read now: {error} ({name})", str(path)) from error
        return Inspection(path, f"it cannot be read: {error}")
    except (UnicodeDecodeError, OverflowError) as error:
        return Inspection(path, f"it cannot be read: {error}")


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Where there is no journal to read, it needs no files beside the catalog."""
    path = path.resolve()
    journals = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    alone = all(not os.path.lexists(each) or (each.is_file() and not each.stat().st_size) for each in journals)
    return sqlite3.connect(f"{path.as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True)


def _try_to_open(path: Path) -> None:
    """Open all files of the catalog at once, as SQLite will, which says only that it could not. OSError likewise.

    No connection of this process may have them open: closing a file drops its locks.
    """
    with ExitStack() as opened:
        for suffix in _SUFFIXES:
            try:
                descriptor = os.open(f"{path}{suffix}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # SQLite may make it
            except OSError as error:
                if not shows_damage(error):
                    raise
                continue
            opened.callback(os.close, descriptor)


def _inspect(path: Path, connection: sqlite3.Connection) -> Inspection:
    connection.execute("BEGIN")  # the same state for all that follows
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        return Inspection(path, f"it is damaged: {' '.join(problem.split())}")
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        return Inspection(path, "it is not a catalog of Harebell")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        text = f"store format {version}, this version reads {SCHEMA}: use the version that wrote it"
        raise CatalogError(errno.EIO, f"{text}, or another data folder", str(path))
    found, records = 0, 0
    for row in connection.execute("SELECT * FROM records"):
        found += digest_of(row)
        records += 1
    if version < SEALED:
        return Inspection(path, None, None, records)
    if connection.execute("SELECT count(*) FROM state").fetchone() != (1,):
        return Inspection(path, "it has lost its state", None, records)
    seal = sealed_by(connection)
    if found % (1 << 128) != seal.digest:
        return Inspection(path, "its records are not those that the broker wrote", seal, records)
    return Inspection(path, None, seal, records)


def message_folders(data: Path) -> list[str]:
    """The folders of messages in a data folder, but for those that have a declaration of their own (first versions)."""
    return [
        f"{kind}/{each.name}"
        for kind in MESSAGES
        if (found := status(data / kind)) is not None and stat.S_ISDIR(found.st_mode)
        for each in sorted((data / kind).iterdir())
        if not (each / "queue.json").exists()
    ]


def check_catalog(path: Path, *, suspect: bool = False) -> int:
    """Check the catalog in that file, before it is opened. Returns the generation of the copy beside it, -1 for none.

    CatalogError for any doubt, with what is known and what to do; OSError when a file cannot be read. `suspect`: the
    machine stopped with the last broker; then a catalog that was written without syncs may be older than its seal.
    Lesser remarks are logged.
    """
    try:
        return _check(path, suspect)
    except CatalogError as error:
        if "store format" in str(error.strerror):
            raise
        folder = path.parent
        text = (
            f"the start is refused, because queues and users might be lost: {error.strerror}. Nothing was changed. "
            f"`harebell data check --data {folder}` shows more, `harebell data repair --data {folder}` mends it; or "
            "restore the whole folder from a backup"
        )
        raise CatalogError(error.errno, text, str(path)) from None


def _check(path: Path, suspect: bool) -> int:
    name, folder = path.name, path.parent
    sealed, copied, journal = folder / SEAL, folder / COPY, folder / f"{name}-wal"
    if status(path) is None and not path.is_symlink():
        rest = [each.name for each in (journal, sealed, copied) if each.exists()] or message_folders(folder)
        if rest:
            raise _doubt(path, f"{name} is missing, though {rest[0]} is there")
        return -1
    found = inspect_catalog(path)
    if found.problem is not None:
        raise _doubt(path, f"{name}: {found.problem}")
    if found.seal is None:
        if sealed.exists():
            raise _doubt(path, f"{name} was written by an older version than {SEAL}: one of them was replaced")
        return -1
    _compare(path, found, sealed, suspect, journal.exists())
    copy = inspect_catalog(copied)
    if copy.problem is not None or copy.seal is None:
        if copied.exists() or copied.is_symlink():
            log.warning("%s: %s; it is written again", copied.name, copy.problem)
        return -1
    if copy.seal.identity != found.seal.identity:
        raise _doubt(path, f"{name} and {COPY} belong to different brokers")
    if copy.seal.generation > found.seal.generation:
        raise _doubt(
            path, f"{name} has {found.seal.generation} changes, {COPY} has {copy.seal.generation}: it is an older one"
        )
    return copy.seal.generation


def _compare(path: Path, found: Inspection, sealed: Path, suspect: bool, has_journal: bool) -> None:
    """Compare the catalog with its seal."""
    name, own = path.name, found.seal
    assert own is not None
    try:
        seal = read_seal(sealed)
        problem = "damaged"
    except FileNotFoundError:
        seal, problem = None, "missing"
    except OSError as error:
        if not shows_damage(error):
            raise
        seal, problem = None, f"unreadable ({error.strerror or error})"
    if seal is None:
        new = own.generation <= 1 and (found.records > 0 or not message_folders(path.parent))
        if not new:
            text = f"{SEAL} is {problem}, so nothing shows that {name} ({own.generation} changes) is the newest"
            raise _doubt(path, text)
        return
    if seal.identity != own.identity:
        raise _doubt(path, f"{name} and {SEAL} belong to different brokers")
    missing = seal.generation - own.generation
    if missing > 0:
        if suspect and not seal.synced:
            log.warning("%s: the last %d changes are lost: the machine stopped, and nothing was synced", name, missing)
            return
        where = f"{name}-wal is " + (
            "damaged, cut, or an older one" if has_journal else "missing, or the file an older one"
        )
        raise _doubt(
            path,
            f"{name} has {own.generation} changes, and {seal.generation} were made: {missing} are missing; {where}",
        )
    if missing == 0 and seal.digest != own.digest:
        raise _doubt(path, f"the records of {name} are not those that {SEAL} says")
    if missing < -1 and not suspect:
        log.warning("%s is older than the catalog by %d changes; it is written again", SEAL, -missing)


def _doubt(path: Path, text: str) -> CatalogError:
    return CatalogError(errno.EIO, text, str(path))
