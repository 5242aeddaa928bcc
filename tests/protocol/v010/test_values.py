"""Every type: values and their bytes, written down by hand, both ways; and what is no value."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from struct import error as StructError
from uuid import UUID

import pytest
from hypothesis import given

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import LocalProtocolError
from harebell.protocol.v010 import typed_values as t, values as v
from tests.protocol.v010 import strategies

NOON = datetime(2013, 1, 1, 12, 0, tzinfo=UTC)

# (value, type code and bytes): what is written, and what is read back
VALUES: list[tuple[object, bytes]] = [
    (True, b"\x08\x01"),
    (False, b"\x08\x00"),
    (None, b"\xf0"),
    (t.Bit(), b"\xf1"),
    (7, b"\x31\0\0\0\0\0\0\0\x07"),
    (-1, b"\x31\xff\xff\xff\xff\xff\xff\xff\xff"),
    (1 << 63, b"\x32\x80\0\0\0\0\0\0\0"),
    (t.UInt64(1), b"\x32\0\0\0\0\0\0\0\x01"),
    (0.5, b"\x33\x3f\xe0\0\0\0\0\0\0"),
    (t.Float32(0.5), b"\x23\x3f\0\0\0"),
    (t.Int8(-1), b"\x01\xff"),
    (t.UInt8(255), b"\x02\xff"),
    (t.Char(0x41), b"\x04A"),
    (t.Int16(-2), b"\x11\xff\xfe"),
    (t.UInt16(258), b"\x12\x01\x02"),
    (t.Int32(-2), b"\x21\xff\xff\xff\xfe"),
    (t.UInt32(258), b"\x22\0\0\x01\x02"),
    (t.CharUtf32(0x1F600), b"\x27\0\x01\xf6\0"),
    ("grün", b"\x95\0\x05gr\xc3\xbcn"),
    ("\udcff", b"\x95\0\x01\xff"),
    (t.Str8("a"), b"\x85\x01a"),
    (t.Latin8("ü"), b"\x84\x01\xfc"),
    (t.Latin16("ü"), b"\x94\0\x01\xfc"),
    (t.Utf16Str8("ü"), b"\x86\x02\0\xfc"),
    (t.Utf16Str16("\U0001f600\ud800"), b"\x96\0\x06\xd8\x3d\xde\0\xd8\0"),
    (b"ab", b"\x90\0\x02ab"),
    (t.Vbin8(b"ab"), b"\x80\x02ab"),
    (t.Vbin32(b"ab"), b"\xa0\0\0\0\x02ab"),
    (b"x" * 65_536, b"\xa0\0\x01\0\0" + b"x" * 65_536),
    (NOON, b"\x38\0\0\0\0\x50\xe2\xd0\x40"[:1] + (1_357_041_600).to_bytes(8, "big")),
    (v.FarSeconds(1 << 60), b"\x38\x10\0\0\0\0\0\0\0"),
    (UUID(int=1), b"\x48" + bytes(15) + b"\x01"),
    (Decimal("3.14"), b"\xc8\x02\0\0\x01\x3a"),
    (Decimal("-7"), b"\xc8\x00\xff\xff\xff\xf9"),
    (t.Decimal64("3.14"), b"\xd8\x02\0\0\0\0\0\0\x01\x3a"),
    (t.FixedBinary(b"a"), b"\x00a"),
    (t.FixedBinary(b"ab"), b"\x10ab"),
    (t.FixedBinary(b"x" * 128), b"\x70" + b"x" * 128),
    (t.FixedBinary(b"abcde"), b"\xc0abcde"),
    (t.FixedBinary(b"x" * 9), b"\xd0" + b"x" * 9),
    ([], b"\xa9\0\0\0\x04\0\0\0\0"),
    ([True, "a"], b"\xa9\0\0\0\x0a\0\0\0\x02\x08\x01\x95\0\x01a"),
    ({}, b"\xa8\0\0\0\x04\0\0\0\0"),
    ({"k": None}, b"\xa8\0\0\0\x07\0\0\0\x01\x01k\xf0"),
    ({"k": {"n": [None]}},
     b"\xa8\0\0\0\x1b\0\0\0\x01\x01k\xa8\0\0\0\x10\0\0\0\x01\x01n\xa9\0\0\0\x05\0\0\0\x01\xf0"),
    (t.Array(["a", "b"], 0x95), b"\xaa\0\0\0\x0b\x95\0\0\0\x02\0\x01a\0\x01b"),
    (t.Array((), 0x95), b"\xaa\0\0\0\x05\x95\0\0\0\0"),
    (t.Array([None, None], 0xF0), b"\xaa\0\0\0\x05\xf0\0\0\0\x02"),
    (t.StructValue(0x0601, b"\x01\0\0\x07"), b"\xab\0\0\0\x06\x06\x01\x01\0\0\x07"),
    (t.UnknownValue(0x03, b"z"), b"\x03z"),
    (t.UnknownValue(0x51, bytes(32)), b"\x51" + bytes(32)),
    (t.UnknownValue(0x8F, b"\x01z"), b"\x8f\x01z"),
    (t.UnknownValue(0x9F, b"\0\x01z"), b"\x9f\0\x01z"),
    (t.UnknownValue(0xAF, b"\0\0\0\x01z"), b"\xaf\0\0\0\x01z"),
    (t.UnknownValue(0xC1, b"12345"), b"\xc112345"),
    (t.UnknownValue(0xFF, b""), b"\xff"),
]  # fmt: skip


def in_list(raw: bytes) -> bytes:
    return (4 + len(raw)).to_bytes(4, "big") + b"\0\0\0\x01" + raw


@pytest.mark.parametrize("value, raw", VALUES, ids=lambda each: repr(each)[:40])
def test_value(value: object, raw: bytes) -> None:
    assert v.write_list([value]) == in_list(raw)
    (read,), end = v.read_list(in_list(raw), 0)
    assert (read, type(read), end) == (value, type(value), 8 + len(raw))
    if isinstance(value, t.Array):
        assert isinstance(read, t.Array)
        assert read.code == value.code


@given(strategies.maps)
def test_maps_are_read_as_written(value: v.Map) -> None:
    raw = v.write_map(value)
    read, end = v.read_map(raw, 0)
    assert (read, end) == (value, len(raw))
    assert v.write_map(read) == raw


@pytest.mark.parametrize("read, empty", [(v.read_map, {}), (v.read_list, []), (v.read_array, [])])
def test_an_empty_one_may_come_without_a_count(read: object, empty: object) -> None:
    assert read(b"\0\0\0\0rest", 0) == (empty, 4)  # type: ignore[operator]
    assert read(b"\0\0\0\0", 0) == (empty, 4)  # type: ignore[operator]


def test_arrays_take_the_type_of_their_first_value() -> None:
    assert v.write_array([], "a") == b"\0\0\0\5\xf0\0\0\0\0"
    assert v.write_str16_array([], "a") == b"\0\0\0\5\x95\0\0\0\0"
    read, _ = v.read_array(v.write_array([t.UInt8(1), t.UInt8(2)], "a"), 0)
    assert (read, read.code) == ([1, 2], 2)
    with pytest.raises(LocalProtocolError, match="types 0x31 and 0x95"):
        v.write_array([1, "a"], "a")
    assert v.write_array([], "a", 0, 0x95) == v.write_array(t.Array((), 0x95), "a")


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0",
        b"\0\0\0\x05\0\0\0\x01",
        b"\0\0\0\x03\0\0\0",
        b"\0\0\0\x04\0\0\0\x01",
        b"\0\0\0\x05\0\0\0\x00\xf0",
        b"\0\0\0\x05\0\0\0\x02\xf0",
        b"\0\0\0\x05\0\0\0\x01\x02",
        b"\0\0\0\x05\0\0\0\x01\xb0",
        b"\0\0\0\x05\0\0\0\x01\xe0",
        b"\0\0\0\x07\0\0\0\x01\x86\x01a",
        b"\0\0\0\x08\0\0\0\x01\x95\0\x09a",
        b"\0\0\0\x0b\0\0\0\x01\xab\0\0\0\x01\x06",
    ],
)
def test_malformed_lists(raw: bytes) -> None:
    with pytest.raises((ValueError, IndexError, StructError)):
        _, end = v.read_list(raw, 0)
        v.check_end(raw, end)
    with pytest.raises((ValueError, IndexError, StructError)):
        _, end = v.read_list(raw + b"\0", 0)
        v.check_end(raw, end)


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0",
        b"\0\0\0\x05\0\0\0\x01",
        b"\0\0\0\x03\0\0\0",
        b"\0\0\0\x04\0\0\0\x01",
        b"\0\0\0\x05\0\0\0\x00\xf0",
        b"\0\0\0\x06\0\0\0\x02\0\xf0",
        b"\0\0\0\x06\0\0\0\x01\0\x02",
        b"\0\0\0\x06\0\0\0\x01\0\x02z",
        b"\0\0\0\x06\0\0\0\x01\x09a",
        b"\0\0\0\x06\0\0\0\x01\0\xb0",
    ],
)
def test_malformed_maps(raw: bytes) -> None:
    with pytest.raises((ValueError, IndexError, StructError)):
        v.read_map(raw, 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\x04\x02\0\0\0",
        b"\0\0\0\x06\x02\0\0\0\0z",
        b"\0\0\0\x06\x02\0\0\0\x02z",
        b"\0\0\0\x07\x02\0\0\0\x01zz",
        b"\0\0\0\x05\xf0\0\0\x04\x01",
        b"\0\0\0\x05\xf1\xff\xff\xff\xff",
        b"\0\0\0\x06\x12\0\0\0\x01z",
        b"\0\0\0\x06\x31\0\0\0\x01z",
        b"\0\0\0\x06\x12\0\0\0\x01z more",
    ],
)
def test_malformed_arrays(raw: bytes) -> None:
    with pytest.raises((ValueError, IndexError, StructError)):
        v.read_array(raw, 0)


def test_where_fields_end() -> None:
    v.check_end(b"ab", 2)
    with pytest.raises(ValueError, match="1 octets after the last field"):
        v.check_end(b"ab", 1)
    with pytest.raises(ValueError, match="ends too early"):
        v.check_end(b"ab", 3)


def test_depth_is_limited_in_both_directions() -> None:
    nested: object = []
    for _ in range(MAX_TABLE_DEPTH):
        nested = [nested]
    assert isinstance(nested, list)
    raw = v.write_list(nested)
    assert v.read_list(raw, 0)[0] == nested
    for write in (v.write_list, v.write_array):
        with pytest.raises(LocalProtocolError, match="nested"):
            write([nested])
    with pytest.raises(LocalProtocolError, match="nested"):
        v.write_map({"k": {"k": nested}})
    with pytest.raises(ValueError, match="nested"):
        v.read_list(in_list(b"\xa9" + raw), 0)


@pytest.mark.parametrize(
    "value, match",
    [
        (1 << 64, "64 bits"),
        (-(1 << 63) - 1, "64 bits"),
        (t.Int8(128), "Int8"),
        (t.Float32(1e300), "Float32"),
        ("\ud800", "UTF-8"),
        (t.Latin8("€"), "latin-1"),
        (t.Str8("a" * 256), "at most 255"),
        (t.Vbin8(b"a" * 256), "at most 255"),
        (t.FixedBinary(b"abc"), "fixed binary"),
        (datetime(2013, 1, 1), "time zone"),
        (datetime(1960, 1, 1, tzinfo=UTC), "outside"),
        (Decimal("NaN"), "finite"),
        (Decimal("1E+19"), "decimal"),
        (Decimal("1E-256"), "decimal"),
        (Decimal("1" * 21), "decimal"),
        (..., "no AMQP type"),
    ],
    ids=repr,
)
def test_what_the_wire_cannot_hold(value: object, match: str) -> None:
    with pytest.raises(LocalProtocolError, match=match):
        v.write_list([value])


def test_unusual_values_are_written_as_the_nearest_type() -> None:
    assert v.write_list([bytearray(b"ab")]) == v.write_list([b"ab"])
    assert v.write_list(["a" * 65_536])[8:13] == b"\xa0\0\x01\0\0"
    assert v.write_list([(1, 2)]) == v.write_list([[1, 2]])
    assert v.write_list([Decimal("0E+400")]) == v.write_list([Decimal(0)])
    assert v.write_list([Decimal("2E+3")]) == v.write_list([Decimal(2000)])
    assert v.write_list([Decimal(1 << 40)])[8:9] == b"\xd8"


@pytest.mark.parametrize(
    "write, value, match",
    [
        (v.write_str8, "ü" * 128, "'|at most 255"),
        (v.write_str16, "a" * 65_536, "at most 65535"),
        (v.write_vbin8, b"a" * 256, "at most 255"),
        (v.write_vbin16, b"a" * 65_536, "at most 65535"),
        (v.write_datetime, 1 << 64, "outside"),
        (v.write_datetime, -1, "outside"),
        (v.write_sequence_set, ((1, 1),) * 8192, "8191"),
    ],
)
def test_fields_that_are_too_long(write: object, value: object, match: str) -> None:
    with pytest.raises(LocalProtocolError, match=match):
        write(value, "a field")  # type: ignore[operator]


def test_sequence_sets() -> None:
    pairs = ((1, 3), (4_294_967_295, 0))
    raw = b"\0\x10\0\0\0\1\0\0\0\3\xff\xff\xff\xff\0\0\0\0"
    assert v.write_sequence_set(pairs, "x") == raw
    assert v.read_sequence_set(raw, 0) == (pairs, len(raw))
    assert v.write_sequence_set((), "x") == b"\0\0"
    assert v.write_sequence_set(((1, 1),), "x") == b"\0\x08\0\0\0\1\0\0\0\1"
    with pytest.raises(StructError):
        v.read_sequence_set(b"\0\x07" + bytes(7), 0)


def test_values_show_what_they_are_and_have_hashes() -> None:
    for value in (t.Bit(), t.StructValue(1, b"a"), t.UnknownValue(3, b"a"), t.Array([1], 0x31), t.Array([])):
        assert type(value).__name__ in repr(value)
        assert value != object()
    pair = {t.Bit(), t.StructValue(1, b"a"), t.UnknownValue(1, b"a")}
    assert pair == {t.Bit(), t.StructValue(1, b"a"), t.UnknownValue(1, b"a")}
