"""The end of a batch: what is left is done once, in one order, whatever the order in which it came up."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from harebell.broker.batch import LONG_WRITE, Batch
from harebell.broker.store.catalog.catalog import Catalog
from harebell.broker.timers import Timers
from harebell.routing.definitions import VirtualHost
from tests.broker.kit import Stopwatch


class Everything:
    """A queue, a store, a channel's confirms and a connection in one; `steps` is what was asked of it."""

    scheduled = deleted = False
    decorators = ()

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.steps: list[str] = []
        self.ticket = 0  # of the sync that `flush` asks for
        self.waits = False  # what `confirm` answers

    def has_it_all(self) -> None:
        """Work of every kind, the last step first."""
        self.batch.unflushed.append(Connection(self))
        self.batch.catalog.put_vhost(VirtualHost("v"))
        self.batch.after_commit.append(lambda: self.steps.append("save"))
        self.batch.confirming.append(self)
        self.batch.when_safe(lambda: self.steps.append("safe"))
        self.batch.has_written(self)
        self.batch.scheduled.append(self)

    def deliver_share(self) -> bool:
        self.steps.append("deliver")
        return True

    def flush(self) -> int:
        self.steps.append("write")
        return self.ticket

    def advance(self) -> None:
        self.steps.append("show")

    def charge(self, ticket: int, size: int) -> None:
        self.steps.append(f"charge {size}")

    def grant(self) -> None:
        self.steps.append("grant")

    def end_batch(self, ticket: int) -> bool:
        self.steps.append("confirm")
        return ticket > self.batch.commit.synced

    def confirm(self) -> bool:
        self.steps.append("confirm the rest")
        return self.waits


class Connection:
    """What sends, apart, because a store has a `flush` too."""

    def __init__(self, everything: Everything) -> None:
        self._everything = everything

    def flush(self) -> None:
        self._everything.steps.append("send")


@pytest.fixture
def calls() -> SimpleQueue[Callable[[], None]]:
    return SimpleQueue()


@pytest.fixture
def batch(calls: SimpleQueue[Callable[[], None]]) -> Batch:
    return Batch(calls.put, Catalog.in_memory(), Timers(lambda: 0), lambda error: None, sync=True, files=os)


def test_the_order(batch: Batch) -> None:
    it = Everything(batch)
    it.has_it_all()
    batch.end()
    assert it.steps == ["deliver", "write", "show", "safe", "confirm", "save", "send"]
    it.steps.clear()
    batch.end()
    assert it.steps == []


def test_what_waits_for_a_sync(batch: Batch, calls: SimpleQueue[Callable[[], None]], tmp_path: Path) -> None:
    it = Everything(batch)
    it.has_it_all()
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    it.ticket = batch.commit.ticket(fd)
    drained: list[bool] = []
    batch.end(it, 700)
    batch.held.add(it)
    assert it.steps == ["deliver", "write", "show", "charge 700", "confirm", "save", "send"]
    batch.when_drained(lambda: drained.append(True))
    assert not drained
    it.steps.clear()
    calls.get(timeout=60)()  # the sync is done
    assert it.steps == ["show", "safe", "confirm the rest", "grant"]
    assert drained
    batch.commit.stop()
    os.close(fd)


def test_a_step_that_makes_work_for_an_earlier_one(batch: Batch) -> None:
    it = Everything(batch)
    batch.when_safe(lambda: batch.scheduled.append(it))
    batch.end()
    assert it.steps == ["deliver"]


def test_an_end_within_an_end_does_nothing(batch: Batch) -> None:
    it = Everything(batch)

    def end_again() -> None:
        batch.scheduled.append(it)
        batch.end()
        it.steps.append("behind it")

    batch.when_safe(end_again)
    batch.end()
    assert it.steps == ["behind it", "deliver"]


def test_a_disk_that_refuses(batch: Batch) -> None:
    it = Everything(batch)

    def refuse() -> int:
        raise OSError(errno.EIO, "Input/output error")

    it.flush = refuse  # type: ignore[method-assign]
    it.has_it_all()
    batch.end()
    assert batch.failed is not None
    assert it.steps == ["deliver", "send"], "nothing is confirmed, and the catalog is rolled back"
    batch.when_safe(lambda: it.steps.append("safe"))
    batch.has_written(it)
    batch.end()
    assert it.steps == ["deliver", "send"]


def test_the_next_deadline_is_told_once(batch: Batch) -> None:
    told: list[bool] = []
    batch.rearm = lambda: told.append(True)
    batch.end()
    batch.end()
    assert told == [True]


def test_many_writers_write_before_the_end(calls: SimpleQueue[Callable[[], None]]) -> None:
    stopwatch = Stopwatch()
    batch = Batch(
        calls.put, Catalog.in_memory(), Timers(lambda: 0), lambda error: None, sync=True, files=os, stopwatch=stopwatch
    )
    stopwatch.step = LONG_WRITE  # of the first write
    everything = [Everything(batch) for _ in range(3)]
    batch.has_written(everything[0])
    batch.write()
    batch.has_written(everything[1])
    batch.relieve()
    assert not everything[1].steps, "one is not many"
    batch.has_written(everything[2])
    batch.has_written(everything[0])
    batch.relieve()
    assert [it.steps[-2:] for it in everything] == [["write", "show"]] * 3
    stopwatch.step = 0.0
    for _ in range(20):  # the estimate follows the disk
        batch.has_written(everything[0])
        batch.write()
    for it in everything:
        it.steps.clear()
        batch.has_written(it)
    batch.relieve()
    assert not any(it.steps for it in everything)
    batch.end()
    assert [it.steps for it in everything] == [["write", "show"]] * 3
