"""Shapes of headers: what fits has the same bytes but for its identifiers, and comes out with them as it came in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from harebell.protocol.v010 import DeliveryProperties, MessageProperties, Struct, encode_content, encode_header
from harebell.protocol.v010.shapes import CORRELATION_ID, MESSAGE_ID, TEXT_ID, TIMESTAMP, Shape, shape_of
from harebell.protocol.v010.structs import FragmentProperties, ReplyTo

TIMES = st.one_of(st.none(), st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)))
DELIVERIES = st.builds(
    DeliveryProperties,
    priority=st.sampled_from([None, 4]),
    delivery_mode=st.sampled_from([None, 2]),
    ttl=st.sampled_from([None, 1000]),
    timestamp=TIMES,
    routing_key=st.sampled_from([None, "a", "b"]),
    redelivered=st.booleans(),
)
MESSAGES = st.builds(
    MessageProperties,
    content_length=st.sampled_from([None, 7]),
    message_id=st.one_of(st.none(), st.uuids()),
    correlation_id=st.one_of(
        st.none(), st.binary(max_size=3), st.sampled_from([b"12", b"34", "é".encode(), bytes(256)])
    ),
    reply_to=st.sampled_from([None, ReplyTo("", "replies")]),
    content_type=st.sampled_from([None, "text"]),
)
ORDERS = st.sampled_from([(0, 1), (1, 0), (0,), (1,)])


def frames_of(*structs: Struct, body: bytes = b"body") -> bytes:
    return encode_content(1, encode_header(structs), body, 65_535)


def head_of(frames: bytes) -> bytes:
    return frames[: int.from_bytes(frames[2:4], "big")]


def bare(delivery: DeliveryProperties, message: MessageProperties, order: tuple[int, ...]) -> tuple[Any, ...]:
    """What the shape is made of: everything but the identifiers, of which only the lengths matter."""
    structs = (delivery, message)
    correlation = message.correlation_id
    return (
        order,
        (delivery.timestamp is None, message.message_id is None, None if correlation is None else len(correlation)),
        [
            getattr(structs[each], name)
            for each in order
            for name in structs[each].fields()
            if name not in (TIMESTAMP, MESSAGE_ID, CORRELATION_ID)
        ],
    )


@given(st.lists(st.tuples(DELIVERIES, MESSAGES, ORDERS), min_size=2, max_size=6))
def test_what_fits_differs_in_its_identifiers_alone(
    given_messages: list[tuple[DeliveryProperties, MessageProperties, tuple[int, ...]]],
) -> None:
    shapes: list[tuple[Shape, tuple[Any, ...]]] = []
    for delivery, message, order in given_messages:
        structs = (delivery, message)
        frames = frames_of(*(structs[each] for each in order))
        own, correlation = bare(delivery, message, order), message.correlation_id if 1 in order else None
        ids = {
            TIMESTAMP: delivery.timestamp if 0 in order else None,
            MESSAGE_ID: message.message_id if 1 in order else None,
            CORRELATION_ID: correlation,
        }
        text = correlation is None or (len(correlation) <= 255 and is_text(correlation))
        shape = shape_of(frames)
        assert (shape is not None) == (text and any(each is not None for each in ids.values()))
        for other, its in shapes:
            fits = other.fits(frames)
            if fits:
                values = other.values(frames)
                assert other.filled(values) == head_of(frames)
                for name, value in zip(other.names, values, strict=True):
                    if name == MESSAGE_ID:
                        assert UUID(bytes=value) == ids[name]
                    elif name == CORRELATION_ID:
                        assert value == correlation
            if 0 in order and 1 in order and len(its[0]) == 2:
                assert fits == (its == own and text)
        if shape is not None:
            assert shape.fits(frames)
            assert (shape.size, shape.filled(shape.values(frames))) == (len(head_of(frames)), head_of(frames))
            assert set(shape.names) == {name for name, value in ids.items() if value is not None}
            shapes.append((shape, own))


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


WITH_ID = MessageProperties(message_id=UUID(int=7))
HEADER = encode_header([WITH_ID])


@pytest.mark.parametrize(
    "frames",
    [
        b"",
        frames_of(DeliveryProperties(routing_key="a")),
        frames_of(WITH_ID, WITH_ID),  # two structs of a kind
        frames_of(WITH_ID, FragmentProperties(True, False)),
        encode_content(1, HEADER, b"", 20),  # in several frames
        encode_content(1, HEADER[:-1], b"body", 65_535),  # cut
        encode_content(1, HEADER[:4], b"body", 65_535),
        encode_content(1, b"\0\0\0\x02\4\3", b"body", 65_535),  # too short for its packing flags
        encode_content(1, b"\0\0\0\3\4\3\2\0" + bytes(20), b"body", 65_535),
        encode_content(1, b"\0\0\0\x06\4\3\2\0" + bytes(2), b"body", 65_535),  # a message-id that ends too early
        encode_content(1, b"\0\0\0\x05\4\3\4\0\0", b"", 65_535),  # a correlation-id without its length
        frames_of(MessageProperties(correlation_id=b"\xff")),
    ],
)
def test_what_has_no_shape(frames: bytes) -> None:
    assert shape_of(frames) is None


def test_a_header_without_a_body() -> None:
    shape = shape_of(frames_of(WITH_ID, body=b""))
    assert shape is not None
    assert not shape.fits(frames_of(WITH_ID))
    assert shape.fits(frames_of(MessageProperties(message_id=UUID(int=8)), body=b""))


def test_all_identifiers_at_once() -> None:
    delivery = DeliveryProperties(priority=4, delivery_mode=2, ttl=1000, timestamp=datetime(2030, 1, 1, tzinfo=UTC))
    message = MessageProperties(7, UUID(int=7), b"12")
    for structs in ((delivery, message), (message, delivery)):
        frames = frames_of(*structs)
        shape = shape_of(frames)
        assert shape is not None
        assert sorted(shape.names) == [CORRELATION_ID, MESSAGE_ID, TIMESTAMP]
        assert shape.filled(shape.values(frames)) == head_of(frames)
    for alone, name in (
        (MessageProperties(correlation_id="é".encode()), CORRELATION_ID),
        (MessageProperties(message_id=UUID(int=7)), MESSAGE_ID),
    ):
        shape = shape_of(frames_of(alone))
        assert shape is not None
        assert shape.names == (name,)
    assert shape_of(frames_of(MessageProperties(correlation_id=bytes(256)))) is None


def test_a_message_id_that_is_a_text() -> None:
    first, other, longer = (
        frames_of(MessageProperties(correlation_id=b"12", application_headers={"h": 1, TEXT_ID: text}))
        for text in ("ab", "é", "abc")
    )
    shape = shape_of(first)
    assert shape is not None
    assert shape.names == (CORRELATION_ID, TEXT_ID)
    assert shape.values(other) == [b"12", "é".encode()]
    assert shape.filled(shape.values(other)) == head_of(other)
    assert (shape.fits(other), shape.fits(longer)) == (True, False)
    assert not shape.fits(other.replace("é".encode(), b"\xc3\xff"))


@pytest.mark.parametrize("headers", [{TEXT_ID: "ab", "z": 1}, {TEXT_ID: ""}, {TEXT_ID: b"ab"}, {"h": TEXT_ID}, {}])
def test_headers_without_such_a_message_id_at_their_end(headers: dict[str, Any]) -> None:
    assert shape_of(frames_of(MessageProperties(application_headers=headers))) is None
