"""A confirm that comes alone is read in one step, and means what the long way makes of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from harebell import errors
from harebell.protocol.v091 import Engine, methods as m
from harebell.protocol.v091.codec import encode_method
from tests.protocol.v091.samples import opened


@st.composite
def nearly_acks(draw: st.DrawFn) -> bytes:
    """A basic.ack frame with some octets changed, or cut, or with more behind it."""
    tag, multiple = draw(st.integers(0, 2**64 - 1)), draw(st.booleans())
    data = bytearray(encode_method(draw(st.integers(0, 2)), m.BasicAck(tag, multiple)))
    for at, octet in draw(st.dictionaries(st.integers(0, len(data) - 1), st.integers(0, 255), max_size=2)).items():
        data[at] = octet
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def long_way(engine: Engine, data: bytes) -> list[tuple[int, object]]:
    try:
        engine.receive_data(data)
    except errors.RemoteProtocolError:
        return []
    return [*engine.events()]


@given(nearly_acks())
@example(encode_method(1, m.BasicAck(7, True)))
@example(encode_method(1, m.BasicNack(7, True)))
@example(encode_method(2, m.BasicAck(7)))
def test_it_is_what_the_long_way_makes_of_it(data: bytes) -> None:
    confirm = opened(1)[0].lone_confirm(data)
    events = long_way(opened(1)[0], data)
    acks = [(number, ack.delivery_tag, ack.multiple) for number, ack in events if isinstance(ack, m.BasicAck)]
    assert acks == ([] if confirm is None else [confirm])


ACK = encode_method(1, m.BasicAck(7))
RETURN = encode_method(1, m.BasicReturn(312, "NO_ROUTE", "", "q"))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(ACK[:5], id="half a frame"),
        pytest.param(RETURN, id="a method whose content is to come"),
        pytest.param(b"\x09" * 8, id="no frame: nothing is received any more"),
        pytest.param(ACK, id="events that nobody took"),
        pytest.param(encode_method(0, m.ConnectionClose(320)), id="a close"),
        pytest.param(encode_method(1, m.ChannelClose(404)), id="a close of the channel"),
    ],
)
def test_what_came_before_comes_first(before: bytes) -> None:
    client, _ = opened(1)
    try:
        client.receive_data(before)
    except errors.RemoteProtocolError:
        pass
    assert client.lone_confirm(ACK) is None


def test_the_servers_side_reads_acknowledgements_alike() -> None:
    assert opened(1)[1].lone_confirm(ACK) == (1, 7, False)
