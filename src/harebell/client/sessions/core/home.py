"""The connection of sessions, over all its transports, as these know it; and a session as the connection knows it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from harebell import errors
from harebell.client.sessions.core.transport import SessionTransport
from harebell.client.sessions.statistics import Tally
from harebell.client.transport.deadlines import Deadlines

__all__ = ["Home", "Kept"]


class Kept(Protocol):
    """A session that is attached again on each transport.

    reason         why it has ended; None before that
    attached_once  it was attached before
    """

    name: str
    reason: errors.HarebellError | None
    attached_once: bool

    def attach(self, transport: SessionTransport, channel: int) -> None:
        """Ask for the session on that channel of an open transport."""

    def end(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        """The session is over, for this reason; `ours`: this client has left it."""

    def tally(self) -> Tally:
        """What it has done so far."""


class Home(Protocol):
    """The connection of a session.

    timeout  seconds of a call that does not say otherwise
    peers    the hosts, for error texts
    """

    loop: asyncio.AbstractEventLoop
    deadlines: Deadlines
    timeout: float

    @property
    def peers(self) -> str: ...
    def attach_later(self, core: Kept) -> None:
        """Attach it again after a pause: another connection has the session now."""

    def returned(self, core: Kept, error: errors.HarebellError | None = None) -> None:
        """The session is usable again on a new transport, or, by this error, will not be."""

    def forget(self, core: Kept, reason: errors.HarebellError, *, ours: bool) -> None:
        """The session has ended for this reason; `ours`: because this client has left it."""
