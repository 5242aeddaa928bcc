"""Group commit: tickets, batching while a sync runs, and failures that are final."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from harebell.broker.store.files import write_all
from harebell.broker.store.group_commit import GroupCommit
from tests.broker.store.held_syncs import PATIENCE, HeldSyncs


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


def test_a_ticket_is_done_when_its_sync_is(disk: HeldSyncs) -> None:
    writers = Writers()
    ticket = writers.commit.ticket(5)
    assert disk.begun.get(timeout=PATIENCE) == 5
    assert writers.commit.synced < ticket
    disk.go.put(None)
    writers.run_one()
    assert writers.commit.synced == ticket
    assert writers.synced == 1
    writers.commit.stop()


def test_what_is_written_during_a_sync_waits_for_the_next(disk: HeldSyncs) -> None:
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
    assert writers.commit.widths.counts[:3] == [1, 1, 0], "files of each sync"
    writers.commit.stop()


def test_a_failure_is_final(disk: HeldSyncs) -> None:
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
    others = set(threading.enumerate())
    writers = Writers()
    with (tmp_path / "file").open("wb") as file:
        ticket = writers.commit.ticket(file.fileno())
        (thread,) = set(threading.enumerate()) - others
        assert writers.commit.stop()
    writers.run_one()
    assert writers.commit.synced == ticket
    assert not thread.is_alive()


def test_close_waits_for_the_sync_of_its_file(disk: HeldSyncs, tmp_path: Path) -> None:
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


def test_a_ticket_for_a_file_that_is_closed_meanwhile_is_done_too(disk: HeldSyncs, tmp_path: Path) -> None:
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


def test_a_file_that_is_handed_over_is_closed_after_its_sync(disk: HeldSyncs, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("sync", [True, False])
def test_a_write_is_done_before_its_sync(tmp_path: Path, *, sync: bool) -> None:
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    seen: list[str] = []
    commit = GroupCommit(calls.put, lambda: seen.append("synced"), lambda error: seen.append("failed"), sync=sync)
    read, write = os.pipe()
    fd = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    ticket = commit.write(fd, lambda: seen.append(os.read(read, 1).decode()))
    assert seen == []
    os.write(write, b"w")
    commit.wait_written()
    assert seen == ["w"]
    calls.get(timeout=PATIENCE)()
    assert (seen, commit.synced) == (["w", "synced"], ticket)
    commit.stop()
    for each in (read, write, fd):
        os.close(each)


def test_a_write_that_fails_is_final() -> None:
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    failures: list[OSError] = []
    commit = GroupCommit(calls.put, lambda: None, failures.append)

    def refuse() -> None:
        raise OSError(28, "full")

    commit.write(5, refuse)
    commit.wait_written()
    calls.get(timeout=PATIENCE)()
    assert [error.errno for error in failures] == [28]
    assert commit.synced == 0
    commit.stop()


def test_a_file_is_closed_behind_its_writes_without_syncing_too(tmp_path: Path) -> None:
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    commit = GroupCommit(calls.put, lambda: None, lambda error: None, sync=False)
    fd = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    commit.write(fd, lambda: write_all(os, fd, b"x", 0))
    commit.hand_over(fd)
    commit.stop()
    assert (tmp_path / "f").read_bytes() == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
