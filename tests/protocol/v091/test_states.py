"""Every (state, speaker, method): what the tables allow passes, the rest is refused with the documented code."""

from __future__ import annotations

import itertools

import pytest

from harebell import errors
from harebell.protocol.v091 import ChannelState, ConnectionState, Engine, Method, Role, methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.content import encode_content
from harebell.protocol.v091.states import CHANNEL_TRANSITIONS, CONNECTION_TRANSITIONS, MAY_SEND
from tests.protocol.v091.samples import opened

S, C = ConnectionState, ChannelState
METHODS = sorted(m.METHODS.values(), key=lambda cls: cls.NAME)
CLOSING = {m.ConnectionClose, m.ConnectionCloseOk}
CHANNEL_CLOSING = {m.ChannelClose, m.ChannelCloseOk}
STATES = list(itertools.product(ConnectionState, Role))
CHANNEL_STATES = list(itertools.product(ChannelState, Role))
# The state in which each peer drops what comes, but close and close-ok: it has closed. In the other one's, it drops all
# that the peer sends behind its own close.
SILENT = {Role.CLIENT: "CLOSED_BY_CLIENT", Role.SERVER: "CLOSED_BY_SERVER"}


def engine_in(state: ConnectionState, role: Role, channel_state: ChannelState = C.CLOSED) -> Engine:
    """Put there by hand: the walk through the states is test_engine's subject."""
    client, server = opened()
    engine = client if role is Role.CLIENT else server
    engine.state = state
    engine._deaf = state is S.CLOSED
    if channel_state is not C.CLOSED:
        engine.channels[1] = channel_state
    return engine


def sample(cls: type[Method]) -> Method:
    return m.ConnectionTuneOk(2047, 131_072) if cls is m.ConnectionTuneOk else cls()


def wire(channel: int, method: Method) -> bytes:
    frame = encode_method(channel, method)
    return frame + encode_content(channel, b"\0\0", b"", 0) if type(method) in m.CARRIES_CONTENT else frame


def send(engine: Engine, channel: int, method: Method) -> None:
    if type(method) in m.CARRIES_CONTENT:
        engine.send_content(channel, method, b"\0\0", b"")
    else:
        engine.send_method(channel, method)


def refuses(engine: Engine, channel: int, method: Method, code: int) -> None:
    state, channels = engine.state, dict(engine.channels)
    with pytest.raises(errors.RemoteProtocolError) as caught:
        engine.receive_data(wire(channel, method))
    assert caught.value.reply_code == code, method
    assert caught.value.scope == "connection"
    assert (caught.value.answer.class_id, caught.value.answer.method_id) == (method.CLASS_ID, method.METHOD_ID)
    assert (engine.state, engine.channels, engine.events()) == (state, channels, [])


def refuses_to_send(engine: Engine, channel: int, method: Method) -> None:
    state, channels = engine.state, dict(engine.channels)
    with pytest.raises(errors.LocalProtocolError):
        send(engine, channel, method)
    assert engine.data_to_send() == b""
    assert (engine.state, engine.channels) == (state, channels)


@pytest.mark.parametrize("state, role", STATES, ids=lambda value: value.name)
def test_receiving_on_channel_0(state: ConnectionState, role: Role) -> None:
    for cls in METHODS:
        if role is Role.SERVER and state is S.AWAIT_HEADER:
            continue  # the first eight bytes are a header, whatever they hold
        engine, method = engine_in(state, role), sample(cls)
        after = CONNECTION_TRANSITIONS[state].get((role.peer, cls))
        closed_by_us = state.name in (SILENT[role], "CLOSED_BY_BOTH")
        closed_by_peer = state.name == SILENT[role.peer]
        if state is S.CLOSED or closed_by_peer or (closed_by_us and cls not in CLOSING):
            engine.receive_data(wire(0, method))
            assert (engine.events(), engine.state) == ([], state)
        elif after is None:
            refuses(engine, 0, method, 504)
        else:
            engine.receive_data(wire(0, method))
            assert engine.events() == [(0, method)]
            assert engine.state is after


@pytest.mark.parametrize("state, role", STATES, ids=lambda value: value.name)
def test_sending_on_channel_0(state: ConnectionState, role: Role) -> None:
    for cls in METHODS:
        engine, method = engine_in(state, role), sample(cls)
        after = CONNECTION_TRANSITIONS[state].get((role, cls))
        if after is None:
            refuses_to_send(engine, 0, method)
        else:
            assert cls in MAY_SEND[role]
            send(engine, 0, method)
            assert engine.data_to_send() == wire(0, method)
            assert engine.state is after


@pytest.mark.parametrize("state, role", STATES, ids=lambda value: value.name)
def test_channels_need_an_open_connection(state: ConnectionState, role: Role) -> None:
    usable = {S.OPEN, S.AWAIT_OPEN_OK}
    for cls in METHODS:
        method = sample(cls)
        if not (state is S.OPEN or (state in usable and role is Role.CLIENT)):
            refuses_to_send(engine_in(state, role), 1, method)
        if (
            state is S.OPEN
            or (state in usable and role is Role.SERVER)
            or (state is S.AWAIT_HEADER and role is Role.SERVER)
        ):
            continue
        engine = engine_in(state, role)
        if state is S.CLOSED or state.name in (*SILENT.values(), "CLOSED_BY_BOTH"):
            engine.receive_data(wire(1, method))
            assert engine.events() == []
        else:
            refuses(engine, 1, method, 504)


def code_of(state: ChannelState, role: Role, cls: type[Method]) -> int:
    """The documented answer to what a channel in that state does not allow."""
    if cls.CLASS_ID == 10:
        return 503
    if cls.CLASS_ID == 20:
        return 503 if state is C.OPEN and cls is not m.ChannelOpen else 504
    if state is C.OPEN or (state is C.AWAIT_OPEN_OK and role is Role.SERVER):
        return 503  # it goes the other way
    return 504


def allowed(state: ChannelState, speaker: Role, cls: type[Method]) -> ChannelState | None:
    if cls.CLASS_ID in (10, 20):
        return CHANNEL_TRANSITIONS[state].get((speaker, cls)) if cls.CLASS_ID == 20 else None
    speaks = state is C.OPEN or (state is C.AWAIT_OPEN_OK and speaker is Role.CLIENT)
    return state if speaks and cls in MAY_SEND[speaker] else None


@pytest.mark.parametrize("state, role", CHANNEL_STATES, ids=lambda value: value.name)
def test_receiving_on_a_channel(state: ChannelState, role: Role) -> None:
    for cls in METHODS:
        engine, method = engine_in(S.OPEN, role, state), sample(cls)
        after = allowed(state, role.peer, cls)
        closed_by_us = state.name in (SILENT[role], "CLOSED_BY_BOTH")
        closed_by_peer = state.name == SILENT[role.peer]
        reopens = cls is m.ChannelOpen and role is Role.SERVER
        if (closed_by_us and cls not in CHANNEL_CLOSING and not reopens) or (
            closed_by_peer and cls is not m.ChannelOpen
        ):
            engine.receive_data(wire(1, method))
            assert (engine.events(), engine.channels) == ([], {1: state})
        elif after is None:
            refuses(engine, 1, method, code_of(state, role, cls))
        else:
            engine.receive_data(wire(1, method))
            ((channel, event),) = engine.events()
            assert channel == 1
            assert (event if isinstance(event, Method) else event.method) in (method, method.encode())
            assert engine.channels.get(1, C.CLOSED) is after


@pytest.mark.parametrize("reopening", [False, True])
def test_a_client_drops_what_comes_late_on_a_closed_channel(reopening: bool) -> None:
    for cls in METHODS:
        engine, method = engine_in(S.OPEN, Role.CLIENT, C.OPEN), sample(cls)
        engine.receive_data(wire(1, m.ChannelClose()))
        engine.send_method(1, m.ChannelCloseOk())
        if reopening:
            engine.send_method(1, m.ChannelOpen())
        engine.events()
        state = C.AWAIT_OPEN_OK if reopening else C.CLOSED
        if cls in (*CHANNEL_CLOSING, m.ChannelOpenOk):
            after = allowed(state, Role.SERVER, cls)
            if after is None:
                refuses(engine, 1, method, 504)
            else:
                engine.receive_data(wire(1, method))
                assert (engine.events(), engine.channels.get(1, C.CLOSED)) == ([(1, method)], after)
        else:
            engine.receive_data(wire(1, method))
            assert (engine.events(), engine.channels.get(1, C.CLOSED)) == ([], state)


def test_a_client_that_never_opened_the_channel_refuses_what_comes_on_it() -> None:
    for cls in METHODS:
        refuses(engine_in(S.OPEN, Role.CLIENT), 1, sample(cls), code_of(C.CLOSED, Role.CLIENT, cls))


@pytest.mark.parametrize("state, role", CHANNEL_STATES, ids=lambda value: value.name)
def test_sending_on_a_channel(state: ChannelState, role: Role) -> None:
    for cls in METHODS:
        engine, method = engine_in(S.OPEN, role, state), sample(cls)
        after = allowed(state, role, cls)
        if after is None:
            refuses_to_send(engine, 1, method)
        else:
            send(engine, 1, method)
            assert engine.data_to_send() == wire(1, method)
            assert engine.channels.get(1, C.CLOSED) is after


def test_tables_speak_of_methods_that_may_be_sent() -> None:
    for table in (CONNECTION_TRANSITIONS, CHANNEL_TRANSITIONS):
        for row in table.values():
            assert all(cls in MAY_SEND[speaker] for speaker, cls in row)
    assert set(CONNECTION_TRANSITIONS) == set(ConnectionState)
    assert set(CHANNEL_TRANSITIONS) == set(ChannelState)


def test_every_close_is_answered_once() -> None:
    for table, close, close_ok, closed in (
        (CONNECTION_TRANSITIONS, m.ConnectionClose, m.ConnectionCloseOk, "CLOSED"),
        (CHANNEL_TRANSITIONS, m.ChannelClose, m.ChannelCloseOk, "CLOSED"),
    ):
        for order in itertools.permutations([Role.CLIENT, Role.SERVER]):
            for answers in itertools.permutations([Role.CLIENT, Role.SERVER]):
                state = next(state for state in table if state.name == "OPEN")
                for speaker in order:
                    state = table[state][speaker, close]  # type: ignore[index]
                for speaker in answers:
                    assert state.name != closed
                    state = table[state][speaker, close_ok]  # type: ignore[index]
                assert state.name == closed
