"""Field tables: every type letter both ways, what does not fit, what is malformed."""

from __future__ import annotations

import decimal
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import LocalProtocolError
from harebell.protocol.v091.codec import MALFORMED
from harebell.protocol.v091.fields import (
    FieldValue,
    Table,
    read_shortstr,
    read_table,
    read_timestamp,
    skip_table,
    write_octet,
    write_shortstr,
    write_table,
    write_timestamp,
)
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import FIELD_VALUES, READ_ONLY_VALUES, long, ls, s


def table_of(raw_value: bytes) -> bytes:
    return ls(s("k") + raw_value)


@pytest.mark.parametrize("value, raw", FIELD_VALUES, ids=repr)
def test_writes_and_reads(value: FieldValue, raw: bytes) -> None:
    assert write_table({"k": value}) == table_of(raw)
    table, at = read_table(b"??" + table_of(raw) + b"behind", 2)
    assert table == {"k": value}
    assert type(table["k"]) is type(value)
    assert at == 2 + len(table_of(raw)) == skip_table(b"??" + table_of(raw) + b"behind", 2)


@pytest.mark.parametrize("raw, value", READ_ONLY_VALUES, ids=repr)
def test_reads_what_others_send(raw: bytes, value: object) -> None:
    table, at = read_table(table_of(raw), 0)
    assert table == {"k": value}
    assert at == skip_table(table_of(raw), 0)


@given(strategies.tables)
def test_any_table_survives(table: Table) -> None:
    raw = write_table(table)
    assert read_table(raw, 0) == (table, len(raw))
    assert skip_table(raw, 0) == len(raw)


def test_tuples_bytearrays_and_views_are_written_as_lists_and_bytes() -> None:
    assert write_table({"k": (1,)}) == write_table({"k": [1]})
    view = memoryview(b"abcd").cast("H")
    assert write_table({"k": view}) == write_table({"k": b"abcd"})
    assert write_table({"k": bytearray(b"ab")}) == write_table({"k": b"ab"})


def test_no_table_is_an_empty_one() -> None:
    assert write_table(None) == long(0) == write_table({})


def test_a_short_string_that_is_no_utf8_survives() -> None:
    text, at = read_shortstr(b"\3a\xff\x80", 0)
    assert at == 4
    assert write_shortstr(text, "name") == b"\3a\xff\x80"


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E-256"),
        Decimal("1E+10"),
        Decimal("1E+999999999"),  # must not be computed
        Decimal("0.12345678901"),
        Decimal(1 << 31),
        Decimal("4.294967296"),
        ...,
        {1, 2},
        "\ud800",
        datetime(2013, 1, 1),
        datetime(1969, 1, 1, tzinfo=UTC),
        {"x" * 256: 1},
        {"\ud800": 1},
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refuses_what_does_not_fit(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        write_table({"k": value})


@pytest.mark.parametrize(
    "value, read", [("2E+3", "2000"), ("0E-300", "0E-255"), ("0E+5", "0"), ("-0", "0"), ("-2147483648", "-2147483648")]
)
def test_decimals_at_the_edge(value: str, read: str) -> None:
    (back,) = read_table(write_table({"k": Decimal(value)}), 0)[0].values()
    assert str(back) == read


def test_decimals_are_exact_in_any_context() -> None:
    with decimal.localcontext(prec=2) as context:
        context.traps[decimal.Inexact] = True
        raw = write_table({"k": Decimal("12345.6789")})
        assert read_table(raw, 0)[0] == {"k": Decimal("12345.6789")}


def test_timestamps() -> None:
    eastern = datetime(2013, 1, 1, 7, 0, 0, 999_999, timezone(timedelta(hours=-5)))
    assert write_timestamp(eastern) == (1_357_041_600).to_bytes(8, "big")
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    assert read_timestamp(write_timestamp(last), 0) == (last.replace(microsecond=0), 8)
    assert write_timestamp((1 << 64) - 1) == b"\xff" * 8
    for bad in (-1, 1 << 64):
        with pytest.raises(LocalProtocolError, match="outside"):
            write_timestamp(bad)


def test_octets_and_short_strings_have_limits() -> None:
    assert write_octet(255, "priority") == b"\xff"
    with pytest.raises(LocalProtocolError, match="priority is 256"):
        write_octet(256, "priority")
    assert len(write_shortstr("x" * 255, "queue")) == 256
    with pytest.raises(LocalProtocolError, match="queue is 256 bytes"):
        write_shortstr("ü" * 128, "queue")


def nested(depth: int, array: bool) -> bytes:
    """An empty table or array in tables, `depth` levels below the outermost."""
    letter, raw = (b"A", long(0)) if array else (b"F", long(0))
    for level in range(depth):
        raw = ls((s("k") if not array or level == depth - 1 else b"") + letter + raw)
    return raw


@pytest.mark.parametrize("array", [False, True])
def test_nesting_has_a_limit_and_both_directions_agree(array: bool) -> None:
    deepest = nested(MAX_TABLE_DEPTH, array)
    table, at = read_table(deepest, 0)
    assert at == len(deepest) == skip_table(deepest, 0)
    assert write_table(table) == deepest
    deeper = nested(MAX_TABLE_DEPTH + 1, array)
    for reader in (read_table, skip_table):
        with pytest.raises(ValueError, match="nested"):
            reader(deeper, 0)
    with pytest.raises(LocalProtocolError, match="nested"):
        write_table({"k": [table["k"]]} if array else {"k": table})


def test_a_table_in_itself_is_refused() -> None:
    table: Table = {}
    table["self"] = table
    with pytest.raises(LocalProtocolError, match="nested"):
        write_table(table)


@pytest.mark.parametrize(
    "raw", [table_of(raw) for _, raw in FIELD_VALUES] + [table_of(raw) for raw, _ in READ_ONLY_VALUES]
)
def test_every_truncation_is_malformed(raw: bytes) -> None:
    for end in range(len(raw)):
        for reader in (read_table, skip_table):
            with pytest.raises(MALFORMED):
                reader(raw[:end], 0)
            # the same with the length put right, so that the end lies inside of a value
            if end >= 4:
                cut = long(end - 4) + raw[4:end]
                if end > 4:
                    with pytest.raises(MALFORMED):
                        reader(cut, 0)


@pytest.mark.parametrize("raw", [ls(s("k") + b"q"), ls(b"\5k"), ls(s("a") + b"F" + long(1)) + b"\0"])
def test_malformed(raw: bytes) -> None:
    for reader in (read_table, skip_table):
        with pytest.raises(MALFORMED):
            reader(raw, 0)


@given(st.binary(max_size=200))
def test_any_table_that_can_be_read_can_be_written_and_means_the_same(entries: bytes) -> None:
    raw = len(entries).to_bytes(4, "big") + entries
    try:
        table, _ = read_table(raw, 0)
    except MALFORMED:
        return
    again, _ = read_table(write_table(table), 0)
    assert repr(again) == repr(table)  # NaN is not equal to itself


def test_a_timestamp_beyond_datetime_in_a_table_stays_a_timestamp() -> None:
    raw = b"\0\0\0\x0b\x01aT" + b"\xff" * 8
    table, _ = read_table(raw, 0)
    assert table == {"a": 2**64 - 1}
    assert write_table(table) == raw
