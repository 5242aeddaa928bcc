"""Values that remember their type on the wire: the same bytes after reading and writing, and plain values otherwise."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given

from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import Table
from harebell.protocol.v091.fields import read_table, write_table
from harebell.protocol.v091.typed_values import TYPED, Float32, Int8, Int64, LongString, TypedNumber, UInt8
from tests.headers import EVERY_TYPE, raw_table
from tests.protocol.v091 import strategies


def test_every_type_is_written_as_it_was_read() -> None:
    raw = raw_table(EVERY_TYPE)
    table, _ = read_table(raw, 0)
    assert write_table(table) == raw
    assert write_table({**table, "list": list(table.values())}) != raw


@given(strategies.tables)
def test_any_table_is_written_as_it_was_read(table: Table) -> None:
    raw = write_table(table)
    assert write_table(read_table(raw, 0)[0]) == raw


@pytest.mark.parametrize("kind", TYPED)
def test_a_typed_number_is_a_number(kind: TypedNumber) -> None:
    value = kind(5)
    assert value == 5
    assert hash(value) == hash(5)
    assert json.dumps(value) in ("5", "5.0")
    assert type(value + 1) in (int, float)
    copied = pickle.loads(pickle.dumps(value))
    assert (type(copied), copied) == (kind, 5)
    assert write_table({"a": value}) == b"\0\0\0" + bytes(
        [3 + kind.packing.size]
    ) + b"\1a" + kind.letter + kind.packing.pack(5)


def test_a_large_number_needs_no_type() -> None:
    assert type(read_table(write_table({"a": 1 << 40}), 0)[0]["a"]) is int
    assert type(read_table(write_table({"a": Int64(1 << 40)}), 0)[0]["a"]) is int


def test_a_long_string_that_is_no_text_stays_one() -> None:
    table, _ = read_table(write_table({"a": LongString(b"\xff"), "b": b"\xff"}), 0)
    assert table == {"a": b"\xff", "b": b"\xff"}
    assert [type(value) for value in table.values()] == [LongString, bytes]


@pytest.mark.parametrize("value", [Int8(128), UInt8(-1), Int64(1 << 63), Float32(1e300)])
def test_a_number_that_does_not_fit_its_type(value: object) -> None:
    with pytest.raises(LocalProtocolError, match=f"does not fit {type(value).__name__}"):
        write_table({"a": value})
