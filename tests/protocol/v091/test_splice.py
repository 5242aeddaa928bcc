"""One header put into a message's properties and taken out again, the rest untouched."""

from __future__ import annotations

import pytest

from warren.protocol.v091 import Properties, encode_content
from warren.protocol.v091.content import stored_content
from warren.protocol.v091.splice import DELIVERY_COUNT, STREAM_OFFSET

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
