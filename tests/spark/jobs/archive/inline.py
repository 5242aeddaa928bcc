"""Archives whose tasks run in this process: the broker, the files and the log are real, and there is no Spark."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from harebell.spark.jobs.archive import Archived, archive
from harebell.spark.jobs.archive.table import find_table
from harebell.spark.jobs.archive.tasks import Done, Work, written
from tests.spark.conftest import Broker


def run_tasks(spark: object, root: Path, words: int, work: Sequence[Work]) -> list[Done]:
    """As the one of `tasks`."""
    return [pickle.loads(pickle.dumps(written(root, words, number, each))) for number, each in enumerate(work)]


class Session:
    """As much of a session as is asked whether it is still there."""

    def range(self, count: int) -> Session:
        return self

    def count(self) -> int:
        return 1


def run(broker: Broker, path: Path, *queues: str, **options: Any) -> Archived:
    """`archive`, for use with the fixture `inline`, or where it is refused before there is a job."""
    return archive(Session(), broker.url, queues, path, **options)  # type: ignore[arg-type]


def stored(path: Path) -> list[int]:
    """The message ids in the data files that count."""
    files = [pq.ParquetFile(path / file.path).read(["message_id"]) for file in find_table(path).files()]
    return sorted(int(each) for part in files for each in part.column("message_id").to_pylist())
