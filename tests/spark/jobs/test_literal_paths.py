"""Folders whose names are patterns to Spark, read as archives and as plain Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.spark.jobs.archive import read, verify
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.manifest import Manifest
from harebell.spark.jobs.sources import archived
from tests.spark.jobs.filling import data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_names_of_folders_are_no_patterns(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(("a[b]", "[", "{a,b}", "a*", "a?", "a\\b", "a%20b", "a b", "a:b")):
        table = Manifest.make(tmp_path / name)
        file = data(table, number + 1)
        table.add([file], "w", 0)
        assert read(spark, table.root).count() == number + 1, name
        assert verify(spark, table.root).sound, name
        plain = (table.root / file.path).parent
        assert archived(spark, str(plain)).count() == number + 1, name
    for name in ("a[b]c", "a%20c"):
        other = Iceberg.make(tmp_path / name)
        other.add([data(other, 2)], "w", 0)
        assert read(spark, other.root).count() == 2, name
