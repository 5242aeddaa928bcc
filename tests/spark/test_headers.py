from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell.errors import InvalidArgument
from harebell.protocol.v091.fields import read_table, write_table
from harebell.protocol.v091.typed_values import FarSeconds, Float32, Int16, Int64, LongString, UInt16
from harebell.spark.headers import headers_from_json, headers_to_json, headers_to_texts
from tests.protocol.v091.strategies import decimals, short_strings, texts, timestamps, typed_values


class Mode(IntEnum):
    PERSISTENT = 2


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)

# What a peer can send: names and texts that are not UTF-8, names that look like our own forms, any float.
names = short_strings | st.sampled_from(
    ["!base64", "!timestamp", "!table", "!x", "x-death", "time", "a\udcff", "!types", "!!types", "types", "0", "1"]
)
times = timestamps | st.integers(253_402_300_800, (1 << 64) - 1).map(FarSeconds)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats().map(lambda number: math.nan if math.isnan(number) else number)  # a NaN has no other bits here
    | decimals
    | texts
    | st.sampled_from(["2026-01-05T12:00:00Z", "b\udcfe"])
    | st.binary(max_size=20)
    | typed_values
    | times,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
deaths = st.lists(st.fixed_dictionaries({"time": values, "count": values}) | values, max_size=3)
tables = st.dictionaries(names, values, min_size=1, max_size=5) | st.fixed_dictionaries({"x-death": deaths})


def exact(value: object) -> object:
    """Two values are the same when these are equal: type and value, and NaN is NaN."""
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value), str(value) if isinstance(value, float | Decimal) else value


@given(tables)
def test_any_table_comes_back_with_its_types(table: dict[str, Any]) -> None:
    sent, _ = read_table(write_table(table), 0)  # as the codec reads it
    text = headers_to_json(sent)
    assert text is not None
    text.encode()  # fit for a text column
    json.loads(text, parse_constant=pytest.fail)  # and JSON, without NaN
    assert exact(headers_from_json(text)) == exact(sent)
    assert write_table(headers_from_json(text)) == write_table(sent)


def test_each_form() -> None:
    table = {
        "text": "é",
        "n": 1,
        "big": 1 << 62,
        "x": 1.0,
        "yes": True,
        "none": None,
        "list": [1, b"\x00"],
        "at": NOON,
        "far": FarSeconds(1_700_000_000_000),
        "price": Decimal("1.50"),
        "raw": b"\x00\x01",
        "nan": math.inf,
        "like": {"!base64": "AAE="},
        "two": {"!a": 1, "!b": NOON},
        "enum": Mode.PERSISTENT,
    }
    assert headers_to_json(table) == (
        '{"text":"é","n":1,"big":4611686018427387904,"x":1.0,"yes":true,"none":null,"list":[1,{"!base64":"AA=="}],'
        '"at":{"!timestamp":"2026-01-05T12:00:00Z"},"far":{"!timestamp":1700000000000},"price":{"!decimal":"1.50"},'
        '"raw":{"!base64":"AAE="},"nan":{"!float":"Infinity"},"like":{"!table":{"!base64":"AAE="}},'
        '"two":{"!a":1,"!b":{"!timestamp":"2026-01-05T12:00:00Z"}},"enum":2}'
    )


def test_the_times_of_x_death_are_plain_text() -> None:
    deaths = [{"count": 2, "queue": "w", "time": NOON, "routing-keys": ["a.b"]}, {"time": "2026-01-05T12:00:00Z"}]
    text = headers_to_json({"x-death": deaths})
    assert text is not None
    assert json.loads(text) == {
        "x-death": [
            {"count": 2, "queue": "w", "time": "2026-01-05T12:00:00Z", "routing-keys": ["a.b"]},
            {"time": {"!string": "2026-01-05T12:00:00Z"}},
        ]
    }
    assert headers_from_json(text) == {"x-death": deaths}


def test_a_time_of_a_death_that_no_calendar_has_stays_text() -> None:
    for time in ("0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"):
        table = {"x-death": [{"time": time}]}
        assert headers_from_json(json.dumps(table)) == table
        assert headers_from_json(str(headers_to_json(table))) == table


def test_the_table_itself_is_never_a_form() -> None:
    assert headers_to_json({"!base64": "AAE="}) == '{"!base64":"AAE="}'
    assert headers_from_json('{"!base64":"AAE="}') == {"!base64": "AAE="}


def test_json_that_a_person_wrote() -> None:
    assert headers_from_json('{"a": [1, "x"], "at": {"\\u0021timestamp": "2026-01-05T13:00:00+01:00"}}') == {
        "a": [1, "x"],
        "at": NOON,
    }
    assert headers_from_json('{"x-death": [{"time": "yesterday"}, 5]}') == {"x-death": [{"time": "yesterday"}, 5]}


@pytest.mark.parametrize("headers", [None, {}, {"x-stream-offset": 4}])
def test_no_headers_is_null(headers: dict[str, object] | None) -> None:
    assert headers_to_json(headers) is None
    assert headers_to_texts(None) is None


def test_numbers_of_other_types_stay_numbers() -> None:
    table = {"n": Int64(5), "list": [1, Int16(2), {"f": Float32(0.5)}], "s": LongString(b"\xff"), "big": 1 << 40}
    text = headers_to_json(table)
    assert text == (
        '{"n":5,"list":[1,2,{"f":0.5}],"s":{"!base64":"/w=="},"big":1099511627776,'
        '"!types":{"n":"l","list":{"1":"s","2":{"f":"f"}},"s":"S"}}'
    )
    assert headers_to_texts(text) == [
        ("n", "5"), ("list", '[1,2,{"f":0.5}]'), ("s", '{"!base64":"/w=="}'), ("big", "1099511627776"),
    ]  # fmt: skip
    assert exact(headers_from_json(text)) == exact(table)


@pytest.mark.parametrize(
    "text, table",
    [
        ('{"a": 300, "!types": {"a": "b"}}', {"a": 300}),
        ('{"a": true, "!types": {"a": "b"}}', {"a": True}),
        ('{"a": "x", "!types": {"a": "l", "b": "l", "c": {"0": "l"}}}', {"a": "x"}),
        ('{"a": [1], "!types": {"a": {"1": "l", "x": "l", "0": "s"}}}', {"a": [Int16(1)]}),
        ('{"a": 1.5, "!types": {"a": "l"}}', {"a": 1.5}),
        ('{"a": 1, "!types": {"a": "f"}}', {"a": Float32(1)}),
        ('{"!!types": 1, "a": 2, "!types": {"!types": "u"}}', {"!types": UInt16(1), "a": 2}),
    ],
)
def test_types_that_fit_no_value_are_ignored(text: str, table: dict[str, object]) -> None:
    assert exact(headers_from_json(text)) == exact(table)


def test_a_value_that_amqp_has_no_type_for() -> None:
    with pytest.raises(TypeError, match="type set has no JSON form"):
        headers_to_json({"a": {1}})


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "{",
        '{"a": 1, "!types": {"a": "q"}}',
        '{"a": 1, "!types": {"a": null}}',
        '{"a": 1, "!types": "l"}',
        '"x"',
        '{"a": {"!base65": "x"}}',
        '{"a": {"!base64": "?"}}',
        '{"a": {"!timestamp": "2026-01-05"}}',
        '{"a": {"!timestamp": null}}',
        '{"a": {"!timestamp": "0001-01-01T00:00:00+10:00"}}',
        '{"a": {"!timestamp": "9999-12-31T23:59:59-10:00"}}',
        '{"a": {"!decimal": "x"}}',
        '{"a": {"!decimal": 1.5}}',
        '{"a": {"!float": 1.5}}',
        '{"a": {"!table": 1}}',
        '{"a": {"!string": 1}}',
    ],
)
def test_text_that_is_no_header_table(text: str) -> None:
    with pytest.raises(InvalidArgument, match="'headers'"):
        headers_from_json(text)


def test_headers_as_pairs_of_texts() -> None:
    text = headers_to_json(
        {"s": "x", "n": 1, "f": 1.5, "b": True, "none": None, "at": NOON, "d": Decimal("1.50"), "raw": b"\0", "l": [1]}
    )
    assert headers_to_texts(text) == [
        ("s", "x"),
        ("n", "1"),
        ("f", "1.5"),
        ("b", "true"),
        ("none", None),
        ("at", "2026-01-05T12:00:00Z"),
        ("d", "1.50"),
        ("raw", '{"!base64":"AA=="}'),
        ("l", "[1]"),
    ]
