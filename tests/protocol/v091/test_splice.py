"""Entries spliced into the headers of a message, and taken out: what decoding and encoding would have made."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from harebell.protocol.v091 import Content, Properties, Table, encode_content
from harebell.protocol.v091.codec import encode_frame
from harebell.protocol.v091.content import stored_content
from harebell.protocol.v091.fields import write_shortstr, write_table
from harebell.protocol.v091.splice import (
    DELIVERY_COUNT,
    STREAM_OFFSET,
    LongHeader,
    append_headers,
    header,
    header_frame_size,
    replace_properties,
    replace_reply_to,
    take_headers,
    with_headers as spliced_headers,
    without_expiration,
)
from tests.protocol.v091.strategies import properties, tables


def decoded(frames: bytes, body: bytes) -> Properties:
    content = Content(1, b"", frames, len(body))
    assert content.body == body
    return content.decode_properties()


def with_headers(before: Properties, headers: Table) -> Properties:
    after = Properties.decode(before.encode(), 0)
    after.headers = headers
    return after


@given(properties, properties, st.binary(max_size=300))
def test_replaced_properties_leave_the_body_alone(before: Properties, after: Properties, body: bytes) -> None:
    frames = encode_content(1, before, body, 100)
    replaced = replace_properties(frames, after)
    assert replaced == encode_content(1, after, body, 100)
    assert header_frame_size(replaced) == 20 + len(after.encode())


@given(properties, st.integers(0, 2**63 - 1))
def test_a_header_that_was_put_in_may_be_in(before: Properties, number: int) -> None:
    frames = encode_content(1, before, b"body", 0)
    assert not DELIVERY_COUNT.may_be_in(frames) or DELIVERY_COUNT.name in str(before)
    assert DELIVERY_COUNT.may_be_in(DELIVERY_COUNT.put_into(frames, number))


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


PROPERTIES = [
    Properties(),
    Properties(delivery_mode=2),
    Properties(content_type="text/plain", content_encoding="gzip", message_id="m"),
    Properties(headers={"a": 1, "t": {"b": [1, "x", None]}, "s": "x-delivery-count"}, app_id="a"),
    Properties(content_type="x-delivery-count", timestamp=5),
]


@pytest.mark.parametrize("properties", PROPERTIES)
def test_taken_out_is_as_before(properties: Properties) -> None:
    raw = properties.encode()
    frames = DELIVERY_COUNT.put_into(encode_content(1, raw, b"body", 0), 7)
    marked = stored_content(1, frames).raw_properties
    assert marked != raw
    assert DELIVERY_COUNT.take_from(marked) == raw
    assert STREAM_OFFSET.take_from(marked) is marked


def test_an_entry_between_others() -> None:
    entries = [b"\x01bb\xff", b"\x10x-delivery-countl\0\0\0\0\0\0\0\x01", b"\x01ff\x3f\xc0\0\0", b"\x01xx\0\0\0\x02ab"]

    def raw(*entries: bytes) -> bytes:
        table = b"".join(entries)
        return b"\x30\0" + len(table).to_bytes(4, "big") + table + b"\x02"

    assert DELIVERY_COUNT.take_from(raw(*entries)) == raw(entries[0], *entries[2:])


@pytest.mark.parametrize("properties", PROPERTIES)
def test_nothing_to_take(properties: Properties) -> None:
    raw = properties.encode()
    assert DELIVERY_COUNT.take_from(raw) is raw


@given(properties, st.text(max_size=60), st.text(max_size=60), st.binary(max_size=300), st.booleans())
@example(Properties(reply_to="another"), "old", "new", b"body", False)
@example(Properties(), "old", "new", b"body", False)
@example(Properties(), "old", "new", b"body", True)
def test_another_reply_to(before: Properties, old: str, new: str, body: bytes, there: bool) -> None:
    if there:
        before.reply_to = old
    frames = encode_content(1, before, body, 100)
    replaced = replace_reply_to(frames, write_shortstr(old, "reply_to"), write_shortstr(new, "reply_to"))
    if before.reply_to != old:
        assert replaced is None
    else:
        assert replaced is not None
        after = decoded(replaced, body)
        before.reply_to = new
        assert after == Properties.decode(before.encode(), 0)


def test_whether_a_number_may_be_there() -> None:
    number = LongHeader("n")
    assert not number.may_be_in(encode_content(1, Properties(message_id="\x01n"), b"\x01n", 0))
    assert not number.may_be_in(encode_content(1, Properties(headers={"m": 1}), b"\x01n", 0))
    assert number.may_be_in(encode_content(1, Properties(headers={"n": 1}), b"", 0))
    frames = encode_content(1, Properties(headers={"n": 1}), b"body", 0)
    assert frames[header_frame_size(frames) :] == encode_frame(3, 1, b"body")


@given(properties, st.data())
def test_headers_are_taken_and_read_as_if_all_were_decoded(before: Properties, data: st.DataObject) -> None:
    headers = before.headers or {}
    names = data.draw(st.frozensets(st.sampled_from([*headers, "missing"])))
    raw = before.encode()
    taken, others = take_headers(raw, frozenset(write_shortstr(name, "")[1:] for name in names))
    expected = Properties.decode(raw, 0)
    decoded_headers = expected.headers or {}
    assert taken == {name: value for name, value in decoded_headers.items() if name in names}
    assert write_table(taken)[4:] == write_table({name: decoded_headers[name] for name in taken})[4:]
    for name in names:
        assert header(raw, write_shortstr(name, "")[1:]) == decoded_headers.get(name)
    expected.headers = {name: value for name, value in decoded_headers.items() if name not in names}
    expected.expiration = None
    assert without_expiration(spliced_headers(raw, others)) == expected.encode()


def test_the_last_of_two_headers_with_one_name_counts() -> None:
    entries = b"\1aI\0\0\0\1\1bV\1aI\0\0\0\2"
    raw = b"\x20\0" + len(entries).to_bytes(4, "big") + entries
    assert header(raw, b"a") == 2
    assert take_headers(raw, frozenset({b"a"})) == ({"a": 2}, b"\1bV")
