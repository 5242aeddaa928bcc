"""Stream queues through Spark: filters that are pushed, limits and lag, triggers, retention that was faster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.client.messages import Message, Publication
from harebell.spark import lag, lost
from tests.spark.conftest import Broker, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def options(broker: Broker, **more: str) -> dict[str, str]:
    return {"url": broker.url, "readTimeout": "20", "retryTimeout": "5", **more}


def run(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()
    if "processingTime" not in trigger:
        query.awaitTermination()
    return query


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(folder / "out")).select("offset").collect())


def taken(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_pattern_of_routing_keys_and_uses_of_one_frame_with_filters_of_their_own(
    spark: SparkSession, broker: Broker
) -> None:
    queue = broker.queue("stream")
    with broker.bound(queue, "topic") as exchange:
        broker.send(
            Publication(Message(b"%d" % n), exchange, f"orders.{'de' if n % 2 else 'fr'}.{n % 5}") for n in range(200)
        )
    reader = spark.read.format("amqp").options(**options(broker, queue=queue, routingKeyPattern="*.fr.#"))
    rows = reader.option("endingOffsets", f'{{"{queue}": 100}}').load().select("offset")
    union = rows.where("offset < 10").union(rows.where("offset >= 90"))
    assert sorted(row.offset for row in union.collect()) == [*range(0, 10, 2), *range(90, 100, 2)]
    assert rows.count() == 50


def test_partitions_of_a_super_stream_with_a_limit_and_their_lag(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    name = broker.queue("stream")
    queues = [broker.queue("stream", name=f"{name}-{n}") for n in range(2)]
    broker.publish(queues[0], (Message(bytes(100)) for _ in range(900)))
    broker.publish(queues[1], (Message(bytes(100)) for _ in range(300)))
    reader = spark.readStream.format("amqp").options(**options(broker, superstream=name, maxBytesPerTrigger="50000"))
    query = run(reader.schema("queue string, offset bigint").load(), tmp_path, availableNow=True)
    assert taken(query) == [500, 500, 200]
    assert lag(query) == dict.fromkeys(queues, 0)
    rows = spark.read.parquet(str(tmp_path / "out")).groupBy("queue").count().collect()
    assert {row["queue"]: row["count"] for row in rows} == {queues[0]: 900, queues[1]: 300}
    broker.numbered(queues[1], 50)
    assert taken(run(reader.schema("queue string, offset bigint").load(), tmp_path, once=True)) == [50]


def test_a_query_that_runs_goes_on_and_says_how_far_behind_it_is(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 500)
    reader = spark.readStream.format("amqp").options(**options(broker, queue=queue, maxMessagesPerTrigger="200"))
    query = run(reader.schema("offset bigint").load(), tmp_path, processingTime="100 milliseconds")
    query.processAllAvailable()
    broker.numbered(queue, 100, start=500)
    query.processAllAvailable()
    query.stop()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    assert [progress.numInputRows for progress in batches] == [200, 200, 100, 100]
    assert lag(query) == {queue: 0}
    assert numbers(spark, tmp_path) == list(range(600))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_checkpoint_that_retention_has_passed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("stream", {"x-max-length-bytes": 60_000, "x-stream-max-segment-size-bytes": 20_000})
    broker.publish(queue, (Message(bytes(100)) for _ in range(50)))
    reader = spark.readStream.format("amqp").options(**options(broker, queue=queue)).schema("offset bigint")
    run(reader.load(), tmp_path, availableNow=True)
    broker.publish(queue, (Message(bytes(100)) for _ in range(2000)))
    left = broker.ready(queue)
    first = 2050 - left
    assert first > 50
    with pytest.raises(Exception, match="retention") as caught:
        run(reader.load(), tmp_path, availableNow=True)
    assert f"{first - 50:,} messages, 50 to {first - 1}, of queue '{queue}' are gone" in cause(caught.value)
    query = run(reader.option("failOnDataLoss", "false").load(), tmp_path, availableNow=True)
    assert lost(query) == {queue: first - 50}
    assert numbers(spark, tmp_path) == [*range(50), *range(first, 2050)]
