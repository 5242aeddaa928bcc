"""The states of a connection and of a channel, and the methods that each peer may send in them, as tables of data.

Both peers run the same machine. A transition is keyed by the peer that sends, so the engine need not know its own role.

States and roles hash by identity: the engine looks into these tables for every method, and Enum's own hash is a Python
function.

Rules:
1. A connection opens in one order: header, start, start-ok, (secure, secure-ok)*, tune, tune-ok, open, open-ok.
2. From start on, either peer may send connection.close. After it the sender ignores everything but close and close-ok,
   and the other peer ignores what the sender still sends.
3. If both close at once, each answers the other's close with close-ok; the state is closed when both have answered.
4. A channel opens with open, open-ok and closes like a connection; after close-ok its number may be used again.
5. Methods of other classes need an open connection and an open channel, and go in the directions of the specification.
6. The client may run ahead: use the connection before open-ok, and a channel before its open-ok, as RabbitMQ lets it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from harebell.protocol.roles import Role
from harebell.protocol.v091 import methods as m

__all__ = ["CHANNEL_TRANSITIONS", "CONNECTION_TRANSITIONS", "ChannelState", "ConnectionState", "Role"]


class ConnectionState(Enum):
    AWAIT_HEADER = auto()  # the client has not sent its protocol header
    AWAIT_START = auto()
    AWAIT_START_OK = auto()
    AWAIT_TUNE = auto()  # or secure, or close for a refused login
    AWAIT_SECURE_OK = auto()
    AWAIT_TUNE_OK = auto()
    AWAIT_OPEN = auto()
    AWAIT_OPEN_OK = auto()
    OPEN = auto()
    CLOSED_BY_CLIENT = auto()  # the client has sent close, the server has not answered
    CLOSED_BY_SERVER = auto()
    CLOSED_BY_BOTH = auto()  # both have sent close, neither has answered
    CLOSED = auto()

    __hash__ = object.__hash__


class ChannelState(Enum):
    AWAIT_OPEN_OK = auto()
    OPEN = auto()
    CLOSED_BY_CLIENT = auto()
    CLOSED_BY_SERVER = auto()
    CLOSED_BY_BOTH = auto()
    CLOSED = auto()  # never stored: a closed channel leaves the engine's table

    __hash__ = object.__hash__


C, S = Role.CLIENT, Role.SERVER
_K = ConnectionState
_H = ChannelState

ConnectionTable = dict[ConnectionState, dict[tuple[Role, type[m.Method]], ConnectionState]]
ChannelTable = dict[ChannelState, dict[tuple[Role, type[m.Method]], ChannelState]]

CONNECTION_TRANSITIONS: Final[ConnectionTable] = {
    _K.AWAIT_HEADER: {},
    _K.AWAIT_START: {(S, m.ConnectionStart): _K.AWAIT_START_OK},
    _K.AWAIT_START_OK: {(C, m.ConnectionStartOk): _K.AWAIT_TUNE},
    _K.AWAIT_TUNE: {(S, m.ConnectionSecure): _K.AWAIT_SECURE_OK, (S, m.ConnectionTune): _K.AWAIT_TUNE_OK},
    _K.AWAIT_SECURE_OK: {(C, m.ConnectionSecureOk): _K.AWAIT_TUNE},
    _K.AWAIT_TUNE_OK: {(C, m.ConnectionTuneOk): _K.AWAIT_OPEN},
    _K.AWAIT_OPEN: {(C, m.ConnectionOpen): _K.AWAIT_OPEN_OK},
    _K.AWAIT_OPEN_OK: {(S, m.ConnectionOpenOk): _K.OPEN},
    _K.OPEN: {
        (S, m.ConnectionBlocked): _K.OPEN,
        (S, m.ConnectionUnblocked): _K.OPEN,
        (C, m.ConnectionUpdateSecret): _K.OPEN,
        (S, m.ConnectionUpdateSecretOk): _K.OPEN,
    },
    _K.CLOSED_BY_CLIENT: {
        (S, m.ConnectionCloseOk): _K.CLOSED,
        (S, m.ConnectionClose): _K.CLOSED_BY_BOTH,
    },
    _K.CLOSED_BY_SERVER: {
        (C, m.ConnectionCloseOk): _K.CLOSED,
        (C, m.ConnectionClose): _K.CLOSED_BY_BOTH,
    },
    _K.CLOSED_BY_BOTH: {
        (S, m.ConnectionCloseOk): _K.CLOSED_BY_SERVER,
        (C, m.ConnectionCloseOk): _K.CLOSED_BY_CLIENT,
    },
    _K.CLOSED: {},
}
for _state, _row in CONNECTION_TRANSITIONS.items():
    if _K.AWAIT_START.value < _state.value <= _K.OPEN.value:
        _row[C, m.ConnectionClose] = _K.CLOSED_BY_CLIENT
        _row[S, m.ConnectionClose] = _K.CLOSED_BY_SERVER

CHANNEL_TRANSITIONS: Final[ChannelTable] = {
    _H.CLOSED: {(C, m.ChannelOpen): _H.AWAIT_OPEN_OK},
    _H.AWAIT_OPEN_OK: {
        (S, m.ChannelOpenOk): _H.OPEN,
        (C, m.ChannelFlow): _H.AWAIT_OPEN_OK,  # like every method of a client that runs ahead
        (S, m.ChannelClose): _H.CLOSED_BY_SERVER,
        (C, m.ChannelClose): _H.CLOSED_BY_CLIENT,
    },
    _H.OPEN: {
        (C, m.ChannelFlow): _H.OPEN,
        (S, m.ChannelFlow): _H.OPEN,
        (C, m.ChannelFlowOk): _H.OPEN,
        (S, m.ChannelFlowOk): _H.OPEN,
        (S, m.ChannelClose): _H.CLOSED_BY_SERVER,
        (C, m.ChannelClose): _H.CLOSED_BY_CLIENT,
    },
    _H.CLOSED_BY_CLIENT: {
        (S, m.ChannelCloseOk): _H.CLOSED,
        (S, m.ChannelClose): _H.CLOSED_BY_BOTH,
    },
    _H.CLOSED_BY_SERVER: {
        (C, m.ChannelCloseOk): _H.CLOSED,
        (C, m.ChannelClose): _H.CLOSED_BY_BOTH,
    },
    _H.CLOSED_BY_BOTH: {
        (S, m.ChannelCloseOk): _H.CLOSED_BY_SERVER,
        (C, m.ChannelCloseOk): _H.CLOSED_BY_CLIENT,
    },
}

MAY_SEND: Final = {C: m.CLIENT_SENDS, S: m.SERVER_SENDS}
# the states in which a peer has sent close and still waits for the answer
CLOSED_BY: Final = {
    C: frozenset({_K.CLOSED_BY_CLIENT, _K.CLOSED_BY_BOTH}),
    S: frozenset({_K.CLOSED_BY_SERVER, _K.CLOSED_BY_BOTH}),
}
CHANNEL_CLOSED_BY: Final = {
    C: frozenset({_H.CLOSED_BY_CLIENT, _H.CLOSED_BY_BOTH}),
    S: frozenset({_H.CLOSED_BY_SERVER, _H.CLOSED_BY_BOTH}),
}
