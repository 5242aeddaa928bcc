"""The examination of a data folder that no broker uses: what is damaged in it. Nothing is changed.

The logs are read by the code of a start, over files that are only looked at. SQLite writes beside a database that it
only reads, and looks at a copy elsewhere.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harebell.broker.store.catalog.catalog import CatalogError, Contents, read_contents
from harebell.broker.store.catalog.check import (
    CATALOG,
    COPY,
    MESSAGES,
    SEAL,
    Inspection,
    check_catalog,
    inspect_catalog,
    message_folders,
)  # fmt: skip
from harebell.broker.store.catalog.seal import seal_if_whole
from harebell.broker.store.files import Damage, shows_damage, status
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.inventory import RECORDS, missing_files, sizes_of_records
from harebell.broker.store.queue_log.recovery import Recovery
from harebell.broker.store.record_file import RecordFile
from harebell.broker.store.stream_log.log import StreamLog

__all__ = ["Finding", "candidates", "examine"]


class Finding(NamedTuple):
    """A line of the report. `bad`: something is lost, or the start is refused."""

    bad: bool
    text: str


class _OnlyLooks:
    """Files that are read and never changed: a write goes nowhere."""

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            path = os.devnull
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int, /) -> None:
        os.close(fd)

    def lseek(self, fd: int, offset: int, whence: int, /) -> int:
        return os.lseek(fd, offset, whence)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        return os.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        return len(data)

    def listdir(self, path: str, /) -> list[str]:
        return [each.name for each in Path(path).iterdir()]

    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def replace(self, source: str, destination: str, /) -> None: ...
    def mkdir(self, path: str, mode: int = 0o777, /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...


def candidates(data: Path) -> list[Inspection]:
    """The catalog and its copy, the one to use first: whole ones, that which the seal names, the newest."""
    seal = seal_if_whole(data / SEAL)
    found = []
    for name in (CATALOG, COPY):
        try:
            found.append(inspect_catalog(data / name))
        except CatalogError as error:  # of a newer version
            found.append(Inspection(data / name, str(error.strerror)))

    def rank(each: Inspection) -> tuple[bool, bool, int]:
        own = each.seal
        return (
            each.problem is not None,
            own is None or seal is None or own.identity != seal.identity,
            -own.generation if own else 0,
        )

    return sorted(found, key=rank)


def examine(data: Path) -> Iterator[Finding]:
    """Examine the folder, which is locked by the caller. OSError when this process cannot read what is in it."""
    with _copied_catalog(data) as copies:
        yield from _examine(data, copies)


@contextmanager
def _copied_catalog(data: Path) -> Iterator[Path]:
    """A folder with copies of the catalog's files, and links to the others."""
    with tempfile.TemporaryDirectory(prefix="harebell-check-") as name:
        copies = Path(name)
        for linked in (SEAL, *MESSAGES):
            if os.path.lexists(data / linked):
                (copies / linked).symlink_to((data / linked).absolute())
        for database in (CATALOG, COPY):
            for suffix in ("", "-wal", "-journal"):  # SQLite looks for these beside the target of a link
                _copy((data / database).resolve(), data / database, copies / database, suffix)
            if (data / f"{database}-shm").is_symlink():  # no SQLite opens it
                (copies / f"{database}-shm").symlink_to("nowhere")
        yield copies


def _copy(resolved: Path, path: Path, copy: Path, suffix: str) -> None:
    source, target = resolved.with_name(resolved.name + suffix), copy.with_name(copy.name + suffix)
    found = status(source)
    if found is not None and stat.S_ISDIR(found.st_mode):
        target.mkdir()
    elif found is not None:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            if not shows_damage(error):
                raise
    elif source.is_symlink() or (not suffix and path.is_symlink()):
        target.symlink_to("nowhere")


def _examine(data: Path, copies: Path) -> Iterator[Finding]:
    try:
        check_catalog(copies / CATALOG)
    except CatalogError as error:
        yield Finding(True, (error.strerror or str(error)).partition(". Nothing was changed")[0])
        for each in candidates(copies):
            yield Finding(False, _describe(each))
    else:
        yield Finding(False, _describe(inspect_catalog(copies / CATALOG)))
    best = candidates(copies)[0]
    contents = None if best.problem is not None else read_contents(best.path)
    owners = _owners(contents)
    for missing in missing_files(data):
        if missing.folder in owners:
            yield Finding(True, f"{missing.path} is {missing.how}{owners.get(missing.folder, '')}")
    yield from _examine_records(data)
    for folder in message_folders(data):
        found = status(data / folder)
        if found is None or not stat.S_ISDIR(found.st_mode):
            lost = folder in owners or contents is None
            yield Finding(lost, f"{folder} is no folder{owners.get(folder, '') or ', and belongs to nothing'}")
            continue
        if folder not in owners:
            what = "delayed exchange" if folder.startswith("delays/") else "queue"
            yield Finding(contents is None, f"{folder} belongs to no {what}")
        for finding in _examine_log(data, folder, owners.get(folder, "")):
            yield Finding(finding.bad and (folder in owners or contents is None), finding.text)


def _describe(found: Inspection) -> str:
    if found.problem is not None:
        return f"{found.path.name}: {found.problem}"
    changes = f"{found.seal.generation} changes" if found.seal else "an older version"
    return f"{found.path.name}: whole by itself, {changes}, {found.records} records"


def _owners(contents: Contents | None) -> dict[str, str]:
    """What to say of a folder: its queue or delayed exchange."""
    return {} if contents is None else {folder: f" ({owner})" for folder, owner in contents.owners().items()}


def _examine_records(data: Path) -> Iterator[Finding]:
    commit = GroupCommit(lambda call: call(), lambda: None, lambda error: None, sync=False)
    sizes = sizes_of_records(data)
    losses = ("no session of before goes on", "prepared transactions may be lost, and the others are in doubt")
    for name, loss in zip(RECORDS, losses, strict=True):
        try:
            _, cut, damage = RecordFile(data / name, commit, _OnlyLooks(), sizes.get(name)).read()
        except OSError as error:
            if not shows_damage(error):
                raise
            yield Finding(True, f"{name} cannot be read: {error}")
            continue
        if damage:
            yield Finding(True, f"{name} {damage}: {loss}")
        elif cut:
            yield Finding(False, f"{name}: {cut} bytes of a torn record at its end will be cut")


def _examine_log(data: Path, folder: str, owner: str) -> Iterator[Finding]:
    damages: list[Damage]
    try:
        if folder.startswith("streams/"):
            commit = GroupCommit(lambda call: call(), lambda: None, lambda error: None, sync=False)
            stream = StreamLog(data / folder, commit, clean=True, files=_OnlyLooks())
            damages, cut = stream.damages, stream.cut
            stream.close()
        else:
            log = Recovery(str(data / folder), _OnlyLooks(), suspect=False)
            damages, cut = log.damages, log.cut
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not shows_damage(error):
            raise
        yield Finding(True, f"{folder}{owner} cannot be read: {error}")
        return
    for each in damages:
        path = each.path.removeprefix(f"{data}/")
        loss = f"at most {each.lost} messages are lost" if path.endswith(".log") else "messages may come again"
        yield Finding(True, f"{path}{owner}: {each.size} bytes at {each.at} cannot be read: {loss}")
    if cut:
        yield Finding(False, f"{folder}{owner}: {cut} bytes of a torn record at its end will be cut")
