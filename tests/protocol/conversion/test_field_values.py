"""Values of maps and tables in the other dialect: type by type, both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given

from harebell.protocol.conversion.field_values import to_map, to_table
from harebell.protocol.v010 import typed_values as t10
from harebell.protocol.v010.values import write_map
from harebell.protocol.v091 import typed_values as t91
from harebell.protocol.v091.fields import write_table
from tests.protocol.v010.strategies import maps
from tests.protocol.v091.strategies import tables

NOON = datetime(2007, 6, 1, 12, tzinfo=UTC)

SAME: list[tuple[object, object]] = [
    (t10.Int8(-3), t91.Int8(-3)),
    (t10.UInt8(3), t91.UInt8(3)),
    (t10.Int16(-300), t91.Int16(-300)),
    (t10.UInt16(300), t91.UInt16(300)),
    (t10.Int32(-70_000), -70_000),
    (t10.UInt32(70_000), t91.UInt32(70_000)),
    (5, t91.Int64(5)),
    (1 << 40, t91.Int64(1 << 40)),
    (1.5, 1.5),
    (t10.Float32(1.5), t91.Float32(1.5)),
    (True, True),
    (None, None),
    ("text", "text"),
    (b"bytes", b"bytes"),
    (NOON, NOON),
    (Decimal("1.25"), Decimal("1.25")),
    ([t10.Int32(1), "a"], [1, "a"]),
    ({"a": {"b": None}}, {"a": {"b": None}}),
]
CHANGED: list[tuple[object, object]] = [
    (t10.UInt64(5), t91.Int64(5)),
    ((1 << 64) - 1, str((1 << 64) - 1)),
    (t10.Char(65), "A"),
    (t10.CharUtf32(0x1F600), "\U0001f600"),
    (t10.CharUtf32(0xD800), "55296"),
    (t10.Str8("s"), "s"),
    (t10.Latin16("\xe9"), "\xe9"),
    ("\udcff", b"\xff"),
    (t10.Str8("\udcff"), b"\xed\xb3\xbf"),
    (t10.Vbin8(b"v"), b"v"),
    (t10.FixedBinary(b"four"), b"four"),
    (UUID(int=1), UUID(int=1).bytes),
    (t10.Array([1, 2], 0x31), [1, 2]),
    (t10.Decimal64("1.25"), Decimal("1.25")),
    (t10.Decimal64("12345678901.5"), "12345678901.5"),
    (t10.StructValue(0x0604, b"\0\0"), b"\x06\x04\0\0"),
    (t10.UnknownValue(0x03, b"x"), b"x"),
    (t10.Bit(), True),
]


@pytest.mark.parametrize(("there", "here"), SAME, ids=repr)
def test_what_both_have(there: object, here: object) -> None:
    table, exact = to_table({"k": there})
    assert exact
    assert write_table(table) == write_table({"k": here})
    assert write_map(to_map(table)) == write_map({"k": there})


@pytest.mark.parametrize(("there", "here"), CHANGED, ids=repr)
def test_what_0_9_1_does_not_have(there: object, here: object) -> None:
    table, exact = to_table({"k": there})
    assert not exact
    assert table == {"k": here}


@given(maps)
def test_any_map(given_map: dict[str, object]) -> None:
    table, exact = to_table(given_map)
    if exact:
        assert write_map(to_map(table)) == write_map(given_map)


@given(tables)
def test_any_table(table: dict[str, object]) -> None:
    again, _ = to_table(to_map(table))
    assert again == table
