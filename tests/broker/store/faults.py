"""A disk in memory that fails as disks do, behind the store's `Files`, and a group commit that a test runs by hand.

`kill` ends the process: what was written stays. `power_cut` ends the machine: of what was not synced, each write and
each name in a folder comes or goes on its own, and a write may be torn. `fail` makes a coming call raise, or write less
than it was given; `die` ends the process within a call: nothing after it is done.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random

from harebell.broker.store.group_commit import GroupCommit

__all__ = ["Died", "Disk", "HandCommit"]

SECTOR = 512


class Died(BaseException):
    """The process is no more. What catches errors must not catch this."""


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.changes: list[tuple[int, bytes | None]] = []  # (offset, what was written there); (length, None): cut

    def change(self, offset: int, data: bytes | None) -> None:
        self.changes.append((offset, data))
        _change(self.data, offset, data)


class _Folder:
    def __init__(self) -> None:
        self.names: dict[str, _File | _Folder] = {}
        self.synced: dict[str, _File | _Folder] = {}
        self.changes: list[dict[str, _File | _Folder | None]] = []  # each: names given (None: taken) at once

    def change(self, names: dict[str, _File | _Folder | None]) -> None:
        self.changes.append(names)
        _rename(self.names, names)


def _change(target: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del target[offset:]
        target.extend(bytes(offset - len(target)))
    else:
        target.extend(bytes(max(0, offset - len(target))))
        target[offset : offset + len(data)] = data


def _rename(target: dict[str, _File | _Folder], names: dict[str, _File | _Folder | None]) -> None:
    for name, what in names.items():
        if what is None:
            target.pop(name, None)
        else:
            target[name] = what


class Disk:
    """There is an empty folder, /data. `calls` counts those that may fail."""

    def __init__(self) -> None:
        self.root = _Folder()
        self.root.names["data"] = self.root.synced["data"] = _Folder()
        self.calls = 0
        self._open: dict[int, _File | _Folder] = {}
        self._next = 1000
        self._faults: dict[int, int] = {}
        self._death = -1

    def make(self, path: str) -> None:
        """There is this folder too, on disk since long."""
        at = self.root
        for name in path.strip("/").split("/"):
            found = at.names.setdefault(name, _Folder())
            assert isinstance(found, _Folder)
            at.synced[name] = at = found

    # -- what tests do to it

    def fail(self, after: int, error: int) -> None:
        """Let `after` calls pass; the next one fails with this errno, or, with 0, writes less than it should."""
        self._faults[self.calls + after] = error

    def die(self, after: int) -> None:
        """Let `after` calls pass; within the next one the process dies. Half of what it writes may be written."""
        self._death = self.calls + after

    def heal(self) -> None:
        self._faults.clear()
        self._death = -1

    @property
    def open_files(self) -> int:
        return len(self._open)

    def kill(self) -> None:
        self._open.clear()
        self.heal()

    def power_cut(self, random: Random) -> None:
        self.kill()
        self._settle_folder(self.root, random)

    def _settle_folder(self, folder: _Folder, random: Random) -> None:
        whole = random.random()
        for names in folder.changes:
            if random.random() < whole:
                _rename(folder.synced, names)
        folder.changes.clear()
        folder.names = dict(folder.synced)
        for each in folder.names.values():
            if isinstance(each, _Folder):
                self._settle_folder(each, random)
            else:
                self._settle_file(each, random)

    def _settle_file(self, file: _File, random: Random) -> None:
        data = bytearray(file.synced)
        whole = random.random()
        for offset, change in file.changes:
            if change is None:
                if random.random() < whole:
                    _change(data, offset, None)
                continue
            for at in range(0, len(change), SECTOR):
                sector = change[at : at + SECTOR]
                if random.random() < whole:
                    if random.random() < 0.1:
                        sector = sector[: random.randrange(len(sector) + 1)]
                    _change(data, offset + at, sector)
        file.changes.clear()
        file.synced = bytes(data)
        file.data = data

    def file(self, path: str) -> bytearray:
        """What a file holds, for a test to look at or to spoil."""
        file = self._find(path)
        assert isinstance(file, _File)
        return file.data

    def spoil(self, path: str, at: int, data: bytes) -> None:
        """Bytes of a file come to be others, though it was synced."""
        _change(self.file(path), at, data)

    # -- Files

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        self._call()
        folder, name = self._parent(path)
        found = folder.names.get(name)
        if found is None and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if found is None:
            found = _File()
            folder.change({name: found})
        if isinstance(found, _File) and flags & os.O_TRUNC and found.data:
            found.change(0, None)
        self._next += 1
        self._open[self._next] = found
        return self._next

    def close(self, fd: int, /) -> None:
        del self._open[fd]

    def lseek(self, fd: int, offset: int, whence: int, /) -> int:
        assert (offset, whence) == (0, os.SEEK_END)
        return len(self._file(fd).data)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        self._call()
        return bytes(self._file(fd).data[offset : offset + length])

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        if self.calls == self._death:
            self._file(fd).change(offset, bytes(data[: len(data) // 2]))
        short = self._call(len(data))
        self._file(fd).change(offset, bytes(data[:short]))
        return short

    def ftruncate(self, fd: int, length: int, /) -> None:
        self._call()
        self._file(fd).change(length, None)

    def fsync(self, fd: int, /) -> None:
        self._call()
        what = self._open[fd]
        if isinstance(what, _File):
            what.synced = bytes(what.data)
        else:
            what.synced = dict(what.names)
        what.changes.clear()

    fdatasync = fsync

    def unlink(self, path: str, /) -> None:
        self._call()
        folder, name = self._parent(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        folder.change({name: None})

    def replace(self, source: str, destination: str, /) -> None:
        self._call()
        folder, name = self._parent(source)
        folder.change({self._parent(destination)[1]: folder.names[name], name: None})

    def listdir(self, path: str, /) -> list[str]:
        self._call()
        folder = self._find(path)
        assert isinstance(folder, _Folder)
        return list(folder.names)

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        self._call()
        folder, name = self._parent(path)
        assert name not in folder.names
        folder.change({name: _Folder()})

    def rmdir(self, path: str, /) -> None:
        self._call()
        folder, name = self._parent(path)
        found = folder.names[name]
        assert isinstance(found, _Folder)
        assert not found.names
        folder.change({name: None})

    def _call(self, size: int = 0) -> int:
        """Count a call; how many of its bytes it may write."""
        error = self._faults.pop(self.calls, None)
        self.calls += 1
        if 0 <= self._death < self.calls:
            raise Died
        if error:
            raise OSError(error, os.strerror(error))
        return size // 2 if error == 0 and size > 1 else size

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self._find(parent or "/")
        assert isinstance(folder, _Folder)
        return folder, name

    def _find(self, path: str) -> _File | _Folder:
        at: _File | _Folder = self.root
        for name in path.split("/"):
            if name:
                assert isinstance(at, _Folder)
                if name not in at.names:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                at = at.names[name]
        return at

    def _file(self, fd: int) -> _File:
        file = self._open[fd]
        assert isinstance(file, _File)
        return file


class HandCommit(GroupCommit):
    """A group commit without a thread: it syncs when the test says `run`."""

    def __init__(
        self,
        disk: Disk,
        on_failed: Callable[[OSError], None] = lambda error: None,
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(lambda call: call(), on_synced, on_failed, files=disk)
        self._failed = False

    def ticket(self, fd: int) -> int:
        self._dirty.add(fd)
        return self._next

    def _covering(self, fd: int) -> int:
        return self.ticket(fd)

    def wait_written(self) -> None:
        writes, self._writes = self._writes, []
        error = self._write(writes)
        if error is not None:
            self._failed = True
            self._on_failed(error)

    def stop(self, timeout: float | None = None) -> bool:
        if self._dirty:
            self.run()
        return True

    def run(self) -> bool:
        """One sync; whether it went well. One that did not is the last."""
        self.wait_written()
        if self._failed:
            return False
        dirty, self._dirty = self._dirty, set()
        leaving, self._leaving = self._leaving, set()
        failure = self._sync(dirty, leaving)
        self._failed = failure is not None
        if failure is not None:
            self._on_failed(failure)
        else:
            number, self._next = self._next, self._next + 1
            self._done(number, 0.0, 1)
        return not self._failed
