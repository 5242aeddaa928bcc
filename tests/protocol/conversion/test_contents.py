"""Messages in their frames, from one dialect to the other: what comes out is what property by property would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol import v010, v091
from harebell.protocol.conversion.contents import MOST, MOST_BYTES, Headers, ShapeToV091, ToV091
from harebell.protocol.conversion.properties import from_v091, header_of, properties_of
from harebell.protocol.v010.frames import BODY, FRAME_HEADER, LARGEST_FRAME
from harebell.protocol.v010.shapes import shape_of
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.content import stored_content
from tests.protocol.v010.strategies import of_compound

WIRE = b"\x0aamq.direct\x03key"
LONG = Properties(headers={"h": "x" * (MOST_BYTES + 1)})


def frames_of(headers: Headers, properties: Properties, body: bytes, channel: int = 1) -> bytes:
    frames = v091.encode_content(1, properties, body, 131_072)
    return headers.frames(channel, WIRE, "amq.direct", "key", frames)


BODIES = (
    b"", b"a", bytes(1000), bytes(LARGEST_FRAME - FRAME_HEADER), bytes(LARGEST_FRAME), bytes(200_000),
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=len)
@pytest.mark.parametrize("properties", [Properties(), Properties(content_type="text", headers={"n": 1}), LONG])
def test_to_0_10(properties: Properties, body: bytes) -> None:
    """The first message with a header, and the second, whose header is known."""
    headers = Headers()
    expected = v010.encode_content(7, header_of(*from_v091("amq.direct", "key", properties)), body, LARGEST_FRAME)
    for _ in range(2):
        assert frames_of(headers, properties, body, 7) == expected
    assert len(headers) == (properties is not LONG)
    other = v010.Content(0, b"", frames_of(headers, Properties(type="t"), body, 3), len(body))
    assert other.body == body
    assert other.message_properties.application_headers == {"x-jms-type": "t"}


@pytest.mark.parametrize("body", BODIES, ids=len)
@pytest.mark.parametrize("largest", [4096, LARGEST_FRAME])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
@pytest.mark.parametrize("header", [b"", v010.encode_header([v010.MessageProperties(content_type="x" * 200)])])
def test_to_0_9_1(body: bytes, largest: int, frame_max: int, header: bytes) -> None:
    properties = Properties(content_type="text").encode()
    native = v010.Content(0, b"", v010.encode_content(0, header, body, largest), len(body))
    convert = ToV091(1, properties, native.header_size, frame_max)
    assert convert.properties(native.frames) == properties
    for each in (body, body, body[:1], body[:-1], body):
        frames = convert.frames(v010.encode_content(0, header, each, largest), len(each))
        assert frames == v091.encode_content(1, properties, each, frame_max)
        assert stored_content(1, frames).body == each


def test_two_body_frames_are_no_single_one() -> None:
    """A body that comes to one frame's length in two frames."""
    headers = Headers()
    frames_of(headers, Properties(), b"x")
    head = v091.encode_content(1, Properties(), bytes(8), 131_072)[:-16]
    frame = b"\3\0\1\0\0\0\4abcd\xce"
    two = v010.Content(1, b"", headers.frames(1, WIRE, "amq.direct", "key", head + 2 * frame), 8)
    assert two.body == b"abcdabcd"
    assert two.frames[-20 + 1] == BODY


def test_the_headers_are_bounded() -> None:
    headers = Headers()
    for number in range(3 * MOST):
        frames_of(headers, Properties(correlation_id=str(number)), b"x")
        assert len(headers) <= MOST


@pytest.mark.parametrize("body", [b"", b"a", bytes(1000), bytes(200_000)], ids=len)
@pytest.mark.parametrize("largest", [4096, LARGEST_FRAME])
@given(of_compound(v010.DeliveryProperties), of_compound(v010.MessageProperties), st.uuids(), st.integers(0, 99))
def test_headers_of_one_shape(
    body: bytes, largest: int, delivery: Any, message: Any, message_id: UUID, number: int
) -> None:
    """What is made of the first message's properties says the same as the conversion of each by itself."""
    try:
        native = v010.Content(
            0, b"", v010.encode_content(0, v010.encode_header([delivery, message]), body, largest), len(body)
        )
        properties = properties_of(native)[0].encode()
    except errors.LocalProtocolError:
        return
    shape = shape_of(native.frames)
    if shape is None or not ShapeToV091.takes(shape, properties):
        return
    convert = ShapeToV091(1, properties, shape, 131_072)
    assert convert.properties(native.frames) == properties
    assert convert.frames(native.frames, len(body)) == v091.encode_content(1, properties, body, 131_072)
    if message.message_id is not None:
        message.message_id = message_id
    if delivery.timestamp is not None:
        delivery.timestamp = datetime.fromtimestamp(number, UTC)
    if message.correlation_id is not None:
        message.correlation_id = (b"%d" % number * 300)[: len(message.correlation_id)]
    other = v010.Content(
        0, b"", v010.encode_content(0, v010.encode_header([delivery, message]), body, largest), len(body)
    )
    assert shape.fits(other.frames)
    expected = properties_of(other)[0].encode()
    assert convert.properties(other.frames) == expected
    assert convert.frames(other.frames, len(body)) == v091.encode_content(1, expected, body, 131_072)


@pytest.mark.parametrize(
    "message",
    [
        v010.MessageProperties(message_id=UUID(int=1), application_headers={"x-amqp-0-9-1.message-id": "1"}),
        v010.MessageProperties(message_id=UUID(int=1), application_headers={"x-amqp-0-10.app-id": b"1"}),
    ],
)
def test_headers_that_say_more_of_an_identifier(message: v010.MessageProperties) -> None:
    native = v010.Content(0, b"", v010.encode_content(0, v010.encode_header([message]), b"", 65_535), 0)
    shape = shape_of(native.frames)
    assert shape is not None
    assert not ShapeToV091.takes(shape, properties_of(native)[0].encode())
