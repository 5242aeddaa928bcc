"""The frames of a large message: those that a copy would have, on any channel, with any header, for any peer."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell.broker.message import Address, Held, Message
from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import Content, Engine, Properties, Role, fitting, methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.content import encode_content
from harebell.protocol.v091.large_frames import LARGE, LargeFrames
from tests.protocol.v091.samples import opened

PROPERTIES = Properties(delivery_mode=2, headers={"x-delivery-count": 7, "mine": "yes"})


def content(size: int, frame_max: int, channel: int = 1, properties: Properties = PROPERTIES) -> Content:
    body = bytes(at % 251 for at in range(size))
    return Content(channel, b"", encode_content(channel, properties, body, frame_max), size)


def joined(frames: bytes | LargeFrames) -> bytes:
    data = frames if isinstance(frames, bytes) else b"".join(frames.pieces)
    assert len(frames) == len(data)
    return data


def parsed(engine_frames: bytes, channel: int, frame_max: int) -> Content:
    """The message that a peer with this frame size reads."""
    _, server = opened(channel, tune=(10, max(frame_max, 4096), 0))
    server.receive_data(encode_method(channel, m.BasicPublish("e", "k")) + engine_frames)
    ((number, found),) = server.events()
    assert isinstance(found, Content)
    assert number == channel
    return found


@given(
    st.integers(0, 3000), st.integers(60, 900), st.integers(1, 3), st.sampled_from([0, 70, 100, 333, 900, 5000]),
    st.integers(0, 3),
)  # fmt: skip
@pytest.mark.pure
def test_a_large_message_is_sent_as_a_small_one(
    size: int, stored: int, channel: int, frame_max: int, count: int
) -> None:
    whole = content(size, stored)
    held = Held(Message(Address("e", "k"), whole), 0)
    held.count = count
    try:
        expected = parsed(joined(held.frames_for(channel, frame_max)), channel, frame_max)
    except LocalProtocolError:
        expected = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "LARGE", 0)
        patch.setattr("harebell.broker.message.LARGE", 0)
        patch.setattr(fitting, "_large_frames", _without_recursion)
        if expected is None:
            with pytest.raises(LocalProtocolError):
                held.frames_for(channel, frame_max)
            return
        found = joined(held.frames_for(channel, frame_max))
    got = parsed(found, channel, frame_max)
    assert (got.raw_properties, got.body) == (expected.raw_properties, expected.body)


large_frames = fitting._large_frames


def _without_recursion(whole: Content, channel: int, frame_max: int) -> bytes | LargeFrames:
    """As in real life, where a header frame is not large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "LARGE", 1 << 20)
        return large_frames(whole, channel, frame_max)


def test_a_large_body_is_not_copied() -> None:
    whole = content(2 * LARGE, 131_072)
    engine = Engine(Role.SERVER)
    for number, frame_max, same in ((1, 131_072, True), (2, 131_072, False), (1, 4096, False), (3, 0, False)):
        frames = fitting.fitting_frames(whole, number, frame_max)
        assert (frames is whole.frames) == same
        if isinstance(frames, LargeFrames):
            assert all(view.obj is whole.frames for view in frames.pieces if isinstance(view, memoryview))
            assert sum(len(piece) for piece in frames.pieces if isinstance(piece, bytes)) < len(frames) // 100
        engine.frame_max = frame_max or 1 << 31
        deliver = encode_method(number, m.BasicDeliver("t", 1, False, "e", "k"))
        engine.send_deliveries((deliver, b"", b"", frames))
        engine.send_frames(deliver, frames)
        assert b"".join(engine.pieces_to_send()) == 2 * (deliver + joined(frames))
        engine.send_deliveries((deliver, b"", b"", frames))
        assert engine.data_to_send() == deliver + joined(frames)
