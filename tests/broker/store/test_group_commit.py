"""Group commit: tickets, batching while a sync runs, and failures that are final."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from harebell.broker.store.group_commit import GroupCommit

PATIENCE = 10.0


class Disk:
    """A stand-in for fdatasync that a test lets go on, and may make fail."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.go: SimpleQueue[OSError | None] = SimpleQueue()

    def fdatasync(self, fd: int) -> None:
        self.begun.put(fd)
        error = self.go.get(timeout=PATIENCE)
        if error is not None:
            raise error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


class Writers:
    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.synced = 0
        self.failures: list[OSError] = []
        self.commit = GroupCommit(self.calls.put, self._count, self.failures.append)

    def _count(self) -> None:
        self.synced += 1

    def run_one(self) -> None:
        self.calls.get(timeout=PATIENCE)()


def test_a_ticket_is_done_when_its_sync_is(disk: Disk) -> None:
    writers = Writers()
    ticket = writers.commit.ticket(5)
    assert disk.begun.get(timeout=PATIENCE) == 5
    assert writers.commit.synced < ticket
    disk.go.put(None)
    writers.run_one()
    assert writers.commit.synced == ticket
    assert writers.synced == 1
    writers.commit.stop()


def test_what_is_written_during_a_sync_waits_for_the_next(disk: Disk) -> None:
    writers = Writers()
    first = writers.commit.ticket(5)
    disk.begun.get(timeout=PATIENCE)
    second, third = writers.commit.ticket(5), writers.commit.ticket(6)
    assert first < second == third
    disk.go.put(None)
    writers.run_one()
    assert writers.commit.synced == first
    assert {disk.begun.get(timeout=PATIENCE)} <= {5, 6}
    disk.go.put(None)
    disk.begun.get(timeout=PATIENCE)
    disk.go.put(None)
    writers.run_one()
    assert writers.commit.synced == third
    assert writers.commit.syncs == 2
    writers.commit.stop()


def test_a_failure_is_final(disk: Disk) -> None:
    writers = Writers()
    ticket = writers.commit.ticket(5)
    disk.go.put(OSError(5, "Input/output error"))
    writers.run_one()
    assert [error.errno for error in writers.failures] == [5]
    assert writers.commit.synced < ticket
    assert writers.synced == 0
    writers.commit.stop()


def test_without_sync_every_ticket_is_done() -> None:
    commit = GroupCommit(lambda call: call(), lambda: None, lambda error: None, sync=False)
    assert commit.ticket(5) == 0 == commit.synced
    commit.stop()


def test_stop_syncs_what_is_pending(tmp_path: Path) -> None:
    writers = Writers()
    with (tmp_path / "file").open("wb") as file:
        ticket = writers.commit.ticket(file.fileno())
        writers.commit.stop()
    writers.run_one()
    assert writers.commit.synced == ticket
    assert not any(thread.name == "harebell-group-commit" for thread in threading.enumerate())


def test_close_waits_for_the_sync_of_its_file(disk: Disk, tmp_path: Path) -> None:
    writers = Writers()
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    writers.commit.ticket(fd)
    disk.begun.get(timeout=PATIENCE)
    closer = threading.Thread(target=writers.commit.close, args=(fd,))
    closer.start()
    os.fstat(fd)  # still open: its number is not free while the sync runs
    disk.go.put(None)
    closer.join(PATIENCE)
    with pytest.raises(OSError):
        os.fstat(fd)
    writers.commit.stop()


def test_a_ticket_for_a_file_that_is_closed_meanwhile_is_done_too(disk: Disk, tmp_path: Path) -> None:
    writers = Writers()
    writers.commit.ticket(5)
    disk.begun.get(timeout=PATIENCE)  # while this sync runs, another file is written and closed
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    ticket = writers.commit.ticket(other)
    disk.go.put(None)
    disk.go.put(None)
    writers.commit.close(other)
    while writers.commit.synced < ticket:
        writers.run_one()
    writers.commit.stop()


def test_a_file_that_is_handed_over_is_closed_after_its_sync(disk: Disk, tmp_path: Path) -> None:
    writers = Writers()
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    writers.commit.ticket(fd)
    disk.begun.get(timeout=PATIENCE)
    ticket = writers.commit.hand_over(fd)  # while a sync of it runs: there is another one to come
    disk.go.put(None)
    assert disk.begun.get(timeout=PATIENCE) == fd
    os.fstat(fd)
    disk.go.put(None)
    while writers.commit.synced < ticket:
        writers.run_one()
    with pytest.raises(OSError):
        os.fstat(fd)
    writers.commit.stop()


def test_without_sync_a_file_that_is_handed_over_is_closed_at_once(tmp_path: Path) -> None:
    commit = GroupCommit(lambda call: call(), lambda: None, lambda error: None, sync=False)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert commit.hand_over(fd) == 0
    with pytest.raises(OSError):
        os.fstat(fd)
