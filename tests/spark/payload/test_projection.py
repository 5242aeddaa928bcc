from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn, strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import tests.protocol.v091.strategies  # noqa: F401  its profile
from harebell.errors import InvalidArgument, UndecodableBody
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.fields import Table
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.payload import content
from harebell.spark.payload.bad_rows import BadRowsPublisher
from harebell.spark.payload.projection import RowProjection, check_rows, payload_schema
from harebell.spark.schema import COLUMNS, Rows, arrow_schema, row_schema
from tests.spark.fakes import FakeDelivery, as_delivery

MAP = MapType(StringType(), StringType())
IDS = StructType([StructField("id", LongType())])


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def options(**given: str) -> SourceOptions:
    return source_options({"queue": "q", **given}, streaming=False)


def rows(given: SourceOptions, schema: StructType, *deliveries: FakeDelivery) -> list[dict[str, Any]]:
    step = RowProjection(given, schema)
    batch = Rows(step.base).batch("q", deliveries, range(len(deliveries)))  # type: ignore[arg-type]
    made = list(step.over([batch]))
    assert all(part.schema == arrow_schema(schema) for part in made)
    return [row for part in made for row in part.to_pylist()]


def test_without_a_payload_batches_pass_untouched() -> None:
    step = RowProjection(options(), row_schema())
    batch = Rows(step.base).batch("q", [], None)
    assert step.base == row_schema()
    assert list(step.over([batch])) == [batch]


def test_headers_as_a_map() -> None:
    table: Table = {
        "s": "x",
        "n": 1,
        "at": datetime(2026, 1, 5, tzinfo=UTC),
        "l": [1],
        "none": None,
        "\udcff": "\udcfe",
    }
    schema = schema_of(headers_map=MAP, queue=StringType())
    assert rows(options(), schema, FakeDelivery(b"", properties=Properties(headers=table)), FakeDelivery(b"")) == [
        {
            "headers_map": [
                ("s", "x"),
                ("n", "1"),
                ("at", "2026-01-05T00:00:00Z"),
                ("l", "[1]"),
                ("none", None),
                ("\ufffd", "\ufffd"),
            ],
            "queue": "q",
        },
        {"headers_map": None, "queue": "q"},
    ]


def test_json_with_reasons_in_a_column() -> None:
    schema = schema_of(_corrupt=StringType(), payload=IDS, offset=LongType(), body=StringType(), headers_map=MAP)
    assert rows(options(payload="json"), schema, FakeDelivery(b'{"id":1}'), FakeDelivery(b"x")) == [
        {"_corrupt": None, "payload": {"id": 1}, "offset": 0, "body": '{"id":1}', "headers_map": None},
        {
            "_corrupt": "not JSON: JSON is malformed: invalid character (byte 0)",
            "payload": None,
            "offset": 1,
            "body": "x",
            "headers_map": None,
        },
    ]


def test_large_bodies_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "BATCH_INFLATED", 10)
    schema = schema_of(payload=StringType(), offset=LongType(), why=StringType())
    step = RowProjection(options(payload="text", compression="gzip", corruptcolumn="why"), schema)
    bodies = [gzip.compress(b"x" * size) for size in (4, 4, 4, 20, 1)] + [b"?"]
    batch = Rows(step.base).batch("q", [as_delivery(FakeDelivery(body)) for body in bodies], range(6))
    made = list(step.over([batch]))
    assert [part.column("offset").to_pylist() for part in made] == [[0, 1, 2], [3], [4, 5]]
    assert made[2].column("payload").to_pylist() == ["x", None]
    assert made[2].column("why").to_pylist() == [None, "not gzip: it ends too early"]


def test_text_and_a_corrupt_column_of_another_name() -> None:
    schema = schema_of(payload=StringType(), why=StringType())
    assert rows(
        options(payload="text", corruptcolumn="why"), schema, FakeDelivery("é".encode()), FakeDelivery(b"\xff")
    ) == [
        {"payload": "é", "why": None},
        {"payload": None, "why": "not utf-8 text: invalid start byte at byte 0"},
    ]


def test_avro() -> None:
    avro = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
    schema = schema_of(payload=IDS, _corrupt=StringType())
    assert rows(options(payload="avro", payloadschema=avro), schema, FakeDelivery(b"\x02"), FakeDelivery(b"")) == [
        {"payload": {"id": 1}, "_corrupt": None},
        {"payload": None, "_corrupt": "not Avro of the schema: EOFError"},
    ]


def test_avro_with_a_schema_registry(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text('{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}')
    given = {"payload": "avro", "payloadschema": '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'}
    schema = schema_of(payload=IDS, _corrupt=StringType())
    bodies = [FakeDelivery(b"\0\0\0\0\7\2"), FakeDelivery(b"\2")]
    assert rows(options(**given, schemaregistry=str(tmp_path)), schema, *bodies) == [
        {"payload": {"id": 1}, "_corrupt": None},
        {"payload": None, "_corrupt": "not Avro with a schema's id: 1 bytes are too few for a schema's id"},
    ]


def test_a_bad_row_fails_the_task() -> None:
    given, schema = options(payload="json", badrows="fail"), schema_of(payload=IDS)
    assert rows(given, schema, FakeDelivery(b"{}")) == [{"payload": {"id": None}}]
    with pytest.raises(
        UndecodableBody, match="message 1 of queue 'q' cannot be read: not JSON: Input data was truncated"
    ):
        rows(given, schema, FakeDelivery(b"{}"), FakeDelivery(b""))


def test_bad_rows_are_published_before_the_good_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        BadRowsPublisher, "publish", lambda self, batch, reasons: seen.append((batch.schema.names, reasons))
    )
    monkeypatch.setattr(BadRowsPublisher, "close", lambda self: seen.append("closed"))
    given = options(payload="json", badrows="dead-letter", badrowsexchange="dead", extrafields="corrupt")
    schema = schema_of(payload=IDS, offset=LongType(), headers_map=MAP)
    deliveries = [FakeDelivery(b"{}"), FakeDelivery(b'{"x":1}'), FakeDelivery(b'{"id":3}')]
    assert rows(given, schema, *deliveries) == [
        {"payload": {"id": None}, "offset": 0, "headers_map": None},
        {"payload": {"id": 3}, "offset": 2, "headers_map": None},
    ]
    assert seen == [(list(COLUMNS), {1: "Object contains unknown field `x`"}), "closed"]
    assert rows(given, schema, FakeDelivery(b"")) == []


@pytest.mark.parametrize(
    "given, columns, base",
    [
        ({"payload": "json"}, ["payload", "_corrupt"], ["content_type", "content_encoding", "body"]),
        ({"payload": "json", "encoding": "utf-8", "compression": "none"}, ["payload", "_corrupt"], ["body"]),
        ({"payload": "json", "encoding": "utf-8"}, ["payload", "_corrupt"], ["content_encoding", "body"]),
        (
            {"payload": "json", "compression": "gzip"},
            ["payload", "_corrupt"],
            ["content_type", "content_encoding", "body"],
        ),
        (
            {"payload": "json", "encoding": "utf-8", "compression": "none", "badrows": "fail"},
            ["payload"],
            ["queue", "offset", "message_id", "body"],
        ),
        ({"payload": "json", "badrows": "dead-letter", "badrowsexchange": "x"}, ["payload"], list(COLUMNS)),
    ],
)
def test_no_more_columns_are_read_than_needed(given: dict[str, str], columns: list[str], base: list[str]) -> None:
    kinds = {"payload": IDS, "_corrupt": StringType()}
    schema = StructType([StructField(name, kinds[name]) for name in columns])
    assert RowProjection(options(**given), schema).base.fieldNames() == base


def test_the_schema_of_all_columns() -> None:
    kinds = [field.simpleString() for field in row_schema().fields]
    made = payload_schema(options(payload="text").payload, StringType())
    assert isinstance(made, StructType)
    assert [field.simpleString() for field in made.fields] == [*kinds, "payload:string", "_corrupt:string"]
    assert made.fieldNames()[:20] == list(COLUMNS)
    text = payload_schema(options(payload="json", badrows="fail").payload, "a int")
    assert str(text).endswith("`body` binary, payload struct<a int>")
    named = payload_schema(options(payload="json", corruptcolumn="a`b").payload, " STRUCT<a: int>")
    assert str(named).endswith("`body` binary, payload  STRUCT<a: int>, `a``b` string")


JSON = {"payload": "json"}
AVRO = {"payload": "avro", "payloadschema": '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'}
CORRUPT = {"_corrupt": StringType()}


@pytest.mark.parametrize(
    "given, schema, said",
    [
        ({}, {"payload": IDS}, "no column 'payload'; it has: queue, .* headers_map; and with option 'payload'"),
        ({}, {"headers_map": StringType()}, "'headers_map' is map<string,string>, not string"),
        (JSON, {"body": BinaryType()}, "payload=json needs a column 'payload' in the schema"),
        (JSON, {"payload": IDS}, "badRows=column needs a column '_corrupt string'"),
        (JSON, {"payload": IDS, "_corrupt": LongType()}, "badRows=column needs a column '_corrupt string'"),
        (JSON, {"payload": ArrayType(IDS), **CORRUPT}, "'payload' is a struct with payload=json, not array<"),
        (
            JSON,
            {"payload": schema_of(a=schema_of(b=MapType(LongType(), LongType()))), **CORRUPT},
            r"'payload.a.b' is map",
        ),
        ({**JSON, "badrows": "fail"}, {"payload": IDS, **CORRUPT}, "no column '_corrupt'"),
        ({**JSON, "corruptcolumn": "body"}, {"payload": IDS}, "'corruptColumn' is 'body', which is a column already"),
        ({"payload": "text"}, {"payload": IDS, **CORRUPT}, "'payload' is string with payload=text, not struct<id:"),
        (AVRO, {"payload": IDS, **CORRUPT}, "'payload' is struct<a:bigint> with payload=avro, not struct<id:bigint>"),
    ],
)
def test_schemas_that_are_refused(given: dict[str, str], schema: dict[str, DataType], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_rows(schema_of(**schema), options(**given).payload)


@pytest.mark.parametrize("given, kind", [({}, BinaryType()), (JSON, BinaryType()), ({"payload": "text"}, StringType())])
def test_a_column_twice_is_refused(given: dict[str, str], kind: DataType) -> None:
    name = "body" if isinstance(kind, BinaryType) else "payload"
    with pytest.raises(InvalidArgument, match=f"the schema has column '{name}' more than once"):
        check_rows(StructType([StructField(name, kind)] * 2), options(**given).payload)


@drawn(
    st.sampled_from(["json", "text", "avro"]),
    st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([None, "gzip", "deflate", "zstd", "utf-16", "?"]))),
)
def test_any_bytes_make_a_row_or_a_reason(kind: str, sent: list[tuple[bytes, str | None]]) -> None:
    given = options(**AVRO) if kind == "avro" else options(payload=kind)
    type_of = {"json": IDS, "text": StringType(), "avro": schema_of(a=LongType())}[kind]
    deliveries = [FakeDelivery(body, properties=Properties(content_encoding=encoding)) for body, encoding in sent]
    made = rows(given, schema_of(payload=type_of, body=BinaryType(), **CORRUPT), *deliveries)
    assert [row["body"] for row in made] == [body for body, _ in sent]
    assert all((row["payload"] is None) == (row["_corrupt"] is not None) for row in made)
