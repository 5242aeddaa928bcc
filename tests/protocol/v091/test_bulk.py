"""Columns of properties and many contents: to the byte what one message after the other gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import Properties, encode_content
from harebell.protocol.v091.bulk import PROPERTY_NAMES, encode_contents, encode_property_columns
from harebell.protocol.v091.fields import write_table
from tests.protocol.v091 import strategies

VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(PROPERTY_NAMES, strategies.short_strings),
    "headers": strategies.tables,
    "delivery_mode": strategies.octets,
    "priority": strategies.octets,
    "timestamp": strategies.timestamps,
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, dict[str, list[Any]], dict[str, Any]]:
    rows = draw(st.integers(0, 5))
    columns, constants = {}, {}
    for name in draw(st.sets(st.sampled_from(PROPERTY_NAMES))):
        if draw(st.booleans()):
            constants[name] = draw(VALUES[name])
        else:
            columns[name] = draw(st.lists(st.none() | VALUES[name], min_size=rows, max_size=rows))
    return rows, columns, constants


@given(tables())
@example((2, {"content_encoding": ["x", None], "headers": [{}, {"a": 1}], "app_id": ["a", "b"]}, {"content_type": "t"}))
@example((2, {"content_type": ["t", "u"]}, {"content_encoding": "x", "app_id": "a"}))
@example((2, {}, {"priority": 1}))
def test_columns_are_what_the_rows_are(table: tuple[int, dict[str, list[Any]], dict[str, Any]]) -> None:
    rows, columns, constants = table
    one_by_one = [
        Properties(**constants, **{name: values[row] for name, values in columns.items()}).encode()
        for row in range(rows)
    ]
    assert encode_property_columns(rows, columns, constants) == one_by_one


@given(st.lists(st.tuples(strategies.properties, st.binary(max_size=40)), max_size=8), st.sampled_from([0, 24, 4096]))
def test_contents_are_what_each_is(messages: list[tuple[Properties, bytes]], frame_max: int) -> None:
    raws = [properties.encode() for properties, _ in messages]
    bodies = [body for _, body in messages]
    if frame_max and any(20 + len(raw) > frame_max for raw in raws):
        with pytest.raises(LocalProtocolError, match="shorten its properties"):
            encode_contents(3, raws, bodies, frame_max)
        return
    assert encode_contents(3, raws, bodies, frame_max) == [
        encode_content(3, raw, body, frame_max) for raw, body in zip(raws, bodies, strict=True)
    ]


def test_a_headers_table_may_be_encoded_already() -> None:
    table = write_table({"a": 1})
    assert encode_property_columns(2, {"headers": [table, None]}, {}) == [
        Properties(headers={"a": 1}).encode(),
        Properties().encode(),
    ]


@pytest.mark.parametrize(
    ("columns", "constants", "text"),
    [
        ({"message_id": ["ok", "x" * 256]}, {}, "message_id is 256 bytes long"),
        ({"app_id": [None, "é" * 128]}, {}, "app_id is 256 bytes long"),
        ({"type": ["\ud800", "x"]}, {}, "type .* has no UTF-8 form"),
        ({}, {"expiration": "9" * 300}, "expiration is 300 bytes long"),
        ({"priority": [1, 256]}, {}, "priority is 256"),
        ({"timestamp": [0, -1]}, {}, "timestamp -1 is outside"),
        ({"cluster": ["x", "y"]}, {}, "no property is named 'cluster'"),
        ({"type": ["x"]}, {}, "column type has 1 values, and there are 2"),
    ],
)
def test_what_the_wire_cannot_hold(columns: dict[str, list[Any]], constants: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        encode_property_columns(2, columns, constants)


def test_messages_of_one_length_share_a_head() -> None:
    raws, bodies = [Properties(type=kind).encode() for kind in "abc"], [b"one", b"two", b"drei"]
    assert encode_contents(3, raws, bodies, 0) == [
        encode_content(3, raw, body, 0) for raw, body in zip(raws, bodies, strict=True)
    ]
