from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from harebell.errors import InvalidArgument
from harebell.protocol.v091.typed_values import Float32, Int8, Int64, LongString, UInt16
from harebell.routing.table_values import canonical, display, erlang_term, type_class, type_name

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

NAMES = [  # value, type name, Erlang term
    ("zz", "longstr", '<<"zz">>'),
    ("", "longstr", "<<>>"),
    ('a"\\', "longstr", '<<"a\\"\\\\">>'),
    ("é", "longstr", '<<"é"/utf8>>'),
    (True, "bool", "true"),
    (False, "bool", "false"),
    (1, "signedint", "1"),
    (-(2**31), "signedint", "-2147483648"),
    (2**31, "long", "2147483648"),
    (None, "void", "undefined"),
    (1.5, "double", "1.5"),
    (b"all", "binary", '<<"all">>'),
    (b"\x00\xff", "binary", "<<0,255>>"),
    (b"\x01a", "binary", "<<1,97>>"),
    (WHEN, "timestamp", "1767323045"),
    (WHEN.replace(tzinfo=None), "timestamp", "1767323045"),
    (Decimal("1.50"), "decimal", "{2,150}"),
    (Decimal("-2E+3"), "decimal", "{0,-2000}"),
    ({"a": 1}, "table", '[{<<"a">>,signedint,1}]'),
    (["a", 1], "array", '[{longstr,<<"a">>},{signedint,1}]'),
    ([], "array", "[]"),
    (Int8(1), "byte", "1"),
    (UInt16(1), "unsignedshort", "1"),
    (Int64(1), "long", "1"),
    (Float32(1.5), "float", "1.5"),
    (LongString(b"a"), "longstr", '<<"a">>'),
]


@pytest.mark.parametrize("value, name, term", NAMES)
def test_how_rabbitmq_names_values(value: object, name: str, term: str) -> None:
    assert type_name(value) == name
    assert erlang_term(value) == term


def test_display_shows_strings_bare() -> None:
    assert (display("zz"), display(5), display(True)) == ("zz", "5", "true")


def test_integers_are_one_class() -> None:
    assert type_class(1) == type_class(2**40) == "int"
    assert type_class("1") == "longstr"


SAME = [
    (1, 1),
    ("a", b"a"),
    (WHEN, 1767323045),
    (WHEN, WHEN.replace(tzinfo=None)),
    ({"a": 1, "b": [1, None]}, {"b": (1, None), "a": 1}),
    (Decimal("1.5"), Decimal("1.5")),
    (float("nan"), float("nan")),
    (b"x", bytearray(b"x")),
]
DIFFERENT = [
    (1, "1"),
    (1, True),
    (0, False),
    (1, 1.0),
    (0, None),
    ("", None),
    ("true", True),
    (Decimal("1.5"), Decimal("1.50")),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"a": True}),
    ([], {}),
    ([], ""),
]


@pytest.mark.parametrize("one, other", SAME)
def test_equal_values(one: object, other: object) -> None:
    assert canonical(one) == canonical(other)
    assert hash(canonical(one)) == hash(canonical(other))


@pytest.mark.parametrize("one, other", DIFFERENT)
def test_different_values(one: object, other: object) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("value", [object(), {1, 2}, [object()], Decimal("Infinity")])
def test_what_no_table_holds(value: object) -> None:
    with pytest.raises(InvalidArgument):
        canonical(value)


def test_type_name_of_what_no_table_holds() -> None:
    with pytest.raises(InvalidArgument, match="object is not a value of an AMQP table"):
        type_name(object())
