"""Hostile bytes, in every state and both roles: nothing but RemoteProtocolError comes out of engine and session."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    ConnectionState,
    Content,
    Control,
    Engine,
    Event,
    Role,
    controls as k,
)
from harebell.protocol.v010.codec import encode_command, encode_control
from harebell.protocol.v010.content import encode_content
from harebell.protocol.v010.frames import PROTOCOL_HEADER, command_frames, control_frames
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.sending import SendingHalf
from harebell.protocol.v010.session import Session
from tests.fixtures.profiles import scaled
from tests.protocol.v010 import strategies
from tests.protocol.v010.samples import NAME, frame, opened

STATES = list(itertools.product(ConnectionState, Role))


def engine_in(state: ConnectionState, role: Role) -> Engine:
    client, server = opened(max_message_size=1000)
    engine = client if role is Role.CLIENT else server
    engine.state = state
    engine._greeted = state not in (ConnectionState.AWAIT_HEADER, ConnectionState.AWAIT_START)
    if state is ConnectionState.OPEN:
        for number, attachment in enumerate(AttachmentState):
            if attachment is not AttachmentState.DETACHED:
                engine.attachments[number], engine.names[number] = attachment, NAME
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
    session: Session[bytes] = Session(b"s", SendingHalf(0, max_commands=10), ReceivingHalf(max_incomplete=10))
    for _, event in events:
        assert repr(event)
        with contextlib.suppress(errors.RemoteProtocolError):
            if isinstance(event, Content):
                assert len(event.body) == event.body_size
                assert Content(9, b"", event.frames_for(9, 20), event.body_size).body == event.body
                event.decode_command()
                event.check()
            elif isinstance(event, Control):
                session.receive_control(event)
            elif isinstance(event, Command):
                session.receiving.receive(event.sync)
    return events, code


payloads = st.binary(max_size=60)
channels = st.sampled_from([0, 1, 2, 3, 4, 5, 9, 99, 65_535])
frames = st.one_of(
    st.builds(
        lambda flags, kind, track, channel, payload: frame(flags, kind, payload, track=track, channel=channel),
        st.integers(0, 15) | st.integers(0, 255), st.integers(0, 4), st.integers(0, 2), channels, payloads,
    ),
    st.builds(lambda channel, each: control_frames(channel, encode_control(each), 4096), channels, strategies.controls),
    st.builds(lambda channel, each: command_frames(channel, encode_command(each), 40), channels, strategies.commands),
    st.builds(
        lambda channel, command, header, body, size: (
            command_frames(channel, b"\4\1\1\0" + command, size, True) + encode_content(channel, header, body, size)
        ),
        channels, st.just(b"\0\0") | payloads, payloads, payloads, st.sampled_from([20, 4096]),
    ),
    payloads,
)  # fmt: skip


@pytest.mark.parametrize("state, role", STATES, ids=lambda value: value.name)
@settings(max_examples=scaled(30))
@given(data=st.data())
def test_frames_and_noise_in_every_state(state: ConnectionState, role: Role, data: st.DataObject) -> None:
    stream = b"".join(data.draw(st.lists(frames, max_size=8)))
    whole, cut, single = (engine_in(state, role) for _ in range(3))
    events, code = survive(whole, [stream, b""])
    # A refusal ends a call, so that cuts are the same up to the first one only.
    pieces = data.draw(strategies.cuts(stream))
    for engine, parts in ((cut, pieces), (single, [stream[i : i + 1] for i in range(len(stream))])):
        other, other_code = survive(engine, [*parts, b""])
        assert other_code == code
        if not code:
            assert [(channel, repr(event)) for channel, event in other] == [(c, repr(e)) for c, e in events]
            assert (engine.state, engine.attachments) == (whole.state, whole.attachments)


@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
@given(stream=st.binary(max_size=200))
def test_noise(role: Role, stream: bytes) -> None:
    for state in ConnectionState:
        survive(engine_in(state, role), [stream])
    survive(Engine(role), [PROTOCOL_HEADER + stream])


def test_a_frame_that_never_ends_is_gathered_in_linear_time() -> None:
    engine = engine_in(ConnectionState.OPEN, Role.SERVER)
    data = frame(0x0B, 1, b"x" * 60_000)
    for at in range(len(data) - 1):
        engine.receive_data(data[at : at + 1])
    assert sum(map(len, engine._held)) == len(data) - 1
    assert all(len(piece) <= 12 for piece in engine._held)


def test_sessions_opened_and_dropped_leave_nothing() -> None:
    _, server = opened()
    once = control_frames(1, b"\2\1\1\0\0\1s", 4096) + control_frames(1, b"\2\3\1\0\0\1s", 4096)
    for _ in range(2000):
        server.receive_data(once)
        server.events()
        server.send_control(1, k.SessionDetached(b"s", 0))
        server.data_to_send()
    assert not server.attachments
    assert not server.names
    assert not server._assemblies
