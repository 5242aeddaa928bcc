"""Streaming reads and writes through Spark, against a real broker: restarts, limits, exact counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.messages import Message
from tests.spark.conftest import DRAINED, Broker, cause
from tests.spark.preloaded import Interpreters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, broker: Broker, queue: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("amqp").option("url", broker.url).option("queue", queue).options(**options)
    return reader.schema("queue string, offset bigint, message_id string, body string").load()


def to_parquet(frame: DataFrame, folder: Path) -> StreamingQuery:
    """One availableNow run with its checkpoint beside its output, to its end."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def bodies(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(int(row.body) for row in spark.read.parquet(str(folder / "out")).select("body").collect())


def test_a_restart_goes_on_where_the_checkpoint_is(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 25_000)
    query = to_parquet(stream(spark, broker, queue, maxMessagesPerTrigger="10000"), tmp_path)
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [10_000, 10_000, 5000]
    broker.numbered(queue, 700, start=25_000)
    query = to_parquet(stream(spark, broker, queue, maxMessagesPerTrigger="10000"), tmp_path)
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [700]
    assert bodies(spark, tmp_path) == list(range(25_700))


def test_starting_at_a_number_and_at_the_end(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 100)
    to_parquet(stream(spark, broker, queue, startingOffsets=f'{{"{queue}": 90}}'), tmp_path / "number")
    assert bodies(spark, tmp_path / "number") == list(range(90, 100))
    latest = stream(spark, broker, queue, startingOffsets="latest")
    assert not [p for p in to_parquet(latest, tmp_path / "latest").recentProgress if p.numInputRows]


def test_a_stream_that_was_declared_again_is_data_loss(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue, other = broker.queue("stream"), broker.queue("stream")
    broker.numbered(queue, 50)
    broker.numbered(other, 20)
    to_parquet(stream(spark, broker, queue), tmp_path)
    # A checkpoint that is ahead of the queue: what a deleted and declared queue looks like.
    for offset in (tmp_path / "checkpoint" / "offsets").iterdir():
        if not offset.name.startswith("."):
            offset.write_text(offset.read_text().replace(queue, other))
    for crc in (tmp_path / "checkpoint" / "offsets").glob(".*.crc"):
        crc.unlink()
    with pytest.raises(Exception) as caught:
        to_parquet(stream(spark, broker, other), tmp_path)
    assert "declared again" in cause(caught.value)
    assert "50" in cause(caught.value)


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_work_queue_is_streamed_through_the_spool(
    spark: SparkSession, broker: Broker, tmp_path: Path, spool: str, kind: str
) -> None:
    queue = broker.queue(kind)
    options = {"spool": spool, "maxMessagesPerTrigger": "1000", "prefetch": "300", "dedupWindow": "0"}
    broker.numbered(queue, 2500)
    query = to_parquet(stream(spark, broker, queue, **options), tmp_path)
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [1000, 1000, 500]
    broker.numbered(queue, 100, start=2500)
    to_parquet(stream(spark, broker, queue, **options), tmp_path)
    assert bodies(spark, tmp_path) == list(range(2600))
    assert broker.ready(queue) == 0


def test_triggers_of_a_work_queue(spark: SparkSession, broker: Broker, tmp_path: Path, spool: str) -> None:
    queue = broker.queue("classic")
    broker.publish(queue, (Message(b"%d" % n, headers={"padding": "x" * 50}) for n in range(1000)))
    frame = stream(spark, broker, queue, spool=spool, maxBytesPerTrigger="1000")
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    once = writer.trigger(once=True).start()
    once.awaitTermination()
    assert sum(p.numInputRows for p in once.recentProgress) < 1000
    often = writer.trigger(processingTime="100 milliseconds").start()
    try:
        often.processAllAvailable()
    finally:
        often.stop()
    assert bodies(spark, tmp_path) == list(range(1000))
    assert broker.ready(queue) == 0


def test_from_queue_to_queue(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    first, second = broker.queue("stream"), broker.queue("stream")
    broker.numbered(first, 3000)

    def run() -> None:
        query = (
            stream(spark, broker, first, maxMessagesPerTrigger="1000")
            .select("body")
            .writeStream.format("amqp")
            .option("url", broker.url)
            .option("exchange", "")
            .option("routingKey", second)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    run()  # nothing new: nothing is published again
    rows = spark.read.format("amqp").option("url", broker.url).option("queue", second).load().collect()
    assert sorted(int(row.body) for row in rows) == list(range(3000))
    # <query>/<batch>/<partition>/<row>: another attempt at a batch would give the same ids
    ids = [row.message_id.split("/") for row in rows]
    assert len({query for query, *_ in ids}) == 1
    assert Counter(batch for _, batch, *_ in ids) == {"0": 1000, "1": 1000, "2": 1000}
    assert len({tuple(one) for one in ids}) == 3000


DRIVER = """
import sys
from harebell.spark import session, start_query
sys.executable, url, queue, folder, spool = sys.argv[1:]  # the first starts Spark's workers
spark = session("killed")
reader = spark.readStream.format("amqp").option("url", url).option("queue", queue)
if spool:
    reader = reader.option("spool", spool).option("prefetch", "500")
frame = reader.option("maxMessagesPerTrigger", "2000").schema("message_id string, body string").load()
files = frame.writeStream.format("parquet").option("path", folder + "/out")
files = files.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
start_query(files.start).awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "broker, kind",
    [
        pytest.param("rabbitmq4_server", "classic", marks=pytest.mark.rabbitmq),
        ("harebell_server", "stream"),
    ],
    indirect=["broker"],
)
def test_a_killed_query_is_restarted_with_exact_counts(
    spark: SparkSession, interpreters: Interpreters, broker: Broker, tmp_path: Path, spool: str, kind: str
) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 40_000)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    drains = kind != "stream"
    python = str(interpreters.executable)
    command = [sys.executable, str(script), python, broker.url, queue, str(tmp_path), spool if drains else ""]
    commits = tmp_path / "checkpoint" / "commits"
    with (tmp_path / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            command,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    deadline = time.monotonic() + 120
    try:
        # Killed in the middle of a batch: another one is always in the making, there are 20 of them.
        while len(list(commits.glob("[0-9]*"))) < 3:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the driver made no progress"
            time.sleep(0.02)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(list(commits.glob("[0-9]*"))) < 20
    options = {"maxMessagesPerTrigger": "20000", **({"spool": spool} if drains else {})}
    frame = stream(spark, broker, queue, **options).select("message_id", "body")
    to_parquet(frame, tmp_path)
    assert bodies(spark, tmp_path) == list(range(40_000))
    if drains:
        assert broker.ready(queue) == 0
