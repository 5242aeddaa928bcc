"""A message's header and body: what is found in it undecoded, what is rewritten, what is malformed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v010 import (
    Content,
    DeliveryProperties,
    MessageProperties,
    encode_content,
    encode_header,
    structs as s,
)
from harebell.protocol.v010.codec import encode_struct
from harebell.protocol.v010.content import DELIVERY, MESSAGE, OversizedContent
from harebell.protocol.v010.frames import largest
from tests.protocol.v010 import strategies

UNKNOWN = b"\0\0\0\6\x63\1\0\0ab"
DELIVERED = DeliveryProperties(routing_key="q", delivery_mode=2)
TEXT = MessageProperties(content_type="text/plain", application_headers={"k": 1})


def content(header: bytes, body: bytes = b"body", most: int = 65_535) -> Content:
    return Content(1, b"\4\1\1\0\0\0", encode_content(1, header, body, most), len(body))


def test_structs_in_any_order() -> None:
    for header in (
        encode_struct(TEXT) + UNKNOWN + encode_struct(DELIVERED),
        encode_struct(DELIVERED) + encode_struct(TEXT) + UNKNOWN,
    ):
        message = content(header)
        message.check()
        assert (message.header, message.body) == (header, b"body")
        assert message.delivery_properties == DELIVERED
        assert message.delivery_properties is message.delivery_properties
        assert message.message_properties == TEXT
        assert message.message_properties is message.message_properties
        assert message.raw(DELIVERY) == DELIVERED.encode()
        assert message.raw(0x6301) == b"\0\0ab"
        assert message.raw(0x6302) == b""
        assert "header=" in repr(message)
    empty = content(b"", b"")
    assert (empty.delivery_properties, empty.message_properties) == (DeliveryProperties(), MessageProperties())


@pytest.mark.parametrize("body", [b"", b"body"])
def test_other_delivery_properties_leave_the_rest_alone(body: bytes) -> None:
    header = encode_struct(TEXT) + encode_struct(DELIVERED) + UNKNOWN
    new = DeliveryProperties(exchange="amq.direct", routing_key="q").encode()
    changed = content(header, body).with_delivery(new, 65_535)
    assert changed.raw(DELIVERY) == new
    assert changed.header == encode_struct(TEXT) + b"\0\0\0\x11\4\1" + new + UNKNOWN
    assert (changed.body, changed.body_size) == (body, len(body))
    added = content(UNKNOWN, body).with_delivery(new, 65_535)
    assert added.header == b"\0\0\0\x11\4\1" + new + UNKNOWN
    assert content(b"", body).with_delivery(new, 65_535).body == body
    assert len(new) + 2 == 0x11


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(13, 90), st.integers(13, 90), st.integers(0, 9))
def test_frames_for_any_peer(header: bytes, body: bytes, first: int, second: int, channel: int) -> None:
    message = content(header, body, first)
    frames = message.frames_for(channel, second)
    assert not frames or largest(frames) <= second
    again = Content(channel, message.command, frames, len(body))
    assert (again.header, again.body) == (header, body)
    assert again.frames_for(channel, 65_535) is frames


@pytest.mark.parametrize(
    "header, said",
    [
        (b"\0\0\0\4\4\1", "6 octets at 0 are no struct"),
        (b"\0\0\0\3\4\1\0\0", "a struct at octet 0 has 3 octets"),
        (UNKNOWN + b"\0\0\0\5\4\1\0\0", "a struct at octet 10 has 5 octets"),
        (encode_struct(DELIVERED) * 2, "two structs of code 0x0401"),
        (b"\0\0\0\4\4\1\0\x80", "malformed message.delivery-properties: packing flags 0x8000"),
        (b"\0\0\0\4\4\2\4\0", "malformed message.fragment-properties: field fragment_size"),
        (b"\0\0\0\4\4\3\1\0", "malformed message.message-properties: field content_length"),
    ],
)
def test_malformed_headers(header: bytes, said: str) -> None:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        content(header).check()
    assert said in str(caught.value)
    assert (caught.value.reply_code, caught.value.scope, caught.value.channel) == (503, "channel", 1)


@given(st.lists(strategies.of_compound(DeliveryProperties) | strategies.of_compound(MessageProperties), max_size=1))
def test_headers_of_structs(structs: list[DeliveryProperties | MessageProperties]) -> None:
    message = content(encode_header([*structs, s.FragmentProperties()]))
    message.check()
    for each in structs:
        assert each in (message.delivery_properties, message.message_properties)
        assert message.raw(type(each).CODE) == each.encode()
    assert MESSAGE == MessageProperties.CODE
    assert OversizedContent(b"", 3).limit == 3
