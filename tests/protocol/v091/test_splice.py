"""Entries spliced into the headers of a message: what decoding, adding and encoding would have made."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tests.protocol.v091.strategies import properties, tables
from warren.protocol.v091 import Content, Properties, Table, encode_content
from warren.protocol.v091.fields import write_table
from warren.protocol.v091.splice import DELIVERY_COUNT, append_headers


def decoded(frames: bytes, body: bytes) -> Properties:
    content = Content(1, b"", frames, len(body))
    assert content.body == body
    return content.decode_properties()


def with_headers(before: Properties, headers: Table) -> Properties:
    after = Properties.decode(before.encode(), 0)
    after.headers = headers
    return after


@given(properties, tables, st.binary(max_size=300))
def test_appended_headers_are_the_last(before: Properties, more: Table, body: bytes) -> None:
    first = {name: value for name, value in (before.headers or {}).items() if name not in more}
    before = with_headers(before, first) if before.headers is not None else before
    frames = append_headers(encode_content(1, before, body, 100), write_table(more)[4:])
    after = decoded(frames, body)
    expected = Properties.decode(with_headers(before, first | more).encode(), 0)
    assert after == expected
    assert list(after.headers or {}) == list(expected.headers or {})


@given(properties, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))
def test_one_number_is_the_first(before: Properties, number: int, body: bytes) -> None:
    after = decoded(DELIVERY_COUNT.put_into(encode_content(1, before, body, 100), number), body)
    expected = Properties.decode(
        with_headers(before, {DELIVERY_COUNT.name: number, **(before.headers or {})}).encode(), 0
    )
    assert after == expected
    assert next(iter(after.headers or {})) == DELIVERY_COUNT.name
