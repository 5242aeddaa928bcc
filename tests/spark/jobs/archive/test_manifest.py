"""The logs of archives, Harebell's own, Delta's and Iceberg's: what counts, once, whole, and who has written it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harebell.errors import DataLoss
from harebell.spark.jobs.archive import manifest
from harebell.spark.jobs.archive.delta import Delta
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.layout import DataFile, Table, Written
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
    log = table.root / "_archive" / "log"
    assert [json.loads(path.read_text())["version"] for path in sorted(log.glob("*.state.json"))] == [4, 8]
    for number in range(1, 9):
        (log / f"{number:012d}.json").unlink()  # not needed any more
    assert table.files() == sorted([*files[2:], both])
    assert table.written("w") == Written(8, 9, 45)


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
