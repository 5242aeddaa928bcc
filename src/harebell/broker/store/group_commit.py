"""Group commit: one thread that syncs the written files for all writers.

Writers call `ticket(file)` after writing and get the number of the sync that will cover it; `synced` is the number of
the last finished sync. While one sync runs, the files of the next gather, so that batches grow with the load. After a
sync, `on_synced` is called in the writers' thread (through `call_soon`).

A long write (`write`) is done in the same thread, before the sync that covers it: the writers' thread has clients who
wait.

A failed sync is final: the kernel may have dropped the pages, so a retry could confirm messages that are not on disk
(the "fsyncgate" of 2018). `on_failed` is called once, and nothing is confirmed any more.

The module knows neither messages nor event loops.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from harebell.broker.counts import Histogram
from harebell.broker.store.files import Files
from harebell.broker.store.sync import sync_files

__all__ = ["GroupCommit"]

DURATIONS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
WIDTHS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class GroupCommit:
    """The thread that syncs files, and the tickets of its syncs.

    call_soon   runs a callable in the writers' thread, from any thread
    on_synced   called in the writers' thread after each sync, when `synced` has grown
    on_failed   called in the writers' thread once, with the error of a sync that failed
    sync        False: nothing is synced and every ticket counts as done (`--no-sync`)
    files       the operating system
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        on_synced: Callable[[], None],
        on_failed: Callable[[OSError], None],
        *,
        sync: bool = True,
        files: Files = os,
    ) -> None:
        self.synced = 0
        self.syncs = 0
        self.durations = Histogram(DURATIONS)  # of the syncs, in seconds
        self.widths = Histogram(WIDTHS)  # files of each sync
        self.covered = 0  # the last sync whose commands of sessions are in positions on disk (`positions`)
        self._call_soon, self._on_synced, self._on_failed = call_soon, on_synced, on_failed
        self.enabled, self._files = sync, files  # enabled: it syncs
        self._next = 1
        self._dirty: set[int] = set()
        self._syncing: set[int] = set()
        self._leaving: set[int] = set()  # files to close after their next sync
        self._owed = False  # a ticket is open for a file that was synced and closed since
        self._writes: list[Callable[[], None]] = []
        self._unwritten = 0  # writes that are not done
        self._failed = False
        self._wake = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def ticket(self, fd: int) -> int:
        """The number of the sync that will make what was written to `fd` durable; 0 (done) without syncing."""
        if not self.enabled:
            return 0
        return self._covering(fd)

    def _covering(self, fd: int) -> int:
        with self._wake:
            self._dirty.add(fd)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="harebell-group-commit", daemon=True)
                self._thread.start()
            self._wake.notify_all()
            return self._next

    def write(self, fd: int, write: Callable[[], None]) -> int:
        """Call `write` in the thread, after earlier ones. Returns the ticket of the sync of `fd` that follows.

        Without syncing there is a ticket too: it is done when the data are written. An OSError is final, as a failed
        sync is.
        """
        with self._wake:
            self._writes.append(write)
            self._unwritten += 1
            return self._covering(fd)

    def wait_written(self) -> None:
        """Block until all writes are done, or have failed."""
        with self._wake:
            while self._unwritten and not self._failed:
                self._wake.wait()

    def hand_over(self, fd: int) -> int:
        """A ticket, as `ticket` gives; the sync closes `fd` afterwards."""
        with self._wake:
            if not self.enabled and not self._unwritten:
                self._files.close(fd)
                return 0
            self._leaving.add(fd)
            return self._covering(fd)

    def close(self, fd: int) -> None:
        """Sync what is pending for `fd`, if anything, and close it."""
        with self._wake:
            while fd in self._syncing:  # until then the descriptor's number must not be reused for another file
                self._wake.wait()
            pending = fd in self._dirty
            self._dirty.discard(fd)
        if pending:
            self._files.fdatasync(fd)
            with self._wake:
                self._owed = True  # the holder of its ticket waits for that sync's number all the same
                self._wake.notify_all()
        self._files.close(fd)

    def stop(self, timeout: float | None = None) -> bool:
        """Sync what is pending and end the thread; blocks until it is done, or for `timeout` seconds.

        Returns whether it is done: a disk may hang for ever.
        """
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._dirty and not self._owed and not self._stopping:
                    self._wake.wait()
                if not self._dirty and not self._owed:
                    return
                self._syncing, self._dirty, self._owed = self._dirty, set(), False
                writes, self._writes = self._writes, []
                leaving, self._leaving = self._leaving & self._syncing, self._leaving - self._syncing
                number, self._next = self._next, self._next + 1
            began = time.perf_counter()
            failure = self._write(writes) or self._sync(self._syncing, leaving)
            seconds = time.perf_counter() - began
            with self._wake:
                width, self._syncing = len(self._syncing), set()
                self._failed = failure is not None
                self._wake.notify_all()
            if failure is not None:
                self._call_soon(partial(self._on_failed, failure))
                return
            self._call_soon(partial(self._done, number, seconds, width))

    def _write(self, writes: Iterable[Callable[[], None]]) -> OSError | None:
        for write in writes:
            try:
                write()
            except OSError as error:
                return error
            with self._wake:
                self._unwritten -= 1
                self._wake.notify_all()
        return None

    def _done(self, number: int, seconds: float, width: int) -> None:
        self.synced = number
        self.syncs += 1
        self.durations.observe(seconds)
        self.widths.observe(width)
        self._on_synced()

    def _sync(self, fds: Collection[int], leaving: Iterable[int]) -> OSError | None:
        try:
            if self.enabled:
                sync_files(self._files, fds)
            for fd in leaving:
                self._files.close(fd)
        except OSError as error:
            return error
        return None
