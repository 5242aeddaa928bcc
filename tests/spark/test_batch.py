"""Batch reads through Spark, against a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from harebell.client.messages import Message
from tests.spark.conftest import DRAINED, Broker, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def load(spark: SparkSession, broker: Broker, queue: str, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("amqp").option("url", broker.url).option("queue", queue).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_a_stream_queue_is_read_whole_and_in_ranges(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.numbered(queue, 25_000)
    frame = load(spark, broker, queue, "queue string, offset bigint, body string", minPartitions="2")
    assert frame.rdd.getNumPartitions() == 2
    assert numbers(frame) == list(range(25_000))
    assert numbers(frame) == list(range(25_000))  # not destroyed by reading
    assert frame.filter("cast(body as bigint) != offset or queue != '" + queue + "'").count() == 0
    part = load(
        spark, broker, queue, "body string", startingOffsets=f'{{"{queue}": 100}}', endingOffsets=f'{{"{queue}": 200}}'
    )
    assert numbers(part) == list(range(100, 200))
    assert load(spark, broker, queue, "body string", startingOffsets="latest").count() == 0


def test_every_column_of_a_message(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    message = Message(
        b"\xff\x00",
        content_type="a/b",
        content_encoding="gzip",
        headers={"k": "v", "n": 7},
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=noon,
        type="t",
        user_id="guest",
        app_id="app",
    )
    broker.publish(queue, [message, Message(b"")])
    first, second = load(spark, broker, queue).orderBy("offset").collect()
    assert json.loads(first.headers) == {"k": "v", "n": 7}
    got = first.asDict()
    del got["headers"]
    assert got == {
        "queue": queue,
        "offset": 0,
        "exchange": "",
        "routing_key": queue,
        "redelivered": False,
        "content_type": "a/b",
        "content_encoding": "gzip",
        "delivery_mode": 2,
        "priority": 4,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": None,
        "message_id": "m",
        "timestamp": first.timestamp,
        "type": "t",
        "user_id": "guest",
        "app_id": "app",
        "timestamp_number": None,
        "body": bytearray(b"\xff\x00"),
    }
    assert first.timestamp.astimezone(UTC) == noon
    assert (second.offset, second.headers, second.body) == (1, None, b"")


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_drained_queue_is_reported_once(spark: SparkSession, broker: Broker, spool: str, kind: str) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 3000)
    frame = load(spark, broker, queue, "body string", spool=spool, prefetch="700")
    assert numbers(frame) == list(range(3000))
    assert broker.ready(queue) == 0
    broker.numbered(queue, 10, start=3000)
    # The same DataFrame is the same drain; another one gets what has come since.
    assert numbers(frame) == list(range(3000))
    assert frame.union(frame).count() == 6000
    assert numbers(load(spark, broker, queue, "body string", spool=spool)) == list(range(3000, 3010))


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_queue_is_drained_by_several_tasks_or_in_order(
    spark: SparkSession, broker: Broker, spool: str, kind: str
) -> None:
    queue, other = broker.queue(kind), broker.queue(kind)
    for name in (queue, other):
        broker.numbered(name, 3000)
    frame = load(spark, broker, queue, "body string", spool=spool, prefetch="500", minPartitions="3")
    assert frame.rdd.getNumPartitions() == 3
    assert numbers(frame) == list(range(3000))
    broker.numbered(queue, 3000)
    both = load(spark, broker, f"{queue},{other}", "queue string, body string", spool=spool, ordered="true")
    rows = both.collect()
    for name in (queue, other):
        assert [int(row.body) for row in rows if row.queue == name] == list(range(3000))


def test_a_named_ticket_is_read_again_by_another_dataframe(spark: SparkSession, broker: Broker, spool: str) -> None:
    queue = broker.queue("classic")
    broker.numbered(queue, 500)
    options = {"spool": spool, "ticket": "monday"}
    assert load(spark, broker, queue, "body string", minPartitions="2", **options).count() == 500
    assert numbers(load(spark, broker, queue, "body string", **options)) == list(range(500))
    away = {"url": "amqp://guest:guest@127.0.0.1:1/", "queueType": "classic", "retryTimeout": "1"}
    assert load(spark, broker, queue, "body string", **options, **away).count() == 500


def test_dead_letters_keep_their_history(spark: SparkSession, broker: Broker, spool: str) -> None:
    dead = broker.queue("classic")
    work = broker.queue("classic", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.numbered(work, 30)
    broker.reject_all(work, 30)
    load(spark, broker, dead, spool=spool).createOrReplaceTempView("dead")
    rows = spark.sql(
        """select message_id, death.queue, death.reason, death.count from (
             select message_id, explode(from_json(get_json_object(headers, '$.x-death'),
               'array<struct<count:bigint,reason:string,queue:string,exchange:string>>')) death from dead)"""
    ).collect()
    assert {(row.queue, row.reason, row["count"]) for row in rows} == {(work, "rejected", 1)}
    assert sorted(int(row.message_id) for row in rows) == list(range(30))


def test_several_queues_of_one_kind(spark: SparkSession, broker: Broker) -> None:
    queues = [broker.queue("stream"), broker.queue("stream")]
    for queue in queues:
        broker.numbered(queue, 50)
    frame = spark.read.format("amqp").option("url", broker.url).option("queues", ",".join(queues)).load()
    assert {(row.queue, row["count"]) for row in frame.groupBy("queue").count().collect()} == {(q, 50) for q in queues}


@pytest.fixture
def wrong(broker: Broker) -> dict[str, tuple[dict[str, str], str]]:
    stream, classic = broker.queue("stream"), broker.queue("classic")
    return {
        "unknown": ({"queue": stream, "prefech": "1"}, "has no option 'prefech'"),
        "no such queue": ({"queue": "spark.nowhere"}, "no queue 'spark.nowhere'"),
        "mixed": ({"queues": f"{stream},{classic}"}, f"of these, {stream} are stream queues"),
        "offsets of a queue": ({"queue": classic, "startingOffsets": "latest"}, "nothing for a classic or quorum"),
        "url": ({"queue": stream, "url": "http://localhost"}, "must start with amqp://"),
    }


def test_what_is_wrong_is_said(
    spark: SparkSession, broker: Broker, wrong: dict[str, tuple[dict[str, str], str]]
) -> None:
    for options, said in wrong.values():
        reader = spark.read.format("amqp").options(**{"url": broker.url, **options})
        with pytest.raises(Exception) as caught:
            reader.load().count()
        assert said in cause(caught.value)
    with pytest.raises(Exception) as caught:
        load(spark, broker, broker.queue("stream"), "payload binary").count()
    assert "has no column 'payload'" in cause(caught.value)
