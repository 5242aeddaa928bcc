"""The logs of archives, Harebell's own, Delta's and Iceberg's: what counts, once, whole, and who has written it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harebell.errors import DataLoss
from harebell.spark.jobs.archive import manifest
from harebell.spark.jobs.archive.delta import Delta
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.layout import DataFile, Table, Written, data_file
from harebell.spark.jobs.archive.manifest import Manifest
from tests.spark.jobs.filling import data

Make = Callable[[Path], Table]


@pytest.fixture(params=[Manifest.make, Delta.make, Iceberg.make], ids=["manifest", "delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    make: Make = request.param
    return make(tmp_path / "archive")


def test_a_batch_counts_once(table: Table) -> None:
    first, second = data(table, 2), data(table, 3)
    assert table.written("w") is None
    assert table.add([first], "w", 0)
    assert table.written("w") == Written(0, 2, 2)
    assert not table.add([second], "w", 0)
    assert table.files() == [first]
    assert table.add([second], "w", 1)
    assert not table.add([second], "w", 0)
    assert table.add([third := data(table, 5)], "other", 0)
    assert table.files() == sorted([first, second, third])
    assert (table.written("w"), table.written("other")) == (Written(1, 3, 5), Written(0, 5, 5))


def test_files_are_exchanged_together(table: Table) -> None:
    old = [data(table, 2), data(table, 3)]
    table.add(old, "w", 0)
    new = data(table, 5)
    table.replace(old, [new])
    assert table.files() == [new]
    assert table.written("w") == Written(0, 5, 5)
    assert table.expired(0.0) == sorted(file.path for file in old)
    assert table.expired(3600.0) == []


def test_what_is_not_there_is_not_exchanged(table: Table) -> None:
    old = [data(table, 2), data(table, 3)]
    table.add(old[:1], "w", 0)
    with pytest.raises(DataLoss, match="exchanged or removed meanwhile"):
        table.replace(old, [data(table, 5)])
    assert table.files() == old[:1]


class Killed(BaseException):
    """Stands in for kill -9."""


@pytest.mark.parametrize(("step", "there"), [("commit", False), ("committed", True)])
def test_a_crash_leaves_one_or_the_other(tmp_path: Path, step: str, there: bool) -> None:
    table = Manifest.make(tmp_path / "archive")
    old = [data(table, 2), data(table, 3)]
    table.add(old, "w", 0)
    new = data(table, 5)

    def crash(name: str) -> None:
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        Manifest(table.root, crash).replace(old, [new])
    assert table.files() == ([new] if there else sorted(old))


def test_two_writers_at_once(tmp_path: Path) -> None:
    table = Manifest.make(tmp_path / "archive")
    mine, theirs = data(table, 2), data(table, 3)
    others = iter([lambda: table.add([theirs], "other", 0)])

    def meanwhile(name: str) -> None:
        if name == "commit":
            next(others, lambda: None)()

    assert Manifest(table.root, meanwhile).add([mine], "w", 0)
    assert table.files() == sorted([mine, theirs])
    assert table.state().version == 2


def test_the_same_batch_twice_at_once(tmp_path: Path) -> None:
    table = Manifest.make(tmp_path / "archive")
    mine, theirs = data(table, 2), data(table, 2)
    others = iter([lambda: table.add([theirs], "w", 0)])

    def meanwhile(name: str) -> None:
        if name == "commit":
            next(others, lambda: None)()

    assert not Manifest(table.root, meanwhile).add([mine], "w", 0)
    assert table.files() == [theirs]


def test_a_long_log_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "STATE_EVERY", 4)
    table = Manifest.make(tmp_path / "archive")
    files = [data(table, n + 1) for n in range(9)]
    for n, file in enumerate(files):
        table.add([file], "w", n)
    table.replace(files[:2], [both := data(table, 3)])
    assert log_of(table) == ["4.state", "8.state", "9", "10"]
    assert table.files() == sorted([*files[2:], both])
    assert table.written("w") == Written(8, 9, 45)


def log_of(table: Manifest) -> list[str]:
    """The files of the log, by their numbers."""
    names = sorted(path.name for path in (table.root / "_archive" / "log").iterdir())
    return [name.removesuffix(".json").lstrip("0") for name in names]


def few(table: Manifest, first: int, count: int) -> None:
    for batch in range(first, first + count):
        assert table.add([data(table, 1)], "w", batch)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Manifest:
    """An archive whose log is summed up at every second commit."""
    monkeypatch.setattr(manifest, "STATE_EVERY", 2)
    return Manifest.make(tmp_path / "archive")


def test_the_log_stays_short(short: Manifest) -> None:
    few(short, 0, 21)
    assert log_of(short) == ["18.state", "20.state", "21"]
    assert short.written("w") == Written(20, 1, 21)


def test_what_dead_writers_left_is_deleted_a_day_later(short: Manifest) -> None:
    log = short.root / "_archive" / "log"
    for name, age in (("old", 25 * 3600), ("young", 23 * 3600)):
        file = log / f"{name}.json.1.2.tmp"
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    few(short, 0, 2)
    assert [path.name for path in log.glob("*.tmp")] == ["young.json.1.2.tmp"]


@pytest.mark.parametrize("step", ["listed", "commit"])
@pytest.mark.parametrize("commits", range(1, 8))
def test_a_writer_that_was_slow_loses_nothing(short: Manifest, step: str, commits: int) -> None:
    """Its number was taken, deleted, and is free: it takes another one."""
    few(short, 0, 1)
    others = iter([lambda: few(short, 1, commits)])

    def meanwhile(name: str) -> None:
        if name == step:
            next(others, lambda: None)()

    slow = Manifest(short.root, meanwhile)
    mine = data(short, 1)
    assert slow.add([mine], "slow", 0)
    assert mine in short.files()
    assert short.written("slow") == Written(0, 1, 1)
    assert len(short.files()) == commits + 2
    assert not slow.add([data(short, 1)], "slow", 0)
    old, new = short.files()[:2], data(short, 2)
    others = iter([lambda: few(short, 1 + commits, commits)])
    slow.replace(old, [new])
    assert new in short.files()
    assert not set(old) & set(short.files())
    assert len(short.files()) == 2 * commits + 1


@pytest.mark.parametrize("commits", range(1, 8))
def test_a_writer_whose_commit_was_summed_up_meanwhile_commits_once(short: Manifest, commits: int) -> None:
    others = iter([lambda: few(short, 0, commits)])

    def meanwhile(name: str) -> None:
        if name == "committed":
            next(others, lambda: None)()

    mine = data(short, 1)
    assert Manifest(short.root, meanwhile).add([mine], "slow", 0)
    assert short.state().version == commits + 1
    assert len(short.files()) == commits + 1


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("commits", range(1, 8))
def test_a_reader_that_was_slow_sees_what_is_there(short: Manifest, before: int, commits: int) -> None:
    few(short, 0, before)
    others = iter([lambda: few(short, before, commits)])

    def meanwhile(name: str) -> None:
        if name == "listed":
            next(others, lambda: None)()

    assert Manifest(short.root, meanwhile).state().version == before + commits


class Disk:
    """Dies at the operation with a number, and from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        for name in ("fsync", "link", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, work: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: Any, **named: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed
            work(*arguments, **named)

        return counted


@pytest.mark.repeats
def test_a_kill_at_any_point_loses_nothing(short: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    few(short, 0, 3)
    batch, kills = 2, 0
    for last in itertools.count():
        file = data(short, 1)  # synced before the disk is counted
        before = short.state()
        with monkeypatch.context() as patched:
            disk = Disk(patched, last)
            try:
                short.add([file], "w", batch + 1)
            except Killed:
                kills += 1
        after = short.state()
        assert after.version - before.version in (0, 1)
        assert after.writers["w"].total == len(after.files) == after.version
        batch = after.writers["w"].batch
        if disk.left > 0 and after.version % 2 == 0:
            break  # a commit with its state was done whole
    assert kills > 8
    few(short, batch + 1, 4)
    assert not [name for name in log_of(short) if name.isdigit() and int(name) <= short.state().version - 2]


@pytest.mark.parametrize("gone", ["4.state", "5"])
def test_a_log_with_a_gap_is_said(short: Manifest, gone: str) -> None:
    few(short, 0, 4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest, "STATE_EVERY", 100)
        few(short, 4, 2)
    number, _, state = gone.partition(".")
    log = short.root / "_archive" / "log"
    for other in log.glob("*2.state.json"):
        other.unlink()
    (log / f"{int(number):012d}{'.state' if state else ''}.json").unlink()
    with pytest.raises(DataLoss, match=r"lacks 0+\d\.json.*from a backup"):
        short.files()
    with pytest.raises(DataLoss):
        short.add([data(short, 1)], "w", 9)


def test_writers_and_readers_at_once(short: Manifest) -> None:
    """Each of several threads commits its batches, one reads: the rows only grow, and all arrive once."""
    writers, each = 3, 40
    failed: list[BaseException] = []
    ended = threading.Event()

    def write(name: str) -> None:
        try:
            for batch in range(each):
                file = data_file(f"archive_day=2026-01-05/archive_key=a/archive_queue=q/{name}-{batch}", 1, 1)
                assert short.add([file], name, batch)
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        try:
            count = 0
            while not ended.is_set():
                now = len(short.files())
                assert now >= count
                count = now
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(writers)]
    reader = threading.Thread(target=read)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join(120)
    ended.set()
    reader.join(120)
    assert not failed
    assert len(short.files()) == writers * each
    assert [short.written(f"w{number}") for number in range(writers)] == [Written(each - 1, 1, each)] * writers


def test_many_files_of_delta_have_their_writer_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.spark.jobs.archive.delta.RECENT", 1)
    table = Delta.make(tmp_path / "archive")
    table.add([data(table, 2)], "w", 7)
    table.add([data(table, 3)], "other", 0)
    assert table.written("w") == Written(7, 2, 2)


def test_a_delta_table_is_one_for_others_too(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = Delta.make(tmp_path / "archive")
    files: list[DataFile] = [data(table, 2, "a"), data(table, 3, "b")]
    table.add(files, "w", 0)
    read = DeltaTable(table.root)
    assert read.metadata().partition_columns == ["archive_day", "archive_key", "archive_queue"]
    assert sorted(
        uri.rpartition("/")[2] for uri in read.file_uris(file_pruning_predicate=[("archive_key", "=", "b")])
    ) == [files[1].path.rpartition("/")[2]]
