"""Runs are what the events are one by one: whatever is sent, however it is cut, and whatever octet is wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from harebell.errors import RemoteProtocolError
from harebell.protocol.v091 import Content, Engine, Properties, encode_content, methods as m
from harebell.protocol.v091.codec import HEARTBEAT_FRAME, encode_method
from harebell.protocol.v091.engine import COUNTED, LONG, Grouped
from harebell.protocol.v091.runs import AckRun, ContentRun
from tests.protocol.v091.samples import opened

FRAME_MAX = 4096
PROPERTIES = (
    Properties(), Properties(delivery_mode=2), Properties(expiration="1"), Properties(expiration="2"),
    Properties(message_id="1"), Properties(headers={"a": 1}), Properties(reply_to="a", priority=3),
)  # fmt: skip
BODIES = (b"", b"1", b"2", b"\xce", b"22", b"\xce" * 9, b"3" * (FRAME_MAX - 8), b"4" * (FRAME_MAX + 1))

channels = st.sampled_from((1, 1, 1, 2))
publications = st.builds(
    lambda channel, key, properties, bodies: b"".join(
        encode_method(channel, m.BasicPublish("", key)) + encode_content(channel, properties, body, FRAME_MAX)
        for body in bodies
    ),
    channels,
    st.sampled_from("ab"),
    st.sampled_from(PROPERTIES),
    st.lists(st.sampled_from(BODIES), min_size=1, max_size=5)
    | st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=5),
)
acks = st.builds(
    lambda channel, some: b"".join(encode_method(channel, m.BasicAck(tag, multiple)) for tag, multiple in some),
    channels,
    st.lists(
        st.tuples(st.integers(0, 3) | st.integers(0, 2**64 - 1), st.sampled_from((False, False, False, True))),
        min_size=1, max_size=5,
    ),
)  # fmt: skip
others = st.sampled_from(
    (
        HEARTBEAT_FRAME, encode_method(1, m.BasicQos()), encode_method(2, m.BasicNack(1)),
        encode_method(2, m.BasicGet("q")), encode_method(1, m.ChannelClose()), encode_method(2, m.ChannelCloseOk()),
        encode_method(1, m.BasicPublish("", "a")),
    )
)  # fmt: skip
streams = st.lists(publications | publications | acks | others, min_size=1, max_size=5).map(b"".join)


def server(*, grouping: bool = True) -> Engine:
    engine = opened(1, 2, tune=(2047, FRAME_MAX, 0))[1]
    engine.grouping = grouping
    return engine


def expanded(events: Iterable[tuple[int, Grouped]]) -> list[tuple[object, ...]]:
    found = list[tuple[object, ...]]()
    for number, event in events:
        match event:
            case ContentRun():
                assert len(event.contents) > 1
                found += [(number, *parts(content)) for content in event.contents]
                assert {content.method for content in event.contents} == {event.method}
                assert len({content.raw_properties for content in event.contents}) == 1
                assert event.size == sum(len(content.frames) for content in event.contents)
            case AckRun():
                assert len(event.tags) > 1
                found += [(number, m.BasicAck(tag)) for tag in event.tags]
            case Content():
                found.append((number, *parts(event)))
            case m.Method():
                found.append((number, event))
            case _:
                found.append((number, event.method, event.body_size))
    return found


def parts(content: Content) -> tuple[object, ...]:
    return content.channel, content.method, content.frames, content.body_size


def received(engine: Engine, pieces: Iterable[bytes], most: int = 1 << 20) -> tuple[list[tuple[object, ...]], str]:
    """The events one by one, and the error that ended them; of each piece so many bytes are received at a time."""
    found = list[tuple[object, ...]]()
    for piece in pieces:
        data, at = piece, 0
        while at < len(data):
            try:
                before = len(data) - at
                data, at = engine.receive_part(data, at, most)
                assert len(data) - at < before
            except RemoteProtocolError as error:
                return found + expanded(engine.grouped_events()), str(error.answer)
            found += expanded(engine.grouped_events())
    return found, ""


def check(data: bytes, cuts: Iterable[int] = (), most: int = 1 << 20) -> None:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(places)]
    assert received(server(), pieces, most) == received(server(grouping=False), pieces)


sizes = st.sampled_from((1, 30, 100, 1000, 1 << 20))


@given(streams, st.lists(st.integers(0, 1 << 16), max_size=3), sizes)
def test_runs_are_the_events_one_by_one(data: bytes, cuts: list[int], most: int) -> None:
    check(data, cuts, most)


@given(streams, st.integers(0, 1 << 16), st.integers(0, 255), st.lists(st.integers(0, 1 << 16), max_size=2), sizes)
def test_a_wrong_octet_has_the_same_answer(data: bytes, place: int, octet: int, cuts: list[int], most: int) -> None:
    place %= len(data)
    check(data[:place] + bytes([octet]) + data[place + 1 :], cuts, most)


def test_a_part_ends_behind_the_frames_that_begin_in_it() -> None:
    one = encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(), b"x", 0)
    ack = encode_method(1, m.BasicAck(1))
    engine = server()
    for message, events in ((one, ContentRun), (ack, AckRun)):
        data = 10 * message
        rest = engine.receive_part(data, 0, 2 * len(message) + 1)
        assert rest == (data, 3 * len(message))
        assert [type(event) for _, event in engine.grouped_events()] == [events]
        assert engine.receive_part(*rest, len(message)) == (data, 4 * len(message))
        assert [type(event) for _, event in engine.grouped_events()] != [events]
        assert engine.receive_part(data, 4 * len(message), len(data)) == (data, len(data))
        engine.grouped_events()


def test_of_long_messages_a_part_has_several() -> None:
    """Otherwise all that precedes and follows a part is done for each of them."""
    long = encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(), b"x" * LONG, 0)
    short = encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(), b"x", 0)
    for data, expected in ((10 * long, [8, 2]), (4 * long + 2 * short, [6])):
        assert list(part_sizes(data)) == expected
    behind = 8 * COUNTED // len(short) + 1
    assert max(part_sizes(long + 5000 * short)) <= 1 + behind


def part_sizes(data: bytes) -> Iterator[int]:
    """How many messages each part of 8 * COUNTED bytes has."""
    engine, at = opened(1)[1], 0
    while at < len(data):
        _, at = engine.receive_part(data, at, 8 * COUNTED)
        yield len(expanded(engine.grouped_events()))


def test_long_messages_in_any_two_pieces() -> None:
    long = encode_method(1, m.BasicPublish("", "q")) + encode_content(1, Properties(), b"x" * LONG, 0)
    data = HEARTBEAT_FRAME + 2 * long + HEARTBEAT_FRAME
    whole = received(opened(1)[1], [data])
    for cut in (*range(1, 100), *range(len(long) - 50, len(long) + 100), *range(len(data) - 20, len(data))):
        assert received(opened(1)[1], [data[:cut], data[cut:]], 8 * COUNTED) == whole


def test_what_is_alike_is_one_event() -> None:
    engine = server()
    publish = encode_method(1, m.BasicPublish("", "q"))
    engine.receive_data(
        b"".join(publish + encode_content(1, Properties(), body, 0) for body in (b"1", b"2", b"333", b""))
        + publish + encode_content(1, Properties(priority=1), b"4", 0)
        + b"".join(encode_method(1, m.BasicAck(tag)) for tag in (1, 2, 3))
    )  # fmt: skip
    (_, run), (_, single), (_, acked) = engine.grouped_events()
    assert isinstance(run, ContentRun)
    assert [content.body for content in run.contents] == [b"1", b"2", b"333", b""]
    assert isinstance(single, Content)
    assert isinstance(acked, AckRun)
    assert acked.tags == [1, 2, 3]


def test_unique_properties_of_one_length_are_no_run() -> None:
    engine = server()
    publish = encode_method(1, m.BasicPublish("", "q"))
    for name in ("12", "11"):
        engine.receive_data(
            b"".join(publish + encode_content(1, Properties(message_id=each), b"x", 0) for each in name)
        )
    assert [type(event) for _, event in engine.grouped_events()] == [Content, Content, ContentRun]


@given(streams)
def test_events_gives_each(data: bytes) -> None:
    engine, other = server(), server()
    for each in (engine, other):
        with contextlib.suppress(RemoteProtocolError):
            each.receive_data(data)
    assert expanded(engine.events()) == expanded(other.grouped_events())


@pytest.mark.parametrize("last", [b"\xce", b"\x00"])
def test_an_ack_without_its_end(last: bytes) -> None:
    ack = encode_method(1, m.BasicAck(1))
    check(ack + ack[:-1] + last + ack)


def test_where_a_run_ends() -> None:
    publish, acks = encode_method(1, m.BasicPublish("", "q")), [encode_method(1, m.BasicAck(tag)) for tag in (1, 2)]
    multiple = encode_method(1, m.BasicAck(3, multiple=True))
    short, long = (publish + encode_content(1, Properties(), body, 0) for body in (b"1", b"22"))
    other = encode_method(1, m.BasicPublish("", "other")) + encode_content(1, Properties(), b"1", 0)
    for data in (
        short + long[:-1], short + short[:-1], short + publish, short + other, short + b"\x01", long + short + multiple,
        multiple + acks[0], acks[0] + multiple + acks[1], acks[0] + acks[1] + multiple, acks[0] + acks[1][:-1],
    ):  # fmt: skip
        check(data)
        check(data, most=1)
    engine = server()
    engine.receive_data(short + long + acks[0] + acks[1])
    assert [type(event) for _, event in engine.events()] == [Content, Content, m.BasicAck, m.BasicAck]
