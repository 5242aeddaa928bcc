"""Merges small files of an archive into large ones with the same rows, while other programs read and write.

Rules: only past days are compacted, because the current one still grows. The new files are complete and on disk
before a commit exchanges them for the old ones; a crash before it leaves files that no log names. Old files
stay for `keep`, for programs that still read them; files that no log names, for a day, for a batch that is still at
work on them. Rows stay in the order of their files, and are counted on the way.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.jobs.archive.files import FileWriter
from harebell.spark.jobs.archive.layout import ORPHAN_SECONDS, PARTITIONS, DataFile, Table, stored_arrow
from harebell.spark.jobs.archive.table import find_writable_table
from harebell.spark.jobs.failures import unwrapped_errors
from harebell.spark.schema import project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Compacted", "clean", "compact", "plan", "rewrite", "small_files"]

TARGET_BYTES: Final = 128 << 20
KEEP_SECONDS: Final = 3600.0
MANY: Final = 500  # data files that one task reads into one: bounds what a crash repeats
AT_ONCE: Final = 64  # groups exchanged by one commit: what a crash makes again
BATCH_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """What `compact` did. `files` and `bytes` are those it exchanged, before and after; `deleted` old files."""

    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    deleted: int


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    target: int = TARGET_BYTES,
    before: date | None = None,
    keep: float = KEEP_SECONDS,
    progress: Callable[[int], None] = lambda rows: None,
) -> Compacted:
    """Rewrites files that are smaller than half of `target` bytes into files of about `target`.

    Of days before `before` (UTC; None: today). Old files are deleted `keep` seconds after they were exchanged, by this
    or a later call. Raises DataLoss, and changes nothing, when the rows that were read are not those of the log.
    """
    if target < 1:
        raise InvalidArgument(f"target is {target} bytes, and must be at least 1")
    table = find_writable_table(path)
    groups = plan(table.files(), target, before or datetime.now(UTC).date())
    old: list[DataFile] = []
    new: list[DataFile] = []
    for start in range(0, len(groups), AT_ONCE):
        wave = groups[start : start + AT_ONCE]
        exchanged = [file for group in wave for file in group]
        made = _rewritten(spark, table.root, wave)
        table.replace(exchanged, made)
        old += exchanged
        new += made
        progress(sum(file.rows for file in new))
    return Compacted(
        sum(file.rows for file in new),
        len(old),
        len(new),
        sum(file.size for file in old),
        sum(file.size for file in new),
        clean(table, keep),
    )


def small_files(files: Sequence[DataFile], target: int = TARGET_BYTES) -> int:
    """How many files `compact` would merge now."""
    return sum(map(len, plan(files, target, datetime.now(UTC).date())))


def plan(files: Sequence[DataFile], target: int, before: date) -> list[list[DataFile]]:
    """Groups of small files of one partition, each to become one file of at most about `target` bytes."""
    small = sorted(file for file in files if file.size * 2 < target and date.fromisoformat(file.day) < before)
    groups = []
    for _, members in groupby(small, key=lambda file: (file.day, file.key, file.queue)):
        group: list[DataFile] = []
        size = 0
        for file in members:
            if group and (size + file.size > target or len(group) == MANY):
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def rewrite(root: Path, group: Sequence[DataFile]) -> DataFile:
    """One new file with the rows of the group's. Raises DataLoss when they are not as many as the log says."""
    writer = FileWriter(root, group[0].path.rpartition("/")[0])
    try:
        for file in group:
            rows = 0
            with pq.ParquetFile(root / file.path) as parquet:
                for batch in parquet.iter_batches(BATCH_ROWS):
                    writer.write(project("", batch, stored_arrow()))
                    rows += batch.num_rows
            if rows != file.rows:
                raise DataLoss(f"{file.path} has {rows:,} rows, and the archive's log says {file.rows:,}")
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def clean(table: Table, keep: float = KEEP_SECONDS) -> int:
    """Deletes data files that do not count: exchanged `keep` seconds ago, or never committed in a day; how many.

    Then the log drops its states from before that, in which these files counted.
    """
    live = {file.path for file in table.files()}
    old = set(table.expired(keep))
    waiting = set(table.expired(0.0)) - old
    deleted = 0
    for file in table.root.glob("/".join(f"{name}=*" for name in PARTITIONS) + "/*.parquet"):
        name = file.relative_to(table.root).as_posix()
        if name in live or name in waiting:
            continue
        if name in old or time.time() - file.stat().st_mtime > ORPHAN_SECONDS:
            file.unlink(missing_ok=True)
            deleted += 1
    table.forget(keep)
    return deleted


def _rewritten(spark: SparkSession, root: Path, groups: Sequence[Sequence[DataFile]]) -> list[DataFile]:
    """The new files, made in tasks."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                made = rewrite(root, [DataFile(*values) for values in json.loads(text)])
                yield pa.RecordBatch.from_pydict({"made": [json.dumps(astuple(made))]})

    rows = [(json.dumps([astuple(file) for file in group]),) for group in groups]
    tasks = spark.createDataFrame(rows, "files string").repartition(len(rows))
    with unwrapped_errors():
        made = tasks.mapInArrow(work, "made string").collect()
    return [DataFile(*json.loads(row.made)) for row in made]
