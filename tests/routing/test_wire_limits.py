"""What AMQP can carry: the checks agree with the codec, and say what is wrong in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import InvalidArgument, LocalProtocolError
from harebell.protocol.v091.fields import write_shortstr, write_table
from harebell.routing.wire_limits import check_key, check_name, check_table, check_value

BIG = 1 << 14_000  # more digits than Python shows
texts = st.text(st.characters(), max_size=8) | st.sampled_from(["x" * 255, "x" * 256, "ä" * 128, "\ud800"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def nested(depth: int, make: type[list[object]] | type[dict[str, object]]) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value] if make is list else {"a": value}
    return value


@given(st.dictionaries(texts, values, max_size=3))
def test_a_table_is_what_the_codec_writes(table: dict[str, object]) -> None:
    """The codec alone also takes the surrogates that it makes of a publisher's bytes."""
    try:
        write_table(table)
        carried = not any("\udc80" <= each <= "\udcff" for each in ascii_free(table))
    except LocalProtocolError:
        carried = False
    if carried:
        check_table(table, "t")
    else:
        with pytest.raises(InvalidArgument, match=r"^t"):
            check_table(table, "t")


def ascii_free(value: object) -> str:
    """Every character of the texts in the value."""
    if isinstance(value, dict):
        return "".join(name + ascii_free(item) for name, item in value.items())
    if isinstance(value, list):
        return "".join(map(ascii_free, value))
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize("make", [list, dict])
@pytest.mark.parametrize("depth", [1, MAX_TABLE_DEPTH - 1, MAX_TABLE_DEPTH, MAX_TABLE_DEPTH + 1, 100_000])
def test_depth(make: type[list[object]] | type[dict[str, object]], depth: int) -> None:
    table = {"a": nested(depth, make)}
    if depth <= MAX_TABLE_DEPTH:
        write_table(table)
        check_table(table, "t")
    else:
        with pytest.raises(InvalidArgument, match="nested more than 64 deep") as refused:
            check_table(table, "t")
        assert "\n" not in str(refused.value)


@given(texts)
def test_a_key_is_what_a_short_string_holds(text: str) -> None:
    try:
        fits = len(write_shortstr(text, "key")) and len(text.encode()) <= 255
    except (LocalProtocolError, UnicodeEncodeError):
        fits = False
    if fits:
        check_key(text, "key")
    else:
        with pytest.raises(InvalidArgument, match=r"^key: "):
            check_key(text, "key")


@pytest.mark.parametrize(
    "name, says",
    [
        ("", "n: is empty"),
        ("a\nb", r"n: 'a\nb' has a line end, which no declaration can name"),
        (5, "n: expected a string, got a number"),
        ("x" * 5000, f"n: '{'x' * 60}...' has 5000 bytes, and may have 255"),
        ("\ud800", r"n: '\ud800' has no UTF-8 form"),
        (None, "n: expected a string, got null"),
        ([], "n: expected a string, got a list"),
        (True, "n: expected a string, got true or false"),
        ({}, "n: expected a string, got an object"),
        (b"", "n: expected a string, got bytes"),
    ],
)
def test_names_that_are_refused(name: object, says: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_name(name, "n")
    assert str(refused.value) == says


def test_names_that_are_taken() -> None:
    for name in ("q", "x" * 255, "ä", "a b\0"):
        check_name(name, "n")
    check_name("", "n", empty=True)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "v: nan is no number of JSON"),
        (float("-inf"), "v: -inf is no number of JSON"),
        (object(), "v: object is no value of JSON"),
        (1 << 63, "v: 9223372036854775808 does not fit into 64 bits"),
        (BIG, f"v: 0x1{'0' * 57}... does not fit into 64 bits"),
        ([1, ["\ud800"]], r"v[1][0]: '\ud800' has no UTF-8 form"),
        ({"a": {"b" * 300: 1}}, f"v.a.{'b' * 60}...: '{'b' * 60}...' has 300 bytes, and may have 255"),
        ({5: 1}, "v: expected a string, got a number"),
        ("\ud800", r"v: '\ud800' has no UTF-8 form"),
    ],
    ids=range(9),
)
def test_values_that_are_refused(value: object, says: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_value(value, "v")
    assert str(refused.value) == says


def test_a_table_is_an_object() -> None:
    for value, kind in (([], "a list"), ("t", "a string")):
        with pytest.raises(InvalidArgument, match=rf"^t: expected an object, got {kind}$"):
            check_table(value, "t")


def test_values_that_only_tables_have() -> None:
    check_value([b"x", bytearray(b"x"), memoryview(b"x")], "v")
