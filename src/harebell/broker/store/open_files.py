"""The open files of the store: any number of handles, a bounded number of descriptors behind them.

A log holds a handle for each file that it works on, for as long as it likes. When the descriptors behind them reach the
limit, the one used longest ago is closed, and opened again at its next use. So a broker with ten thousand durable
queues runs with a few hundred descriptors, and no log knows of it.

- A file that was closed with unsynced data is covered by the sync of its file system (`sync.sync_file_system`), whose
  errors are those of closed files too. Where the system cannot do that, the file is synced before it is closed.
- A failed sync is final, also one that no caller waited for: each later sync fails as well (see `group_commit`).
- When the process has no descriptor left although this limit is not reached (its clients or its host program took
  them), the store closes files of its own until the call succeeds.

- Whatever mode a caller asks for, files and folders are the user's alone (`private`).

It implements `Files` over another one; the descriptors that its callers see are its own handles, never used twice. It
may be called from several threads.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

from harebell.broker.store.files import Files
from harebell.broker.store.inventory import Inventory
from harebell.broker.store.private import FILE, FOLDER
from harebell.broker.store.sync import FEW, sync_file_system

__all__ = ["KEPT", "OpenFiles", "kept_for_store", "most_open_files"]

KEPT: Final = 1024  # descriptors for segments and the catalog; a quarter of the process's limit where that is less
SPARE: Final = 24  # of these, not for segments: the catalog, folders that are listed, files read once
LEAST: Final = 8  # files open at a time, whatever the limit is
_RESULT = TypeVar("_RESULT")
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_ONCE: Final = os.O_CREAT | os.O_TRUNC | os.O_EXCL  # flags that must not apply again when a file is opened again


def kept_for_store() -> int | None:
    """The descriptors of this process that its connections leave to the store; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else min(KEPT, soft // 4)


def most_open_files() -> int:
    """The number of files that the store has open at a time, by this process's limit."""
    kept = kept_for_store()
    return max(LEAST, (KEPT if kept is None else kept) - SPARE)


class _File:
    """A file behind a handle. `fd` is -1 while it is closed.

    unsynced  something may be in it that no sync covers, not even one that is under way (`syncing`)
    busy      a sync uses the descriptor at the moment
    """

    __slots__ = ("busy", "device", "ended", "fd", "flags", "path", "syncing", "unsynced", "written")

    def __init__(self, path: str, flags: int, fd: int) -> None:
        self.path, self.flags, self.fd = path, flags & ~_ONCE, fd
        self.unsynced = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY))
        self.busy = self.ended = self.syncing = self.written = False
        self.device = 0


class OpenFiles:
    """Files with at most `limit` descriptors (a sync may hold a few more), on the operating system `files`.

    `inventory` is notified of files that are first written to, and removed.
    """

    def __init__(self, files: Files = os, limit: int | None = None, inventory: Inventory | None = None) -> None:
        self.limit = most_open_files() if limit is None else max(LEAST, limit)
        self._files, self._inventory = files, inventory
        self._known: dict[int, _File] = {}
        self._open: dict[_File, None] = {}  # those with a descriptor, the one used longest ago first
        self._next = 1
        self._lock = threading.Condition()
        self._failure: OSError | None = None
        self._sync_all = sync_file_system if files is os else None
        self._devices: dict[int, int] = {}  # by file system: the descriptor that it is synced with

    # -- files

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        with self._lock:
            file = _File(path, flags, self._descriptor(path, flags, mode & FILE))
            self._opened(file)
            handle, self._next = self._next, self._next + 1
            self._known[handle] = file
            return handle

    def close(self, fd: int, /) -> None:
        with self._lock:
            file = self._known.pop(fd)
            file.ended = True
            if file.fd >= 0 and not file.busy:
                self._shut(file)

    def lseek(self, fd: int, offset: int, whence: int, /) -> int:
        with self._lock:
            return self._files.lseek(self._use(fd), offset, whence)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        with self._lock:
            return self._files.pread(self._use(fd), length, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        with self._lock:
            descriptor = self._use(fd)
            file = self._known[fd]
            file.unsynced = True
            done = self._files.pwrite(descriptor, data, offset)
            if not file.written:
                file.written = True
                if self._inventory is not None:
                    self._inventory.written(file.path)
            return done

    def ftruncate(self, fd: int, length: int, /) -> None:
        with self._lock:
            descriptor = self._use(fd)
            file = self._known[fd]
            file.unsynced = True
            if not length and self._inventory is not None:
                self._inventory.removing(file.path)
            self._files.ftruncate(descriptor, length)

    # -- syncing

    def fsync(self, fd: int, /) -> None:
        with self._lock:
            self._check()
            file, descriptor = self._known[fd], self._use(fd)
            file.unsynced = False
            try:
                self._files.fsync(descriptor)
            except OSError as error:
                self._failure = error
                raise

    def fdatasync(self, fd: int, /) -> None:
        self.sync_many((fd,))

    def sync_many(self, fds: Collection[int]) -> None:
        """Sync the files, those too whose descriptors were closed since. OSError when their data may not be on disk.

        A sync of theirs that another thread has begun ends before, and its error is this one's too.
        """
        with self._lock:
            while any(self._known[fd].syncing for fd in fds):
                self._lock.wait()
            self._check()
            files = [file for fd in fds if (file := self._known[fd]).unsynced]
            closed = any(file.fd < 0 for file in files)
            together = self._sync_all is not None and (closed or len(files) > FEW)
            devices = {self._devices[file.device] for file in files} if together else set()
            for file in files:
                file.unsynced, file.busy, file.syncing = False, not together, True
        try:
            if self._sync_all is not None:
                for device in devices:
                    self._sync_all(device)
            if not together:
                for file in files:
                    self._files.fdatasync(file.fd)
        except OSError as error:
            self._failure = error
            raise
        finally:
            with self._lock:
                for file in files:
                    file.busy = file.syncing = False
                    if file.ended and not together:
                        self._shut(file)
                self._lock.notify_all()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- folders

    def unlink(self, path: str, /) -> None:
        if self._inventory is not None:
            self._inventory.removing(path)
        self._files.unlink(path)

    def replace(self, source: str, destination: str, /) -> None:
        with self._lock:
            self._files.replace(source, destination)
            for file in reversed(self._known.values()):
                if file.path == source:
                    file.path = destination
                    break

    def listdir(self, path: str, /) -> list[str]:
        with self._lock:
            return self._insist(lambda: self._files.listdir(path))

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        self._files.mkdir(path, mode & FOLDER)

    def rmdir(self, path: str, /) -> None:
        self._files.rmdir(path)

    def release(self) -> None:
        """Close all descriptors, without a sync: the store has ended."""
        with self._lock:
            for file in tuple(self._open):
                if not file.busy:
                    self._shut(file)
            while self._devices:
                self._files.close(self._devices.popitem()[1])

    # -- descriptors; the lock is held

    def _use(self, handle: int) -> int:
        file = self._known[handle]
        if file.fd < 0:
            file.fd = self._descriptor(file.path, file.flags, 0)
            self._opened(file)
        else:
            del self._open[file]
            self._open[file] = None
        return file.fd

    def _opened(self, file: _File) -> None:
        self._open[file] = None
        if self._sync_all is not None:
            file.device = os.fstat(file.fd).st_dev
            if file.device not in self._devices:
                self._devices[file.device] = self._insist(lambda: _whole(file))

    def _descriptor(self, path: str, flags: int, mode: int) -> int:
        while len(self._open) >= self.limit and self._close_oldest():
            pass
        return self._insist(lambda: self._files.open(path, flags, mode))

    def _insist(self, call: Callable[[], _RESULT]) -> _RESULT:
        """Do what takes a descriptor; files of the store are closed for it when the process has none left."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._close_oldest(wait=True):
                    raise

    def _close_oldest(self, *, wait: bool = False) -> bool:
        """Close the file used longest ago. Returns whether there was one; `wait` for a sync that uses the last ones."""
        while True:
            for file in self._open:
                if not file.busy:
                    if file.unsynced and self._sync_all is None:
                        self._sync_before_closing()
                    self._shut(file)
                    return True
            if not wait or not self._open:
                return False
            self._lock.wait()

    def _sync_before_closing(self) -> None:
        """Sync the older half of the open files, of which the oldest is closed next."""
        self._check()
        for file in tuple(self._open)[: max(1, len(self._open) // 2)]:
            if file.unsynced and not file.busy:
                try:
                    self._files.fdatasync(file.fd)
                except OSError as error:
                    self._failure = error
                    raise
                file.unsynced = False

    def _shut(self, file: _File) -> None:
        fd, file.fd = file.fd, -1
        del self._open[file]
        self._files.close(fd)


def _whole(file: _File) -> int:
    """A descriptor of the file's file system. Errors count from its opening on, so it is opened before any write."""
    folder = os.open(Path(file.path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.fstat(folder).st_dev == file.device:
        return folder
    os.close(folder)  # the file is a link to another file system, or the root of one
    return os.dup(file.fd)
