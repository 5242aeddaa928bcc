"""Messages in their frames, from one dialect to the other: what comes out is what property by property would."""

from __future__ import annotations

import pytest

from harebell.protocol import v010, v091
from harebell.protocol.conversion.contents import MOST, MOST_BYTES, Headers, ToV091
from harebell.protocol.conversion.properties import from_v091, header_of
from harebell.protocol.v010.frames import BODY, FRAME_HEADER, LARGEST_FRAME
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.content import stored_content

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
