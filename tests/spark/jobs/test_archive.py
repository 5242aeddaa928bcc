"""`archive` through Spark, against a real broker: exact counts, restarts, what is there read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Broker
from warren.spark.jobs.archive import ArchivedQueue, Verified, archive, read, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ids(spark: SparkSession, path: Path) -> list[int]:
    rows = read(spark, path).select("queue", "message_id").collect()
    return sorted(int(row.message_id) for row in rows)


@pytest.mark.parametrize("table", ["parquet", "delta"])
def test_a_stream_and_a_work_queue_in_one_archive(
    spark: SparkSession, broker: Broker, tmp_path: Path, table: str
) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    broker.numbered(stream, 3000)
    broker.numbered(work, 2000, start=3000)
    path = tmp_path / "archive"
    told: list[int] = []
    done = archive(
        spark, broker.url, [stream, work], path, table=table,  # type: ignore[arg-type]
        options={"maxMessagesPerTrigger": "1500"}, progress=told.append,
    )  # fmt: skip
    assert done.queues == (ArchivedQueue(stream, "stream", 3000, 2), ArchivedQueue(work, "drained", 2000, 2))
    assert (done.added, done.rows, told[-1]) == (5000, 5000, 5000)
    assert broker.ready(work) == 0
    broker.numbered(stream, 100, start=5000)
    again = archive(spark, broker.url, [stream, work], path, table=table)  # type: ignore[arg-type]
    assert again.queues == (ArchivedQueue(stream, "stream", 100, 1), ArchivedQueue(work, "drained", 0, 0))
    assert again.rows == 5100
    assert ids(spark, path) == list(range(5100))
    assert verify(spark, path) == Verified(5100, 5100, 0, 0)
