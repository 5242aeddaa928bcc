from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

import tests.protocol.v091.strategies  # noqa: F401  its profile
from harebell.errors import InvalidArgument
from harebell.spark.payload.content import Content
from harebell.spark.payload.json import JsonDecoder
from harebell.spark.schema import arrow_schema


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def parse(kind: StructType, *bodies: bytes, strict: bool = False, charset: str = "utf-8") -> tuple[list[Any], Any]:
    arrow = arrow_schema(struct(payload=kind)).field(0).type
    content = Content(list(bodies), charset)
    column = JsonDecoder(kind, arrow, strict)(content)
    assert column.type == arrow
    column.validate(full=True)
    return column.to_pylist(), content.reasons


@pytest.mark.parametrize(
    "kind, text, value",
    [
        (StringType(), '"é"', "é"),
        (StringType(), "null", None),
        (BooleanType(), "true", True),
        (ByteType(), "-128", -128),
        (ShortType(), "32767", 32767),
        (IntegerType(), "1", 1),
        (LongType(), "9223372036854775807", 9223372036854775807),
        (FloatType(), "1.5", 1.5),
        (DoubleType(), "1", 1.0),
        (DecimalType(10, 2), "1.5", Decimal("1.50")),
        (DecimalType(10, 2), '"1.50"', Decimal("1.50")),
        (TimestampType(), '"2026-01-05T13:00:00+01:00"', datetime(2026, 1, 5, 12, tzinfo=UTC)),
        (TimestampType(), '"2026-01-05T12:00:00.25Z"', datetime(2026, 1, 5, 12, 0, 0, 250_000, UTC)),
        (TimestampNTZType(), '"2026-01-05T12:00:00"', datetime(2026, 1, 5, 12)),
        (DateType(), '"2026-01-05"', date(2026, 1, 5)),
        (BinaryType(), '"AAE="', b"\x00\x01"),
        (ArrayType(LongType()), "[1,null]", [1, None]),
        (ArrayType(ArrayType(LongType())), "[[1],null,[]]", [[1], None, []]),
        (MapType(StringType(), LongType()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (struct(b=LongType()), '{"b":1,"c":2}', {"b": 1}),
        (struct(b=LongType()), "{}", {"b": None}),
        (struct(), '{"b":1}', {}),
        (ArrayType(struct(b=StringType())), '[{"b":"x"},null,{}]', [{"b": "x"}, None, {"b": None}]),
        (MapType(StringType(), struct(b=LongType())), '{"k":{"b":1}}', [("k", {"b": 1})]),
    ],
    ids=str,
)
def test_each_type(kind: DataType, text: str, value: object) -> None:
    rows, reasons = parse(struct(a=kind), b'{"a":%b}' % text.encode(), b"{}", b"bad", b'{"a":null}')
    assert rows == [{"a": value}, {"a": None}, None, {"a": None}]
    assert list(reasons) == [2]


@pytest.mark.parametrize(
    "kind, text, reason",
    [
        (StringType(), "1", "Expected `str | null`, got `int` - at `$.a`"),
        (LongType(), '"1"', "Expected `int | null`, got `str` - at `$.a`"),
        (LongType(), "1.5", "Expected `int | null`, got `float` - at `$.a`"),
        (LongType(), "true", "Expected `int | null`, got `bool` - at `$.a`"),
        (LongType(), "9223372036854775808", "Expected `int` <= 9223372036854775807 - at `$.a`"),
        (ByteType(), "128", "Expected `int` <= 127 - at `$.a`"),
        (FloatType(), "1e39", "Expected `float` <= 3.4028234663852886e+38 - at `$.a`"),
        (DoubleType(), "1e400", "Number out of range - at `$.a`"),
        (TimestampType(), '"2026-01-05T12:00:00"', "Expected `datetime` with a timezone component - at `$.a`"),
        (TimestampType(), "1767614400", "Expected `datetime | null`, got `int` - at `$.a`"),
        (ArrayType(LongType()), '[1,"x"]', "Expected `int | null`, got `str` - at `$.a[1]`"),
        (struct(b=LongType()), '{"b":"x"}', "Expected `int | null`, got `str` - at `$.a.b`"),
        (DecimalType(4, 2), "1.555", "does not fit: Rescaling Decimal value would cause data loss"),
        (
            DecimalType(4, 2),
            "12345",
            "does not fit: Decimal type with precision 5 does not fit into precision inferred "
            "from first array element: 4",
        ),
    ],
    ids=str,
)
def test_a_wrong_type_spoils_its_row_alone(kind: DataType, text: str, reason: str) -> None:
    rows, reasons = parse(struct(a=kind), b"{}", b'{"a":%b}' % text.encode(), b"{}")
    assert rows == [{"a": None}, None, {"a": None}]
    assert reasons == {1: reason}


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"", "not JSON: Input data was truncated"),
        (b"  ", "not JSON: Input data was truncated"),
        (b"null", "Expected `object`, got `null`"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"a":1}{"a":2}', "not JSON: JSON is malformed: trailing characters (byte 8)"),
        (b'{"a":NaN}', "not JSON: JSON is malformed: invalid character (byte 5)"),
        (b'{"b":"\xff"}', "not JSON: it is not UTF-8"),
        (b'{"c":' + b"[" * 1_000_000, "not JSON: nested too deep"),  # Python 3.14 counts no calls, but the stack
    ],
)
def test_bodies_that_are_not_an_object(body: bytes, reason: str) -> None:
    rows, reasons = parse(struct(a=LongType(), b=StringType()), body, b'{"a": 1,\n "b": "x"}')
    assert rows == [None, {"a": 1, "b": "x"}]
    assert reasons == {0: reason}


def test_extra_fields_are_ignored_or_spoil_the_row() -> None:
    kind = struct(a=struct(b=LongType()))
    bodies = [b'{"a":{"b":1,"c":2}}', b'{"a":{"b":1},"z":null}', b'{"a":{"b":1}}']
    assert parse(kind, *bodies) == ([{"a": {"b": 1}}] * 3, {})
    rows, reasons = parse(kind, *bodies, strict=True)
    assert rows == [None, None, {"a": {"b": 1}}]
    assert reasons == {
        0: "Object contains unknown field `c` - at `$.a`",
        1: "Object contains unknown field `z`",
    }


def test_field_names_that_python_does_not_know() -> None:
    kind = struct(**{"routing-key": LongType(), "class": LongType(), "": LongType(), "f0": LongType()})
    body = b'{"routing-key":1,"class":2,"":3,"f0":4}'
    assert parse(kind, body) == ([{"routing-key": 1, "class": 2, "": 3, "f0": 4}], {})


def test_another_charset() -> None:
    kind = struct(a=StringType())
    assert parse(kind, '{"a":"é"}'.encode("latin-1"), charset="latin-1") == ([{"a": "é"}], {})
    rows, reasons = parse(kind, b"\x00", b'{\x00"\x00a\x00"\x00:\x001\x00}\x00', charset="utf-16-le")
    assert rows == [None, None]
    assert reasons == {
        0: "not utf-16-le text: truncated data at byte 0",
        1: "Expected `str | null`, got `int` - at `$.a`",
    }


@pytest.mark.parametrize(
    "kind, said",
    [
        (struct(a=NullType()), "'payload.a' is void, which payload=json cannot fill"),
        (struct(a=ArrayType(struct(b=VariantType()))), r"'payload.a\[\].b' is variant, which"),
        (struct(a=MapType(LongType(), LongType())), "'payload.a' is map<bigint,bigint>; the names of a JSON object"),
        (StructType([StructField("a", LongType(), False)]), "'payload.a' is NOT NULL"),
        (StructType([StructField("a", LongType())] * 2), "two fields of 'payload' have the same name: a, a"),
    ],
)
def test_types_that_are_refused(kind: StructType, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        JsonDecoder(kind, pa.null(), False)


scalars = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
KIND = struct(
    n=LongType(),
    s=StringType(),
    l=ArrayType(struct(n=LongType())),
    m=MapType(StringType(), LongType()),
    o=struct(n=LongType()),
)
leaf = st.none() | st.fixed_dictionaries({"n": scalars})
records = st.none() | st.fixed_dictionaries(
    {
        "n": scalars,
        "s": st.none() | st.text(),
        "l": st.none() | st.lists(leaf, max_size=3),
        "m": st.none() | st.dictionaries(st.text(max_size=3), scalars, max_size=3),
        "o": leaf,
    }
)


@given(st.lists(records, max_size=6))
def test_what_was_encoded_comes_back(values: list[Any]) -> None:
    rows, reasons = parse(KIND, *[json.dumps(value).encode() for value in values])
    expected = [
        value and {**value, "m": value["m"] if value["m"] is None else list(value["m"].items())} for value in values
    ]
    assert rows == expected
    assert set(reasons) == {row for row, value in enumerate(values) if value is None}
