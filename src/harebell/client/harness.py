"""What a test does to a connection or a channel: cut it, hold it down, count. Made by `connection.test()`.

Public through `harebell.testing`. It stands here because the arrows of the house point from `testing` to `client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from harebell import errors

if TYPE_CHECKING:
    from harebell.client.channel import Channel
    from harebell.client.connection import Connection
    from harebell.client.middleware.chain import Chains

__all__ = ["ChannelHarness", "ConnectionHarness", "ReconnectSignal"]

DEFAULT_SECONDS: Final = 10.0  # for a reconnect that a test asks for


class ReconnectSignal:
    """Set by the first reconnect after it was made."""

    def __init__(self, harness: ConnectionHarness | ChannelHarness) -> None:
        self._harness = harness
        self._seen = harness.reconnection_count

    async def wait(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Return once it has come back, with the queues that the broker still kept for the dead connection.

        AssertionError after `timeout` seconds: a test fails by that.
        """
        connection, harness = self._harness.connection, self._harness
        deadline = connection._loop.time() + timeout
        while harness.reconnection_count == self._seen or connection._late:
            if connection.is_closed:
                raise AssertionError(f"closed instead of reconnected: {connection.closed_reason}")
            waiter: asyncio.Future[object] = connection._loop.create_future()
            connection._parked_calls[waiter] = None
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                raise AssertionError(
                    f"no reconnect within {timeout:g} s; the last error: {connection._last_error}"
                ) from None
            finally:
                connection._parked_calls.pop(waiter, None)


def _provider(chains: Chains, id: str) -> object:
    try:
        return chains.providers[id]
    except KeyError:
        there = ", ".join(chains.providers)
        raise AssertionError(f"no provider {id!r} serves this; there are {there or 'none'}") from None


class ConnectionHarness:
    """The connection under test."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def reconnection_count(self) -> int:
        """How often it was connected; the first time counts."""
        return self.connection._transports

    def provider(self, id: str) -> object:
        """The provider of middleware that serves the connection, by its id; a default feature's is its name."""
        return _provider(self.connection._chains, id)

    def disconnect_transport(self) -> None:
        """Drop the transport, without a goodbye, as a cut cable would; what was written before is on its way."""
        self.connection._core.flush_now()
        self.connection._core.lost("the test cut the connection")
        self.connection._core.abort()

    def signal_on_reconnect(self) -> ReconnectSignal:
        """Something to wait for, made before what causes the reconnect."""
        return ReconnectSignal(self)

    async def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Drop the transport and wait until everything is back."""
        signal = self.signal_on_reconnect()
        self.disconnect_transport()
        await signal.wait(timeout)

    def block_reconnect(self) -> None:
        """Let nothing come back until `unblock_reconnect`."""
        self.connection._may_reconnect.clear()

    def unblock_reconnect(self) -> None:
        self.connection._may_reconnect.set()

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        """An outage for the length of a `with` block: the transport is dropped, and nothing comes back."""
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()


class ChannelHarness:
    """The channel under test. Its losses leave the connection and the other channels alone."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.connection = channel._owner

    @property
    def reconnection_count(self) -> int:
        """How many wire channels it has had; the first one counts."""
        return self.channel._wire_channels

    def provider(self, id: str) -> object:
        """The provider of middleware that serves the channel, by its id; a default feature's is its name."""
        return _provider(self.channel._chains, id)

    def disconnect_transport(self) -> None:
        """Lose the wire channel: what is unconfirmed and unacknowledged on it is orphaned."""
        self.channel._core.lose(errors.ConnectionLost("the test cut the channel"))

    def signal_on_reconnect(self) -> ReconnectSignal:
        return ReconnectSignal(self)

    async def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Lose the wire channel and wait until it is back with all it had."""
        signal = self.signal_on_reconnect()
        self.disconnect_transport()
        await signal.wait(timeout)

    def block_reconnect(self) -> None:
        self.connection._may_reconnect.clear()

    def unblock_reconnect(self) -> None:
        self.connection._may_reconnect.set()
