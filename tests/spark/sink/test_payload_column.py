"""Struct columns written as Avro bodies: what arrives, and what is refused before and during a write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from harebell.errors import InvalidArgument
from harebell.spark.options import sink_options
from harebell.spark.payload.avro import AvroDecoder, AvroEncoder, avro_type
from harebell.spark.payload.content import Content
from harebell.spark.payload.registry import FolderRegistry
from harebell.spark.schema import arrow_schema
from harebell.spark.sink.payload_column import message_schema
from harebell.spark.sink.writer import publish
from harebell.spark.source import AmqpDataSource
from tests.spark.conftest import Broker
from tests.spark.payload.test_avro import SCHEMA, VALUE, encode, record

SMALL = record(("id", "long"), ("name", ["null", "string"]))
KIND = avro_type(json.dumps(SMALL))
WRITE = {"url": "amqp://localhost", "exchange": "", "routingKey": "q", "payload": "avro"}


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def arrow_of(schema: Any) -> pa.DataType:
    return arrow_schema(columns(payload=avro_type(json.dumps(schema)))).field(0).type


def test_every_type_comes_back() -> None:
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "uuid"', '"x": 1').replace("time-millis", "none"))
    kind = arrow_of(SCHEMA)
    values = [{**VALUE, "tags": [("a", 1)]}, {**VALUE, "tags": [], "carrier": None, "delay": None, "stops": []}]
    bodies = AvroEncoder(json.dumps(SCHEMA))(pa.array(values, kind)).to_pylist()
    assert bodies[0] == encode(plain, VALUE)
    content = Content(list(bodies), "utf-8")
    assert (AvroDecoder(json.dumps(SCHEMA), kind)(content).to_pylist(), content.reasons) == (values, {})


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_bodies_with_an_id_arrive_and_are_read(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SMALL, indent=1))
    queue = broker.queue("classic")
    given = {**WRITE, "url": broker.url, "routingKey": queue, "payloadSchema": str(tmp_path / "7.avsc")}
    options = AmqpDataSource({**given, "schemaRegistry": str(tmp_path)}).write_options()
    assert options.body_prefix == b"\0\0\0\0\7"
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["t"] * 2), pa.array(rows, arrow_of(SMALL)), pa.array([None, "x"])], ["type", "payload", "app_id"]
    )
    schema = columns(type=StringType(), payload=KIND, app_id=StringType())
    assert publish([batch], options, schema, "query/0/0").count == 2
    from tests.spark.sink.test_writer import drained

    found = drained(broker.url, queue)
    assert [message_id for message_id, _ in found] == ["query/0/0/0", "query/0/0/1"]
    content = Content([body for _, body in found], "utf-8")
    read = AvroDecoder(json.dumps(SMALL), arrow_of(SMALL), FolderRegistry(tmp_path))(content)
    assert (read.to_pylist(), content.reasons) == (rows, {})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([None], "column 'payload' is null in a row"),
        ([{"id": None, "name": "a"}], "column 'payload' is no record of 'payloadSchema' in a row: "),
    ],
)
def test_a_row_that_is_no_record_is_refused(rows: list[Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        AvroEncoder(json.dumps(SMALL))(pa.array(rows, arrow_of(SMALL)))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (columns(body=BinaryType()), "payload=avro writes the column 'payload', a struct, and there is none"),
        (columns(payload=KIND, body=BinaryType()), "drop the column 'body'"),
        (
            columns(payload=columns(id=LongType())),
            r"is struct<id:bigint>, and with this 'payloadSchema' must be struct<id:bigint,name:string>",
        ),
    ],
)
def test_columns_that_are_refused(schema: StructType, said: str) -> None:
    options = sink_options({**WRITE, "payloadSchema": json.dumps(SMALL)})
    with pytest.raises(InvalidArgument, match=said):
        message_schema(schema, options)


def test_columns_where_no_payload_is_written() -> None:
    schema = columns(body=BinaryType())
    assert message_schema(schema, sink_options({**WRITE, "payload": "binary"})) is schema
    named = columns(payload=StructType(KIND.fields), type=StringType())
    changed = message_schema(named, sink_options({**WRITE, "payloadSchema": json.dumps(SMALL)}))
    assert changed == columns(body=BinaryType(), type=StringType())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "payload=avro needs option 'payloadSchema'"),
        ({"payload": "binary", "payloadSchema": "{}"}, "'payloadSchema' means nothing here: it goes with payload=avro"),
        ({"payload": "binary", "schemaRegistry": "x"}, "'schemaRegistry' means nothing here"),
        ({"payload": "json"}, "option 'payload' is 'json'"),
        ({"payloadSchema": "{"}, "option 'payloadSchema' is no Avro schema"),
        ({"payloadSchema": json.dumps(SMALL), "schemaRegistry": "nowhere"}, "'nowhere' is no folder on this machine"),
        ({"payloadSchema": json.dumps(SMALL), "schemaRegistry": "EMPTY"}, "is not in the registry '/.*'"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], said: str, tmp_path: Path) -> None:
    given = {name: value.replace("EMPTY", str(tmp_path)) for name, value in given.items()}
    check: Callable[[], Any] = AmqpDataSource({**WRITE, **given}).write_options
    with pytest.raises(InvalidArgument, match=said):
        check()
