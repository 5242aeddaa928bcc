"""Small files made large: which, with the same rows, and what is deleted when."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.jobs.archive import read, verify
from harebell.spark.jobs.archive.compaction import Compacted, clean, compact, plan, rewrite
from harebell.spark.jobs.archive.delta import Delta
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.layout import DataFile, Table, data_file, folder_of
from harebell.spark.jobs.archive.manifest import Manifest
from tests.spark.jobs.filling import data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def file(name: str, size: int, day: str = "2026-01-05", key: str = "a") -> DataFile:
    return data_file(f"{folder_of(day, key, 'q')}/{name}", 1, size)


def test_small_files_of_past_days_are_grouped() -> None:
    files = [
        *(file(f"{n}", 30) for n in range(7)),
        file("large", 50),
        file("other", 10, key="b"),
        file("today", 10, day="2026-01-06"),
        file("today too", 10, day="2026-01-06"),
    ]
    groups = plan(files, 100, date(2026, 1, 6))
    assert [[each.path.rpartition("/")[2] for each in group] for group in groups] == [["0", "1", "2"], ["3", "4", "5"]]
    assert plan([], 100, date(2026, 1, 6)) == []


def test_rows_keep_their_order(tmp_path: Path) -> None:
    table = Manifest.make(tmp_path)
    files = sorted([data(table, 3), data(table, 2)])
    made = rewrite(tmp_path, files)
    assert made.rows == 5
    tables = [pq.ParquetFile(tmp_path / each.path).read() for each in (*files, made)]
    assert tables[2].to_pylist() == tables[0].to_pylist() + tables[1].to_pylist()


def test_files_of_an_older_version_get_the_columns_of_this_one(tmp_path: Path) -> None:
    table = Manifest.make(tmp_path)
    old, new = sorted([data(table, 3), data(table, 2)])
    rows = pq.ParquetFile(tmp_path / old.path).read()
    pq.write_table(rows.drop_columns(["timestamp_number"]), tmp_path / old.path)
    assert pq.ParquetFile(tmp_path / rewrite(tmp_path, [old, new]).path).read().schema.equals(rows.schema)


def test_rows_that_are_missing_are_seen(tmp_path: Path) -> None:
    table = Manifest.make(tmp_path)
    good = data(table, 3)
    wrong = DataFile(good.path, good.day, good.key, good.queue, 4, good.size)
    with pytest.raises(DataLoss, match="has 3 rows, and the archive's log says 4"):
        rewrite(tmp_path, [wrong])
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("make", [Manifest.make, Delta.make, Iceberg.make], ids=["manifest", "delta", "iceberg"])
def test_only_what_does_not_count_is_deleted(make: type[Manifest], tmp_path: Path) -> None:
    table: Table = make(tmp_path / "archive")
    old = [data(table, 1), data(table, 2)]
    live, at_work, failed = data(table, 3), data(table, 4), data(table, 5)
    table.add([*old, live], "w", 0)
    table.replace(old, [new := rewrite(table.root, old)])
    two_days_ago = time.time() - 2 * 24 * 3600
    for each in (*old, live, failed):
        os.utime(table.root / each.path, (two_days_ago, two_days_ago))
    assert clean(table, keep=3600.0) == 1
    there = {path.relative_to(table.root).as_posix() for path in table.root.rglob("*.parquet")}
    assert there == {each.path for each in (*old, live, new, at_work)}
    assert clean(table, keep=0.0) == 2
    assert clean(table, keep=0.0) == 0
    assert table.files() == sorted([live, new])


@pytest.mark.spark
@pytest.mark.parametrize("make", [Manifest.make, Delta.make, Iceberg.make], ids=["manifest", "delta", "iceberg"])
def test_a_whole_archive(spark: SparkSession, make: type[Manifest], tmp_path: Path) -> None:
    table: Table = make(tmp_path / "archive")
    for n in range(6):
        table.add([data(table, n + 1, "a"), data(table, 1, "b")], "w", n)
    reading = read(spark, table.root)  # planned before, read after: its files are there still
    before = sorted(map(str, reading.collect()))
    told: list[int] = []
    done = compact(spark, table.root, progress=told.append)
    assert done == Compacted(27, 12, 2, done.bytes_before, done.bytes_after, 0)
    assert (told, done.bytes_before > done.bytes_after) == ([27], True)
    assert sorted(map(str, read(spark, table.root).collect())) == before
    assert sorted(map(str, reading.collect())) == before
    assert verify(spark, table.root).sound
    assert compact(spark, table.root, keep=0.0) == Compacted(0, 0, 0, 0, 0, 12)
    assert sorted(map(str, read(spark, table.root).collect())) == before
    with pytest.raises(InvalidArgument, match="at least 1"):
        compact(spark, table.root, target=0)
