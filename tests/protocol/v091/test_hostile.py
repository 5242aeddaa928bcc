"""Hostile bytes, in every state and both roles: nothing but RemoteProtocolError comes out of `receive_data`."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.defaults import MAX_TABLE_DEPTH
from harebell.protocol.v091 import ChannelState, ConnectionState, Content, Engine, Event, Role
from harebell.protocol.v091.codec import PROTOCOL_HEADER, encode_frame, encode_method
from harebell.protocol.v091.content import encode_content
from tests.fixtures.profiles import scaled
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import METHODS, opened

STATES = list(itertools.product(ConnectionState, Role))


def engine_in(state: ConnectionState, role: Role) -> Engine:
    client, server = opened(max_message_size=1000)
    engine = client if role is Role.CLIENT else server
    engine.state = state
    if state is ConnectionState.OPEN:
        for number, channel_state in enumerate(ChannelState, 1):
            if channel_state is not ChannelState.CLOSED:
                engine.channels[number] = channel_state
    return engine


def survive(engine: Engine, pieces: list[bytes]) -> tuple[list[Event], int]:
    """What came out and the first reply code; decoding everything on the way."""
    code, events = 0, []
    for piece in pieces:
        try:
            engine.receive_data(piece)
        except errors.RemoteProtocolError as error:
            code = code or error.reply_code
        events += engine.events()
    for _, event in events:
        assert repr(event)
        if isinstance(event, Content):
            assert len(event.body) == event.body_size
            assert event.persistent in (True, False)
            for look in (event.decode_method, event.decode_properties, event.checked_properties):
                with contextlib.suppress(errors.RemoteProtocolError):
                    look()
            assert Content(9, b"", event.recut(9, 20), event.body_size).body == event.body
    return events, code


payloads = st.binary(max_size=60)
channels = st.sampled_from([0, 1, 2, 3, 9, 65_535])
frames = st.one_of(
    st.builds(encode_frame, st.sampled_from([1, 2, 3, 8, 0, 255]), channels, payloads),
    st.builds(lambda channel, sample: encode_frame(1, channel, sample[1]), channels, st.sampled_from(METHODS)),
    st.builds(lambda channel, sample, tail: encode_frame(1, channel, sample[1][:4] + tail), channels,
              st.sampled_from(METHODS), payloads),
    st.builds(encode_method, channels, strategies.methods),
    st.builds(encode_content, channels, strategies.properties, payloads, st.sampled_from([0, 20])),
    st.builds(encode_content, channels, payloads, payloads, st.sampled_from([0, 20])),
    payloads,
)  # fmt: skip


@pytest.mark.parametrize("state, role", STATES, ids=lambda value: value.name)
@settings(max_examples=scaled(40))
@given(data=st.data())
def test_frames_and_noise_in_every_state(state: ConnectionState, role: Role, data: st.DataObject) -> None:
    stream = b"".join(data.draw(st.lists(frames, max_size=8)))
    whole = engine_in(state, role)
    cut = engine_in(state, role)
    single = engine_in(state, role)
    events, code = survive(whole, [stream, b""])
    # A refusal ends a call, so that cuts are the same up to the first one only.
    pieces = data.draw(strategies.cuts(stream))
    for engine, parts in ((cut, pieces), (single, [stream[i : i + 1] for i in range(len(stream))])):
        other, other_code = survive(engine, [*parts, b""])
        assert other_code == code
        if not code:
            assert [(channel, repr(event)) for channel, event in other] == [(c, repr(e)) for c, e in events]
            assert (engine.state, engine.channels) == (whole.state, whole.channels)


@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
@given(stream=st.binary(max_size=200))
def test_noise(role: Role, stream: bytes) -> None:
    for state in ConnectionState:
        survive(engine_in(state, role), [stream])
    survive(Engine(role), [PROTOCOL_HEADER + stream])


CONVERSATION = b"".join(
    encode_frame(1, channel, raw) for method, raw in METHODS for channel in [0 if method.CLASS_ID == 10 else 2]
) + b"".join(
    encode_frame(1, 2, raw) + encode_content(2, b"\xb0\x80\3a/b\0\0\0\7\1aI\0\0\0\1\2\1m", b"hello", 0)
    for method, raw in METHODS
    if method.NAME in ("basic.publish", "basic.deliver", "basic.get-ok")
)


@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
@given(data=st.data())
def test_mutated_conversations(role: Role, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(CONVERSATION) - 1))
    stream = bytearray(CONVERSATION[start:] if data.draw(st.booleans()) else CONVERSATION)
    for _ in range(data.draw(st.integers(1, 8))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    engine = engine_in(ConnectionState.OPEN, role)
    survive(engine, [bytes(stream[at : at + 97]) for at in range(0, len(stream), 97)])


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_deep_nesting_is_refused_before_the_stack_ends(letter: bytes) -> None:
    raw = b""
    for _ in range(5000):
        raw = letter + len(raw).to_bytes(4, "big") + raw
        if letter == b"F":
            raw = b"\0" + raw
    raw = raw[1:] if letter == b"F" else raw
    table = len(b"\1k" + raw).to_bytes(4, "big") + b"\1k" + raw
    engine = engine_in(ConnectionState.OPEN, Role.SERVER)
    number = list(ChannelState).index(ChannelState.OPEN) + 1
    publish = next(raw for method, raw in METHODS if method.NAME == "basic.publish")
    engine.receive_data(encode_frame(1, number, publish) + encode_content(number, b"\x20\0" + table, b"", 0))
    ((_, content),) = engine.events()
    assert isinstance(content, Content)
    for look in (content.decode_properties, content.checked_properties):
        with pytest.raises(errors.RemoteProtocolError) as caught:
            look()
        assert caught.value.reply_code == 502
    assert MAX_TABLE_DEPTH < 100


def test_a_frame_that_never_ends_is_gathered_in_linear_time() -> None:
    engine = engine_in(ConnectionState.OPEN, Role.SERVER)
    frame = encode_frame(3, 1, b"x" * 100_000)
    for byte in frame[:-1]:
        engine.receive_data(bytes([byte]))
    assert sum(map(len, engine._held)) == len(frame) - 1
    assert all(len(piece) <= 8 for piece in engine._held)  # held as they came: nothing is joined again and again


def test_extreme_numbers() -> None:
    for raw in (b"\0\x40" + b"\xff" * 8, b"\x20\0\0\0\0\x0b\1kT" + b"\xff" * 8, b"\x20\0\0\0\0\x08\1kD\xff\x80\0\0\0"):
        number = list(ChannelState).index(ChannelState.OPEN) + 1
        content = Content(number, b"", encode_content(number, raw, b"", 0), 0)
        content.checked_properties()
        assert content.decode_properties() == content.properties
