"""The states of a connection, and of a session's attachment to a channel, as tables of data.

Both peers run the same machine. A transition is keyed by the peer that sends, so the engine need not know its own role.

Rules:
1. A connection opens in one order: header (both ways), start, start-ok, (secure, secure-ok)*, tune, tune-ok, open,
   open-ok or redirect. After a redirect the client only closes.
2. From start on, either peer may send connection.close. After it the sender ignores everything but close and close-ok,
   and the other peer ignores what the sender still sends.
3. If both close at once, each answers the other's close with close-ok; the state is closed when both have answered.
4. Heartbeats go both ways from tune-ok on.
5. Either peer attaches a session to a channel; the other answers attached or detached. Who attaches may run ahead: it
   may send commands and controls of the session before the answer.
6. After a detach the sender ignores everything but detach and detached on that channel, and the other peer ignores
   what the sender still sends. A detached without a detach ends the attachment at once.
7. What names another session than the attached one changes nothing. A detached on a channel without a session is
   ignored: the answer to it would be another one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from harebell.protocol.roles import Role
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v010.compounds import Control

__all__ = ["ATTACHMENT_TRANSITIONS", "CONNECTION_TRANSITIONS", "AttachmentState", "ConnectionState", "Role"]


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
    REDIRECTED = auto()
    CLOSED_BY_CLIENT = auto()  # the client has sent close, the server has not answered
    CLOSED_BY_SERVER = auto()
    CLOSED_BY_BOTH = auto()  # both have sent close, neither has answered
    CLOSED = auto()

    __hash__ = object.__hash__


class AttachmentState(Enum):
    DETACHED = auto()  # never stored: such a channel leaves the engine's table
    ATTACHING_BY_CLIENT = auto()  # the client has sent attach, the server has not answered
    ATTACHING_BY_SERVER = auto()
    ATTACHED = auto()
    DETACHING_BY_CLIENT = auto()
    DETACHING_BY_SERVER = auto()

    __hash__ = object.__hash__


C, S = Role.CLIENT, Role.SERVER
_K = ConnectionState
_A = AttachmentState

ConnectionTable = dict[ConnectionState, dict[tuple[Role, type[Control]], ConnectionState]]
AttachmentTable = dict[AttachmentState, dict[tuple[Role, type[Control]], AttachmentState]]

CONNECTION_TRANSITIONS: Final[ConnectionTable] = {
    _K.AWAIT_HEADER: {},
    _K.AWAIT_START: {(S, k.ConnectionStart): _K.AWAIT_START_OK},
    _K.AWAIT_START_OK: {(C, k.ConnectionStartOk): _K.AWAIT_TUNE},
    _K.AWAIT_TUNE: {(S, k.ConnectionSecure): _K.AWAIT_SECURE_OK, (S, k.ConnectionTune): _K.AWAIT_TUNE_OK},
    _K.AWAIT_SECURE_OK: {(C, k.ConnectionSecureOk): _K.AWAIT_TUNE},
    _K.AWAIT_TUNE_OK: {(C, k.ConnectionTuneOk): _K.AWAIT_OPEN},
    _K.AWAIT_OPEN: {(C, k.ConnectionOpen): _K.AWAIT_OPEN_OK},
    _K.AWAIT_OPEN_OK: {(S, k.ConnectionOpenOk): _K.OPEN, (S, k.ConnectionRedirect): _K.REDIRECTED},
    _K.OPEN: {},
    _K.REDIRECTED: {},
    _K.CLOSED_BY_CLIENT: {
        (S, k.ConnectionCloseOk): _K.CLOSED,
        (S, k.ConnectionClose): _K.CLOSED_BY_BOTH,
    },
    _K.CLOSED_BY_SERVER: {
        (C, k.ConnectionCloseOk): _K.CLOSED,
        (C, k.ConnectionClose): _K.CLOSED_BY_BOTH,
    },
    _K.CLOSED_BY_BOTH: {
        (S, k.ConnectionCloseOk): _K.CLOSED_BY_SERVER,
        (C, k.ConnectionCloseOk): _K.CLOSED_BY_CLIENT,
    },
    _K.CLOSED: {},
}
for _state, _row in CONNECTION_TRANSITIONS.items():
    if _K.AWAIT_START.value < _state.value <= _K.REDIRECTED.value:
        _row[C, k.ConnectionClose] = _K.CLOSED_BY_CLIENT
        _row[S, k.ConnectionClose] = _K.CLOSED_BY_SERVER
    if _K.AWAIT_OPEN.value <= _state.value <= _K.REDIRECTED.value:
        _row[C, k.ConnectionHeartbeat] = _row[S, k.ConnectionHeartbeat] = _state

_IN_SESSION: Final = (
    k.SessionRequestTimeout, k.SessionTimeout, k.SessionCommandPoint, k.SessionExpected, k.SessionConfirmed,
    k.SessionCompleted, k.SessionKnownCompleted, k.SessionFlush, k.SessionGap,
)  # fmt: skip

ATTACHMENT_TRANSITIONS: Final[AttachmentTable] = {
    _A.DETACHED: {
        (C, k.SessionAttach): _A.ATTACHING_BY_CLIENT,
        (S, k.SessionAttach): _A.ATTACHING_BY_SERVER,
        (C, k.SessionDetached): _A.DETACHED,
        (S, k.SessionDetached): _A.DETACHED,
    },
    _A.ATTACHING_BY_CLIENT: {
        (S, k.SessionAttached): _A.ATTACHED,
        (S, k.SessionDetached): _A.DETACHED,
        (C, k.SessionDetach): _A.DETACHING_BY_CLIENT,
        (C, k.SessionDetached): _A.DETACHED,
    },
    _A.ATTACHING_BY_SERVER: {
        (C, k.SessionAttached): _A.ATTACHED,
        (C, k.SessionDetached): _A.DETACHED,
        (S, k.SessionDetach): _A.DETACHING_BY_SERVER,
        (S, k.SessionDetached): _A.DETACHED,
    },
    _A.ATTACHED: {},
    _A.DETACHING_BY_CLIENT: {},
    _A.DETACHING_BY_SERVER: {},
}
for _role in Role:
    _by_client = _role is C
    ATTACHMENT_TRANSITIONS[_A.ATTACHING_BY_CLIENT if _by_client else _A.ATTACHING_BY_SERVER].update(
        {(_role, control): _A.ATTACHING_BY_CLIENT if _by_client else _A.ATTACHING_BY_SERVER for control in _IN_SESSION}
    )
    ATTACHMENT_TRANSITIONS[_A.ATTACHED].update(
        {(_role, control): _A.ATTACHED for control in (*_IN_SESSION, k.SessionAttach, k.SessionAttached)}
    )
    ATTACHMENT_TRANSITIONS[_A.ATTACHED].update(
        {
            (_role, k.SessionDetach): _A.DETACHING_BY_CLIENT if _by_client else _A.DETACHING_BY_SERVER,
            (_role, k.SessionDetached): _A.DETACHED,
        }
    )
    for _detaching in (_A.DETACHING_BY_CLIENT, _A.DETACHING_BY_SERVER):
        ATTACHMENT_TRANSITIONS[_detaching].update(
            {
                (_role, k.SessionDetach): _detaching,
                (_role, k.SessionDetached): _A.DETACHED,
            }
        )

MAY_SEND: Final = {C: c.CLIENT_SENDS, S: c.SERVER_SENDS}
MAY_CONTROL: Final = {C: k.CLIENT_SENDS, S: k.SERVER_SENDS}
# the states in which a peer has sent close and still waits for the answer
CLOSED_BY: Final = {
    C: frozenset({_K.CLOSED_BY_CLIENT, _K.CLOSED_BY_BOTH}),
    S: frozenset({_K.CLOSED_BY_SERVER, _K.CLOSED_BY_BOTH}),
}
DETACHING: Final = frozenset({_A.DETACHING_BY_CLIENT, _A.DETACHING_BY_SERVER})
# the states in which each peer may send commands; rule 5 lets the one that attaches run ahead
USABLE: Final = {
    C: frozenset({_A.ATTACHED, _A.ATTACHING_BY_CLIENT}),
    S: frozenset({_A.ATTACHED, _A.ATTACHING_BY_SERVER}),
}
