"""The Spark job of an archive: each task reads one partition of one queue and writes data files of it.

Rules: one Python worker reads and writes, so the messages never go through the JVM. An error of one partition (gone
messages, a broker that stays away, a full disk) is a result like another: the other partitions of the job go on, and
the caller decides about the queue. Anything else is a mistake in this program, and fails the job.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from harebell.errors import HarebellError
from harebell.spark.jobs.archive.files import write_rows
from harebell.spark.jobs.archive.layout import DataFile
from harebell.spark.queues import reader as queues
from harebell.spark.schema import row_schema
from harebell.spark.streams import reader as streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

    from harebell.spark.options import SourceOptions

__all__ = ["Done", "Work", "run_tasks"]

CONNECT: Final = "pyspark.sql.connect"  # the package of Spark Connect's sessions


@dataclass(frozen=True, slots=True)
class Work:
    """One partition of a queue's batch, as a reader has planned it. `stream`: whether it is one of a stream queue."""

    options: SourceOptions
    partition: InputPartition
    stream: bool


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one Work: the rows that were read and the files that hold them, or the error."""

    rows: int = 0
    files: tuple[DataFile, ...] = field(default=())
    error: HarebellError | None = None


def run_tasks(spark: SparkSession, root: Path, words: int, work: Sequence[Work]) -> list[Done]:
    """The results of all, in their order; a task each. `words` of a routing key name a folder.

    Raises what Spark raises when a worker dies, or fails otherwise.
    """
    tasks = tuple(work)

    def task(number: int) -> bytes:
        return pickle.dumps(written(root, words, number, tasks[number]))

    results = _collected(spark, task, len(tasks))
    return [pickle.loads(each) for each in results]


def written(root: Path, words: int, number: int, work: Work) -> Done:
    """Reads the partition and writes its rows into data files; `number` is the task's."""
    rows = 0

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    read = streams.read_partition if work.stream else queues.read_partition
    try:
        files = write_rows(root, words, number, counted(read(work.options, row_schema(), work.partition)))
    except HarebellError as error:
        return Done(rows, error=error)
    except OSError as error:
        return Done(rows, error=HarebellError(f"the archive cannot be written: {error}"))
    return Done(rows, tuple(files))


def _collected(spark: SparkSession, task: Callable[[int], bytes], count: int) -> list[bytes]:
    """What `task` gives for 0 to count - 1, each in a task of its own.

    An RDD needs none of Spark SQL, whose classes and compiled plans cost the JVM 80 MB and each job 60 ms of CPU; Spark
    Connect has no RDDs.
    """
    if not type(spark).__module__.startswith(CONNECT):
        return spark.sparkContext.parallelize(range(count), count).map(task).collect()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"task": pa.array([number], pa.int64()), "done": pa.array([task(number)], pa.binary())}
                )

    rows = spark.range(0, count, 1, count).mapInArrow(run, "task bigint, done binary").collect()
    return [bytes(row.done) for row in sorted(rows, key=lambda row: row.task)]
