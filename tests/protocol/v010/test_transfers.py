"""Messages that are alike, recognised by their bytes: the same events as one by one, whatever stands between them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v010 import (
    Content,
    DeliveryProperties,
    Engine,
    Event,
    MessageProperties,
    OversizedContent,
    commands as c,
    encode_content,
    encode_header,
)
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.transfers import Transfers
from tests.protocol.v010.samples import attached, command, frame

HEADERS = [
    b"",
    encode_header([DeliveryProperties(routing_key="a")]),
    encode_header([DeliveryProperties(routing_key="b")]),
    encode_header([DeliveryProperties(routing_key="a"), MessageProperties(content_type="x" * 90)]),
]
COMMANDS = [c.MessageTransfer("x"), c.MessageTransfer("x", sync=True), c.MessageTransfer("y", 0, 0)]


def transfer(which: int, header: int, body: bytes, channel: int = 1, largest: int = 65_535) -> bytes:
    content = encode_content(channel, HEADERS[header], body, largest)
    return command_frames(channel, COMMANDS[which].encode(), largest, bool(content)) + content


def server(max_message_size: int = 90) -> Engine:
    _, engine = attached()
    engine.max_message_size = max_message_size
    return engine


def shown(events: list[Event]) -> list[object]:
    found: list[object] = []
    for channel, event in events:
        match event:
            case Content():
                found.append((channel, event.command, event.frames, event.body_size))
            case OversizedContent():
                found.append((channel, event.command, event.limit))
            case _:
                found.append((channel, event))
    return found


def one_by_one(engine: Engine, data: bytes) -> tuple[list[object], object]:
    """The events of the octets, each by itself, and the error."""
    found: list[Event] = []
    for at in range(len(data)):
        try:
            engine.receive_data(data[at : at + 1])
        except errors.RemoteProtocolError as error:
            return shown(found + engine.events()), str(error)
        found += engine.events()
    return shown(found), None


MESSAGES = st.builds(
    transfer, st.integers(0, 2), st.integers(0, 3), st.sampled_from([b"", b"1", b"2", b"22", b"333", bytes(91)]),
    st.sampled_from([1, 1, 1, 2]), st.sampled_from([65_535, 65_535, 65_535, 100]),
)  # fmt: skip
PIECES = st.one_of(
    MESSAGES,
    MESSAGES.flatmap(lambda message: st.integers(2, 6).map(lambda count: message * count)),
    st.just(command(c.TxSelect())),
)
SPOILT = st.tuples(st.integers(0, 600), st.integers(0, 255))


@given(st.lists(PIECES, max_size=8), st.one_of(st.none(), SPOILT))
def test_together_they_are_what_they_are_one_by_one(pieces: list[bytes], spoilt: tuple[int, int] | None) -> None:
    """So it is when an octet of theirs is another one."""
    data = bytearray(b"".join(pieces))
    if spoilt is not None and data:
        data[spoilt[0] % len(data)] = spoilt[1]
    expected, error = one_by_one(server(), bytes(data))
    whole, said = server(), None
    try:
        whole.receive_data(bytes(data))
    except errors.RemoteProtocolError as caught:
        said = str(caught)
    grouped = whole.grouped_events()
    flat: list[Event] = []
    for channel, event in grouped:
        if isinstance(event, Transfers):
            assert len(event.bodies) > 1
            contents = list(event.contents())
            assert event.size == sum(len(content.frames) for content in contents)
            assert event.sync == contents[0].sync
            flat += [(channel, content) for content in contents]
        else:
            flat.append((channel, event))
    assert (shown(flat), said) == (expected, error)


def test_what_is_alike_is_together() -> None:
    engine = server()
    engine.receive_data(b"".join(transfer(0, 1, body) for body in (b"1", b"2", b"33", b"4")) + transfer(1, 1, b"5"))
    (first, second) = engine.grouped_events()
    assert isinstance(first[1], Transfers)
    assert [content.body for content in first[1].contents()] == [b"1", b"2", b"33", b"4"]
    assert isinstance(second[1], Content)
    assert not first[1].sync
    engine.receive_data(transfer(0, 1, b"1") * 2)
    assert [event.body for _, event in engine.events() if isinstance(event, Content)] == [b"1", b"1"]


def test_headers_of_one_length_are_together() -> None:
    engine = server()
    engine.receive_data(b"".join(transfer(0, header, b"%d" % header) for header in (1, 1, 2, 1, 2)))
    ((_, event),) = engine.grouped_events()
    assert isinstance(event, Transfers)
    assert event.heads is not None
    assert [content.delivery_properties.routing_key for content in event.contents()] == ["a", "a", "b", "a", "b"]
    assert [content.body for content in event.contents()] == [b"1", b"1", b"2", b"1", b"2"]


@pytest.mark.parametrize(
    "second",
    [
        frame(7, 3, b"z" * 91),  # too long a body
        frame(6, 3, b"z") + frame(5, 3, b"z"),  # in two frames
        frame(7, 3, b"z", channel=2),
        frame(7, 3, b"z", track=0),
        frame(7, 2, b"z"),
        frame(7, 3, b"z")[:-2],  # not whole
        frame(7, 3, b"z")[:8],
    ],
)
def test_what_is_not_alike_is_not_together(second: bytes) -> None:
    first = transfer(0, 1, b"y")
    data = first + first[:-13] + second
    engine = server()
    try:
        engine.receive_data(data)
    except errors.RemoteProtocolError:
        pass
    (_, event), *_ = engine.grouped_events()
    assert isinstance(event, Content)
