from __future__ import annotations

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import StructField, StructType

from harebell.errors import InvalidArgument, MissingDependency
from harebell.spark.payload.avro import AvroDecoder, avro_type, schema_text
from harebell.spark.payload.content import Content
from harebell.spark.schema import arrow_schema

NOON = datetime(2026, 1, 5, 12, 0, 0, 250_000, UTC)


def record(*fields: tuple[str, Any], name: str = "Flight") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def logical(base: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


ORIGIN = record(("code", "string"), name="Airport")
SCHEMA = record(
    ("id", "long"),
    ("carrier", ["null", "string"]),
    ("seats", "int"),
    ("delay", ["null", "float", "double"]),
    ("miles", ["int", "long"]),
    ("late", "boolean"),
    ("raw", "bytes"),
    ("state", {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}),
    ("before", "State"),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    ("origin", ORIGIN),
    ("stops", {"type": "array", "items": ["null", "Airport"]}),
    ("tags", {"type": "map", "values": "long"}),
    ("day", logical("int", "date")),
    ("at", logical("long", "timestamp-micros")),
    ("sent", logical("long", "timestamp-millis")),
    ("local", logical("long", "local-timestamp-micros")),
    ("price", logical("bytes", "decimal", precision=10, scale=2)),
    ("key", logical("string", "uuid")),
    ("time", logical("int", "time-millis")),
)
VALUE = {
    "id": 1 << 40,
    "carrier": "UA",
    "seats": 180,
    "delay": 1.5,
    "miles": 1400,
    "late": True,
    "raw": b"\x00\xff",
    "state": "ON",
    "before": "OFF",
    "hash": b"ab",
    "origin": {"code": "EWR"},
    "stops": [{"code": "IAH"}, None],
    "tags": {"a": 1},
    "day": date(2026, 1, 5),
    "at": NOON,
    "sent": NOON,
    "local": NOON.replace(tzinfo=None),
    "price": Decimal("1.50"),
    "key": "8a2e0f6e-0000-0000-0000-000000000000",
    "time": 1000,
}


def encode(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def parse(schema: Any, *bodies: bytes) -> tuple[list[Any], dict[int, str]]:
    text = json.dumps(schema)
    arrow = arrow_schema(StructType([StructField("payload", avro_type(text))])).field(0).type
    content = Content(list(bodies), "utf-8")
    column = AvroDecoder(text, arrow)(content)
    assert column.type == arrow
    column.validate(full=True)
    return column.to_pylist(), content.reasons


def test_the_column_type_of_a_schema() -> None:
    assert avro_type(json.dumps(SCHEMA)).simpleString() == (
        "struct<id:bigint,carrier:string,seats:int,delay:double,miles:bigint,late:boolean,raw:binary,state:string,"
        "before:string,hash:binary,origin:struct<code:string>,stops:array<struct<code:string>>,tags:map<string,bigint>,"
        "day:date,at:timestamp,sent:timestamp,local:timestamp_ntz,price:decimal(10,2),key:string,time:int>"
    )


def test_every_type_comes_back() -> None:
    # The writer takes what is under a logical type too; so do we, where Spark has no such type.
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "uuid"', '"x": 1').replace("time-millis", "none"))
    body = encode(plain, VALUE)
    rows, reasons = parse(SCHEMA, body, encode(plain, {**VALUE, "carrier": None, "delay": None}))
    expected = {**VALUE, "tags": [("a", 1)]}
    assert rows == [expected, {**expected, "carrier": None, "delay": None}]
    assert reasons == {}


def test_bodies_that_do_not_follow_the_schema() -> None:
    schema = record(("n", "long"), ("s", "string"))
    good = encode(schema, {"n": 1, "s": "x"})
    rows, reasons = parse(schema, b"", good, good[:-1], good + b"!", b"\x02\x02\xff", b"\x02\xfe\xff\xff\xff\x0f")
    assert rows == [None, {"n": 1, "s": "x"}, None, None, None, None]
    assert sorted(reasons) == [0, 2, 3, 4, 5]
    assert all(reason.startswith("not Avro of the schema: ") for reason in reasons.values())
    assert reasons[0] == "not Avro of the schema: EOFError"
    assert reasons[3] == "not Avro of the schema: 1 bytes after the record"


def test_a_value_that_no_column_holds() -> None:
    schema = record(("at", logical("long", "timestamp-micros")), ("price", logical("bytes", "decimal", precision=4)))
    plain = record(("at", "long"), ("price", "bytes"))
    bodies = [encode(plain, {"at": 0, "price": b"\x01"}), encode(plain, {"at": 0, "price": b"\x7f" * 20})]
    bodies.append(encode(plain, {"at": 1 << 62, "price": b"\x01"}))
    rows, reasons = parse(schema, *bodies)
    assert rows == [{"at": datetime(1970, 1, 1, tzinfo=UTC), "price": Decimal(1)}, None, None]
    assert sorted(reasons) == [1, 2]


@pytest.mark.parametrize(
    "schema, said",
    [
        ("{", "is no Avro schema: JSONDecodeError"),
        ('{"type": "record"}', "is no Avro schema"),
        ('{"type": "nothing"}', "is no Avro schema: UnknownType: .*nothing"),
        ('"long"', "describes bigint; payload=avro takes a record"),
        (record(("a", ["int", "string"])), "'payload.a' is a union of several types"),
        (record(("a", "null")), "'payload.a' is null, which has no column type"),
        (
            record(("a", {"type": "array", "items": record(name="Empty")})),
            r"'payload.a\[\]' is a record without fields",
        ),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "'payload.a' is fixed with no bytes"),
        (record(("next", ["null", "Flight"])), "'payload.next' is Flight inside of itself"),
        (record(("a", logical("bytes", "decimal", precision=39))), "'payload.a' has 39 digits"),
    ],
    ids=str,
)
def test_schemas_that_are_refused(schema: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        avro_type(schema if isinstance(schema, str) else json.dumps(schema))


def test_a_schema_is_text_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "flight.avsc"
    path.write_text('{"type": "record"}')
    assert schema_text(str(path)) == '{"type": "record"}'
    assert schema_text(' {"type": "string"}') == ' {"type": "string"}'
    with pytest.raises(
        InvalidArgument, match=r"'nowhere\.avsc', neither an Avro schema in JSON nor a file: No such file"
    ):
        schema_text("nowhere.avsc")


def test_without_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingDependency, match=r"pip install 'harebell\[avro\]'"):
        avro_type("{}")
