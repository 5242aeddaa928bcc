"""What a test does to a connection of AMQP 0-10 or a session: cut it, keep it down, count, lose the session's state.

Made by `connection.test()` and `session.test()`. Public through `harebell.testing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from harebell import errors
from harebell.client import events as e
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.recovery import SessionRecovery

__all__ = ["ConnectionHarness", "ReconnectSignal", "SessionHarness"]

DEFAULT_SECONDS: Final = 10.0  # for a reconnect that a test asks for


class ReconnectSignal:
    """Set by the first reconnect after it was made."""

    def __init__(self, recovery: SessionRecovery) -> None:
        self._events = recovery.events()
        self._error: BaseException | None = None
        self._set = False

    async def wait(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Return once it has come back, and with it its sessions, or the news that their state is lost.

        AssertionError after `timeout` seconds: a test fails by that.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._set:
                    event = await anext(self._events)
                    if isinstance(event, e.Closed):
                        raise AssertionError(f"closed instead of reconnected: {event.error}")
                    if isinstance(event, e.Reconnecting):
                        self._error = event.error
                    self._set = isinstance(event, e.Recovered)
        except TimeoutError:
            raise AssertionError(f"no reconnect within {timeout:g} s; the last error: {self._error}") from None
        self._events.close()


class ConnectionHarness:
    """The connection under test."""

    def __init__(self, recovery: SessionRecovery) -> None:
        self._recovery = recovery

    @property
    def reconnection_count(self) -> int:
        """How often it was connected; the first time counts."""
        return self._recovery.transports

    def disconnect_transport(self) -> None:
        """Drop the transport, without a goodbye, as a cut cable would; what was written before is on its way."""
        transport = self._recovery.transport
        transport.flush_now()
        transport.broke("the test cut the connection")
        transport.abort()

    def signal_on_reconnect(self) -> ReconnectSignal:
        """Something to wait for, made before what causes the reconnect."""
        return ReconnectSignal(self._recovery)

    async def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Drop the transport and wait until everything is back."""
        signal = self.signal_on_reconnect()
        self.disconnect_transport()
        await signal.wait(timeout)

    def block_reconnect(self) -> None:
        """Let nothing come back until `unblock_reconnect`."""
        self._recovery.may_reconnect.clear()

    def unblock_reconnect(self) -> None:
        self._recovery.may_reconnect.set()

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        """An outage for the length of a `with` block: the transport is dropped, and nothing comes back."""
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()


class SessionHarness:
    """The session under test."""

    def __init__(self, core: SessionCore, recovery: SessionRecovery) -> None:
        self._core = core
        self._recovery = recovery

    async def lose_state(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Have the broker forget the session, as if it had expired: calls raise SessionStateLost.

        Its connection is cut, and with it the others that it carries, which come back. AssertionError after `timeout`
        seconds.
        """
        harness = ConnectionHarness(self._recovery)
        signal = harness.signal_on_reconnect()
        with harness.reconnect_blocked():
            await self._recovery.end_elsewhere(self._core.name, timeout)
        await signal.wait(timeout)
        if self._core.lost is None and not isinstance(self._core.reason, errors.SessionStateLost):
            raise AssertionError(f"session '{self._core.name}' has not lost its state: it is new, or has ended")
