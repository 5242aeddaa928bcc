"""Payloads and headers through Spark, against a real broker."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.client.blocking import connect
from harebell.client.messages import Delivery, Message
from harebell.protocol.v091.typed_values import FarSeconds
from harebell.spark import infer_schema
from tests.spark.conftest import Broker, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FLIGHTS = [
    Message(b'{"id":1,"origin":{"code":"EWR"},"delays":[1.5,null]}', message_id="a"),
    Message(gzip.compress(b'{"id":2,"late":true}'), content_encoding="gzip", message_id="b"),
    Message(b"{x}", message_id="c", headers={"n": 1, "CC": ["elsewhere"]}, expiration="600000"),
    Message(b'{"id":"4"}', message_id="d"),
]
TYPE = "id bigint, origin struct<code: string>, delays array<double>"
NOT_JSON = "not JSON: JSON is malformed: object keys must be strings (byte 1)"
NO_NUMBER = "Expected `int | null`, got `str` - at `$.id`"


def load(spark: SparkSession, broker: Broker, queue: str, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("amqp").option("url", broker.url).option("queue", queue).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def take(broker: Broker, queue: str) -> list[Delivery]:
    """What is in a queue, taken."""
    with connect(broker.url, timeout=30.0) as connection:
        channel = connection.channel()
        taken = []
        while (delivery := channel.get(queue, no_ack=True)) is not None:
            taken.append(delivery)
        return taken


def test_json_by_a_type_with_the_bad_rows_in_a_column(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.publish(queue, FLIGHTS)
    frame = load(spark, broker, queue, payload="json", payloadSchema=TYPE)
    assert frame.columns[-3:] == ["body", "payload", "_corrupt"]
    assert frame.schema["payload"].dataType.simpleString() == (
        "struct<id:bigint,origin:struct<code:string>,delays:array<double>>"
    )
    rows = frame.orderBy("offset").select("message_id", "payload", "_corrupt").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"message_id": "a", "payload": {"id": 1, "origin": {"code": "EWR"}, "delays": [1.5, None]}, "_corrupt": None},
        {"message_id": "b", "payload": {"id": 2, "origin": None, "delays": None}, "_corrupt": None},
        {"message_id": "c", "payload": None, "_corrupt": NOT_JSON},
        {"message_id": "d", "payload": None, "_corrupt": NO_NUMBER},
    ]


def test_a_type_from_a_sample_and_a_bad_row_that_fails(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.publish(queue, FLIGHTS[:3])
    expected = "id bigint, origin struct<code: string>, delays array<double>, late boolean"
    assert infer_schema(broker.url, queue) == expected
    frame = load(spark, broker, queue, payload="json", badRows="fail")
    assert frame.schema["payload"].dataType.simpleString() == (
        "struct<id:bigint,origin:struct<code:string>,delays:array<double>,late:boolean>"
    )
    with pytest.raises(Exception) as caught:
        frame.select("payload.id").collect()
    assert f"message 2 of queue '{queue}' (message_id 'c') cannot be read: {NOT_JSON}" in cause(caught.value)


def test_a_type_from_a_dataframe_of_bodies(spark: SparkSession) -> None:
    bodies = spark.createDataFrame(
        [(b'{"id":1,"b c":{"x":1.5},"l":[]}',), (b'{"id":2,"n":null,"e":{}}',), (b"?",)], "body binary"
    )
    assert sorted(infer_schema(bodies).split(", ")) == [
        "`b c` struct<x: double>",
        "e map<string,string>",
        "id bigint",
        "l array<string>",
        "n string",
    ]


def test_bad_rows_of_a_drained_queue_go_to_an_exchange(spark: SparkSession, broker: Broker, spool: str) -> None:
    queue, dead = broker.queue("classic"), broker.queue("classic")
    broker.publish(queue, FLIGHTS)
    options = {"payload": "json", "badRows": "dead-letter", "badRowsExchange": "", "badRowsRoutingKey": dead}
    schema = "message_id string, payload struct<id: bigint>"
    frame = load(spark, broker, queue, schema, spool=spool, ticket="t", **options)
    assert sorted((row.message_id, row.payload.id) for row in frame.collect()) == [("a", 1), ("b", 2)]
    first, second = take(broker, dead)
    assert (first.body, first.properties.message_id, first.properties.expiration) == (b"{x}", "c", None)
    assert first.properties.headers == {
        "n": 1,
        "x-bad-row-cc": ["elsewhere"],
        "x-bad-row-expiration": "600000",
        "x-bad-row-reason": NOT_JSON,
        "x-bad-row-queue": queue,
        "x-bad-row-exchange": "",
        "x-bad-row-routing-key": queue,
    }
    assert second.body == b'{"id":"4"}'
    # Where they cannot go, the task fails, and the rows are still there.
    options["badRowsRoutingKey"] = "nowhere"
    with pytest.raises(Exception) as caught:
        load(spark, broker, queue, schema, spool=spool, ticket="t", **options).collect()
    assert "Unroutable" in cause(caught.value)


def test_text_and_headers_as_a_map(spark: SparkSession, broker: Broker) -> None:
    queue = broker.queue("stream")
    broker.publish(
        queue,
        [
            Message("é".encode("latin-1"), content_type="text/plain; charset=latin-1", headers={"n": 1, "s": "x"}),
            Message(b"\xff"),
        ],
    )
    schema = "offset bigint, payload string, headers_map map<string,string>, why string"
    frame = load(spark, broker, queue, schema, payload="text", corruptColumn="why")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (0, "é", {"n": "1", "s": "x"}, None),
        (1, None, None, "not utf-8 text: invalid start byte at byte 0"),
    ]


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_streaming_read(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("stream")
    broker.publish(queue, FLIGHTS)
    reader = spark.readStream.format("amqp").option("url", broker.url).option("queue", queue).option("payload", "json")
    with pytest.raises(Exception, match="a streaming read with payload=json needs option 'payloadSchema'"):
        reader.option("maxMessagesPerTrigger", "3").load()

    def run(frame: DataFrame, folder: Path) -> list[Any]:
        rows = frame.select("offset", "payload.id", "_corrupt").writeStream.format("parquet")
        query = rows.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return sorted(tuple(row) for row in spark.read.parquet(str(folder / "out")).collect())

    expected = [(0, 1, None), (1, 2, None), (2, None, NOT_JSON), (3, None, NO_NUMBER)]
    by_option = reader.option("payloadSchema", TYPE).option("maxMessagesPerTrigger", "3").load()
    assert run(by_option, tmp_path / "option") == expected


def test_headers_are_the_same_after_a_journey(spark: SparkSession, broker: Broker, spool: str) -> None:
    queue = broker.queue("classic")
    table: dict[str, Any] = {
        "text": "é",
        "not text": b"\xff\xfe",
        "n": 1,
        "big": 1 << 40,
        "x": 1.5,
        "whole": 2.0,
        "yes": True,
        "none": None,
        "at": datetime(2026, 1, 5, 12, tzinfo=UTC),
        "far": FarSeconds(1_700_000_000_000),
        "price": Decimal("1.50"),
        "list": [1, {"deep": Decimal("0.1")}],
        "like": {"!base64": "AAE="},
        "text like": "2026-01-05T12:00:00Z",
    }
    broker.publish(queue, [Message(b"x", headers=table)])
    frame = load(spark, broker, queue, spool=spool)
    frame.write.format("amqp").mode("append").options(url=broker.url, toOrigin="true").save()
    (delivery,) = take(broker, queue)
    got = delivery.properties.headers
    assert got == table
    assert {name: type(value) for name, value in got.items()} == {name: type(value) for name, value in table.items()}


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_avro_with_a_schema_registry_written_and_read(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    fields = (
        '{"name":"id","type":"long"},{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},'
        '{"name":"tags","type":{"type":"map","values":"int"}}'
    )
    old = f'{{"type":"record","name":"R","fields":[{fields}]}}'
    new = f'{{"type":"record","name":"R","fields":[{fields},{{"name":"seats","type":"int","default":180}}]}}'
    (tmp_path / "1.avsc").write_text(old)
    (tmp_path / "2.avsc").write_text(new)
    queue = broker.queue("stream")
    rows = spark.sql(
        "select struct(id, timestamp'2026-01-05 12:00:00Z' as at, map('a', 1) as tags) as payload from range(3)"
    )
    to = {"url": broker.url, "exchange": "", "routingKey": queue}
    avro = {"payload": "avro", "payloadSchema": old, "schemaRegistry": str(tmp_path)}
    rows.write.format("amqp").mode("append").options(**to, **avro).save()
    broker.publish(queue, [Message(b"\0\0\0\0\1\2")])
    frame = load(spark, broker, queue, **{**avro, "payloadSchema": new})
    read = [row.asDict(recursive=True) for row in frame.orderBy("payload.id").select("payload", "_corrupt").collect()]
    assert read[0]["payload"] is None
    assert read[0]["_corrupt"].startswith("not Avro of schema 1: ")
    assert [(row["payload"]["id"], row["payload"]["tags"], row["payload"]["seats"]) for row in read[1:]] == [
        (number, {"a": 1}, 180) for number in range(3)
    ]
    assert {row["payload"]["at"].timestamp() for row in read[1:]} == {datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()}
