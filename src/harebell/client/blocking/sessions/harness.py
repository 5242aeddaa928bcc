"""What a test does to a connection of AMQP 0-10 or a session. Made by `connection.test()` and `session.test()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harebell.client import sessions as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.sessions.forwarded_harness import (
    ForwardedConnectionHarness,
    ForwardedReconnectSignal,
    ForwardedSessionHarness,
)

__all__ = ["ConnectionHarness", "ReconnectSignal", "SessionHarness"]


class ReconnectSignal(ForwardedReconnectSignal):
    """Set by the first reconnect after it was made."""


@documented_by(asyncio_api.ConnectionHarness)
class ConnectionHarness(ForwardedConnectionHarness):
    """The connection under test."""

    def signal_on_reconnect(self) -> ReconnectSignal:
        with self.io.turn:
            return ReconnectSignal(self.io, self.inner.signal_on_reconnect())

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()


class SessionHarness(ForwardedSessionHarness):
    """The session under test."""
