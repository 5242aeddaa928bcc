"""Writes through Spark, against a real broker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.blocking import connect
from tests.spark.conftest import Broker, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    frame.write.format("amqp").mode("append").option("url", broker.url).options(**options).save()


def read(spark: SparkSession, broker: Broker, queue: str) -> DataFrame:
    return spark.read.format("amqp").option("url", broker.url).option("queue", queue).load()


def test_what_is_written_is_there_and_has_ids(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    save(
        spark.range(0, 12_000, numPartitions=2).selectExpr("cast(id as string) body"),
        broker,
        exchange="",
        routingKey=queue,
    )
    rows = read(spark, broker, queue).select("body", "message_id", "delivery_mode").collect()
    assert sorted(int(row.body) for row in rows) == list(range(12_000))
    assert {row.delivery_mode for row in rows} == {2}
    parts = [row.message_id.split("/") for row in rows]
    assert len({part[0] for part in parts}) == 1
    assert sorted((int(p), int(n)) for _, _, p, n in parts) == [(p, n) for p in (0, 1) for n in range(6000)]


def test_columns_become_properties_and_rows_choose_their_exchange(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    frame = spark.sql(
        f"""select binary('x') value, '{queue}' routing_key, '' exchange, '{{"a":[1,{{"b":null}}]}}' headers,
              'application/json' content_type, 3 priority, 'corr' correlation_id, 'me' message_id,
              timestamp'2026-01-05 12:00:00' timestamp, 'app' app_id, 1 delivery_mode"""
    )
    save(frame, broker)
    (row,) = read(spark, broker, queue).collect()
    assert (row.body, row.content_type, row.priority, row.correlation_id) == (b"x", "application/json", 3, "corr")
    assert (row.message_id, row.app_id, row.delivery_mode) == ("me", "app", 1)
    first = frame.first()
    assert first is not None
    assert row.timestamp == first.timestamp


def test_a_map_column_is_a_header_table(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    save(
        spark.sql("select 'x' body, map('a', '1', 'b', null) headers union all select 'y', null"),
        broker,
        exchange="",
        routingKey=queue,
        ids="none",
    )
    rows = {row.body.decode(): row for row in read(spark, broker, queue).collect()}
    assert json.loads(rows["x"].headers) == {"a": "1", "b": None}
    assert rows["y"].headers is None
    assert rows["y"].message_id is None


def test_rows_that_were_read_can_be_written(spark: SparkSession, broker: Broker, spool: str) -> None:
    first, second = broker.queue("stream"), broker.queue("classic")
    broker.numbered(first, 100)
    save(read(spark, broker, first), broker, exchange="", routingKey=second)
    frame = spark.read.format("amqp").option("url", broker.url).option("queue", second).option("spool", spool).load()
    assert sorted(int(row.message_id) for row in frame.collect()) == list(range(100))


def test_a_message_that_reaches_no_queue_fails_the_write(spark: SparkSession, broker: Broker) -> None:
    frame = spark.sql("select 'x' body")
    with pytest.raises(Exception) as caught:
        save(frame, broker, exchange="", routingKey="spark.nowhere")
    assert "Unroutable" in cause(caught.value)
    save(frame, broker, exchange="", routingKey="spark.nowhere", mandatory="false")


def test_properties_by_option_and_the_rows_that_reach_no_queue(spark: SparkSession, broker: Broker) -> None:
    queue, lost = broker.queue("stream"), broker.queue("stream")
    with connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.exchange_declare(lost, "fanout", durable=True)
        channel.queue_bind(lost, lost)
        save(
            spark.sql(f"select 'x' body, '{queue}' routing_key, null app_id union all select 'y', 'nowhere', 'own'"),
            broker,
            exchange="",
            onUnroutable="alternate",
            alternateExchange=lost,
            appId="job",
            contentType="text/plain",
            headers='{"run":7}',
        )
        channel.exchange_delete(lost)
    found = [read(spark, broker, name).first() for name in (queue, lost)]
    told = [(r.body, r.routing_key, r.app_id, r.content_type, r.headers) for r in found if r is not None]
    assert told == [
        (b"x", queue, "job", "text/plain", '{"run":7}'),
        (b"y", "nowhere", "own", "text/plain", '{"run":7}'),
    ]


def test_a_partition_in_a_transaction_is_there_as_a_whole_or_not_at_all(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    where = {"exchange": "", "routingKey": queue, "transactions": "partition"}
    numbers = "from range(0, 4000, 1, 2)"
    with pytest.raises(Exception, match="bad row"):
        save(
            spark.sql(f"select if(id = 1500, raise_error('bad row'), cast(id as string)) body {numbers}"),
            broker,
            **where,
        )
    save(spark.sql(f"select cast(id as string) body {numbers}"), broker, **where)
    # The other task of the write that failed may have committed, even after the write was given up.
    arrived = Counter(int(row.body) for row in read(spark, broker, queue).select("body").collect())
    once = Counter(range(4000))
    assert arrived in (once, once + Counter(range(2000, 4000)))


def test_a_batch_that_is_replayed_can_be_told_apart(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Its ids are the same, so a queue that is asked to drops the copies, and so does a consumer."""
    on_harebell = broker.product == "Harebell"
    plain, exchange = broker.queue("stream"), broker.queue("classic")
    dropping = broker.queue("classic", {"x-message-deduplication": True, "x-cache-size": 10_000} if on_harebell else {})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("".join(f"{n}\n" for n in range(2000)))
    frame = spark.readStream.format("text").load(str(tmp_path / "in"))

    def run() -> None:
        query = (
            frame.writeStream.format("amqp")
            .option("url", broker.url)
            .options(exchange=exchange, routingKey="", dedup="broker")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.exchange_declare(exchange, "fanout", durable=True)
        channel.queue_bind(plain, exchange)
        channel.queue_bind(dropping, exchange)
        run()
        for file in (tmp_path / "checkpoint" / "commits").iterdir():
            file.unlink()  # as if the driver had died before it wrote this down
        run()
        channel.exchange_delete(exchange)
    rows = read(spark, broker, plain)
    assert rows.count() == 4000
    assert rows.dropDuplicates(["message_id"]).count() == 2000
    assert rows.select("message_id", "body").distinct().count() == 2000
    assert broker.ready(dropping) == (2000 if on_harebell else 4000)


@pytest.mark.parametrize(
    "query, options, said",
    [
        ("select 'x' body", {"exchange": ""}, "give option 'routingKey' or a column 'routing_key'"),
        (
            "select 'x' body",
            {"exchange": "", "routingKey": "", "queue": "q"},
            "option 'queue' is for reads, and this is a write",
        ),
    ],
)
def test_what_cannot_be_written_is_said(spark: SparkSession, query: str, options: dict[str, str], said: str) -> None:
    """Before a broker is needed; what else cannot is in test_outgoing."""
    with pytest.raises(Exception) as caught:
        spark.sql(query).write.format("amqp").mode("append").options(**options).save()
    assert said in cause(caught.value)


def test_overwrite_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception) as caught:
        spark.sql("select 'x' body").write.format("amqp").mode("overwrite").save()
    assert "mode('append')" in cause(caught.value)
