"""Content.first_header: an int64 header found by its place, never mistaken for another's value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell.protocol.v091 import Content, Properties, Table, encode_content

ENTRY = b"\x0fx-stream-offsetl"


def content(properties: Properties, body: bytes = b"body") -> Content:
    return Content(1, b"", encode_content(1, properties, body, 0), len(body))


@pytest.mark.parametrize("number", [0, 1, 2**40, -1])
@pytest.mark.parametrize("before", [{}, {"content_type": "a/b"}, {"content_type": "", "content_encoding": "gzip"}])
def test_the_number_is_read_without_decoding(number: int, before: dict[str, Any]) -> None:
    # An int64 is written for what fits no smaller type, so the entry is made by hand.
    raw = Properties(headers={"h": "x"}, message_id="m", **before).encode()
    table = b"\x00\x00\x00\x08\x01hS\x00\x00\x00\x01x"
    assert table in raw
    made = raw.replace(table, b"\x00\x00\x00\x19" + ENTRY + number.to_bytes(8, "big", signed=True))
    found = Content(1, b"", encode_content(1, made, b"body", 0), 4)
    assert found.first_header(ENTRY) == number
    assert found.properties.headers == {"x-stream-offset": number}


@pytest.mark.parametrize(
    "properties",
    [
        Properties(),
        Properties(message_id="m", content_type="t"),
        Properties(headers={}),
        Properties(headers={"a": 1, "x-stream-offset": 2**40}),
        Properties(headers={"a": (ENTRY + b"\x00" * 8).decode()}),
        Properties(content_type=(b"\x00\x00\x00\x19" + ENTRY + b"\x00" * 8).decode()),
    ],
)
def test_what_does_not_begin_with_the_entry_is_left_to_the_decoder(properties: Properties) -> None:
    assert content(properties).first_header(ENTRY) is None


@given(
    st.dictionaries(st.text(max_size=5) | st.just("x-stream-offset"), st.integers(-(2**63), 2**63 - 1) | st.text()),
    st.none() | st.text(max_size=20),
)
def test_it_agrees_with_the_decoded_table_or_gives_nothing(headers: Table, content_type: str | None) -> None:
    made = content(Properties(headers=headers, content_type=content_type))
    number = made.first_header(ENTRY)
    assert number is None or number == (made.properties.headers or {})["x-stream-offset"]
