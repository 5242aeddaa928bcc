"""Reads an archive: as a DataFrame, or to count it row by row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harebell.spark.jobs.archive.layout import read_schema
from harebell.spark.jobs.archive.table import find_table
from harebell.spark.jobs.failures import unwrapped_errors
from harebell.spark.jobs.literal_paths import literal_paths
from harebell.spark.schema import TIMESTAMP_NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Verified", "read", "verify"]


@dataclass(frozen=True, slots=True)
class Verified:
    """An archive counted row by row.

    `rows` are those in the files, `logged` those that the log names. `repeated_offsets` are rows too many with the
    same queue and offset, `repeated_ids` the same for message ids of rows that have no offset: a publisher may well
    give an id twice, so these are no fault by themselves. `far_timestamps` are rows whose timestamp no date holds.
    """

    rows: int
    logged: int
    repeated_offsets: int
    repeated_ids: int
    far_timestamps: int = 0

    @property
    def sound(self) -> bool:
        """Whether every logged row exists, and no message of a stream twice."""
        return self.rows == self.logged and not self.repeated_offsets


def read(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """The archive as it is now: one row a message, all columns of format("amqp") and the archive's own.

    Those are archived_at, archived_row (the order of arrival within one archived_at), and the partition's archive_day,
    archive_key and archive_queue: filters on them skip files. Raises InvalidArgument when there is no archive.
    """
    table = find_table(path)
    files = [str(table.root / file.path) for file in table.files()]
    if not files:
        return spark.createDataFrame([], read_schema())
    return literal_paths(spark).schema(read_schema()).option("basePath", str(table.root)).parquet(*files)


def verify(spark: SparkSession, path: str | os.PathLike[str]) -> Verified:
    """Counts the rows in the files and looks for a message that is there twice."""
    from pyspark.sql import functions as f

    logged = sum(file.rows for file in find_table(path).files())
    frame = read(spark, path)
    numbered = f.col("offset").isNotNull()
    named = ~numbered & f.col("message_id").isNotNull()
    counted = frame.groupBy("queue", "offset", f.when(named, f.col("message_id")).alias("id")).agg(
        f.count("*").alias("count"), f.count(TIMESTAMP_NUMBER).alias("far")
    )
    too_many = f.col("count") - 1
    identified = f.col("id").isNotNull()
    sums = (
        f.sum("count"), f.sum(f.when(numbered, too_many)), f.sum(f.when(identified, too_many)), f.sum("far")
    )  # fmt: skip
    with unwrapped_errors():
        rows, offsets, ids, far = counted.select(*(f.coalesce(each, f.lit(0)) for each in sums)).collect()[0]
    return Verified(rows, logged, offsets, ids, far)
