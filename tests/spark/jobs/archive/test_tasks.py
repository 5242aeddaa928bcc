"""The tasks of an archive: in Spark, by both ways there are; and their errors as results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.errors import DataLoss, HarebellError
from harebell.spark.jobs.archive import tasks
from harebell.spark.jobs.archive.tasks import Work, run_tasks, written
from harebell.spark.options import source_options
from harebell.spark.streams.offsets import Range
from harebell.spark.streams.reader import RangePartition
from tests.spark.conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(broker: Broker, queue: str, start: int, end: int) -> Work:
    options = source_options({"url": broker.url, "queue": queue, "readTimeout": "1"}, streaming=True)
    return Work(options, RangePartition(Range(queue, start, end)), stream=True)


@pytest.mark.spark
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("sessions", ["pyspark.sql.connect", "pyspark.sql"], ids=["classic", "connect"])
def test_a_task_each(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: str
) -> None:
    monkeypatch.setattr(tasks, "CONNECT", sessions)  # the second: as if all sessions were of Spark Connect
    queue = broker.queue("stream")
    broker.numbered(queue, 30)
    done = run_tasks(spark, tmp_path, 1, [work(broker, queue, start, start + 10) for start in (20, 0, 25)])
    assert [(each.rows, sum(file.rows for file in each.files)) for each in done] == [(10, 10), (10, 10), (5, 0)]
    assert done[0].error is done[1].error is None
    assert isinstance(done[2].error, DataLoss)


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_folder_that_takes_nothing_is_an_error_in_words(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 5)
    (tmp_path / "file").touch()
    done = written(tmp_path / "file", 1, 0, work(broker, queue, 0, 5))
    assert done.files == ()
    assert type(done.error) is HarebellError
    assert "the archive cannot be written" in str(done.error)
