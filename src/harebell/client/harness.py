"""What a test does to a connection or a channel: cut it, keep it down, count. Made by `connection.test()`.

Public through `harebell.testing`. It stands here because the imports go from `testing` to `client`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from harebell import errors
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import HookedChannel, HookedConnection
from harebell.client.middleware.transports import WireChannel, WireConnection
from harebell.client.recovery.channel import ChannelRecovery
from harebell.client.recovery.connection import ConnectionRecovery

__all__ = ["ChannelHarness", "ConnectionHarness", "ReconnectSignal"]

DEFAULT_SECONDS: Final = 10.0  # for a reconnect that a test asks for


class ReconnectSignal:
    """Set by the first reconnect after it was made."""

    def __init__(self, harness: _Harness) -> None:
        self._harness = harness
        self._seen = harness.reconnection_count

    async def wait(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Return once it has come back, with the queues that were late: held by the lost connection for a while.

        AssertionError after `timeout` seconds: a test fails by that.
        """
        harness = self._harness
        availability = harness.recovery.availability
        deadline = availability.loop.time() + timeout
        while harness.reconnection_count == self._seen or availability.late:
            if harness._ended is not None:
                raise AssertionError(f"closed instead of reconnected: {harness._ended}")
            try:
                async with asyncio.timeout_at(deadline):
                    await availability.change()
            except TimeoutError:
                raise AssertionError(
                    f"no reconnect within {timeout:g} s; the last error: {availability.last_error}"
                ) from None


class _Harness(ABC):
    """What is the same for a connection and for a channel."""

    recovery: ConnectionRecovery

    @property
    @abstractmethod
    def reconnection_count(self) -> int: ...
    @property
    @abstractmethod
    def _ended(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or coming back."""

    @property
    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether no reconnect is under way."""

    @property
    @abstractmethod
    def _providers(self) -> Mapping[str, object]: ...
    @abstractmethod
    def disconnect_transport(self) -> None: ...

    def provider(self, id: str) -> object:
        """The provider of middleware that serves it, by its id; a default feature's is its name."""
        try:
            return self._providers[id]
        except KeyError:
            there = ", ".join(self._providers)
            raise AssertionError(f"no provider {id!r} serves this; there are {there or 'none'}") from None

    def signal_on_reconnect(self) -> ReconnectSignal:
        """Something to wait for, made before what causes the reconnect."""
        return ReconnectSignal(self)

    async def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        """Lose it and wait until it is back with all it had."""
        signal = self.signal_on_reconnect()
        self.disconnect_transport()
        await signal.wait(timeout)

    def block_reconnect(self) -> None:
        """Let nothing of the connection come back until `unblock_reconnect`."""
        self.recovery.may_reconnect.clear()

    def unblock_reconnect(self) -> None:
        self.recovery.may_reconnect.set()

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        """An outage for the length of a `with` block: it is lost, and nothing comes back."""
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()

    @asynccontextmanager
    async def transport_lock(self, timeout: float = DEFAULT_SECONDS) -> AsyncIterator[None]:
        """No reconnect for the length of an `async with` block, which begins once one that is under way has ended.

        A loss inside of the block is noticed, and followed by a reconnect after it. AssertionError after `timeout`
        seconds without a connection, or a channel.
        """
        await self._settle_down(timeout)
        self.block_reconnect()
        try:
            yield
        finally:
            self.unblock_reconnect()

    async def _settle_down(self, timeout: float) -> None:
        availability = self.recovery.availability
        deadline = availability.loop.time() + timeout
        while not self._is_settled:
            try:
                async with asyncio.timeout_at(deadline):
                    await availability.change()
            except TimeoutError:
                raise AssertionError(
                    f"still reconnecting after {timeout:g} s; the last error: {availability.last_error}"
                ) from None


class ConnectionHarness(_Harness):
    """The connection under test."""

    def __init__(self, recovery: ConnectionRecovery, chains: Chains) -> None:
        self.connection: HookedConnection = recovery.connection
        self.recovery = recovery
        self._chains = chains

    @property
    def _ended(self) -> errors.HarebellError | None:
        return self.recovery.availability.ended

    @property
    def _is_settled(self) -> bool:
        return self.connection.is_closed or self.connection.is_open

    @property
    def _providers(self) -> Mapping[str, object]:
        return self._chains.providers

    @property
    def reconnection_count(self) -> int:
        """How often it was connected; the first time counts."""
        return self.recovery.transports

    @property
    def underlying_connection(self) -> WireConnection:
        """The present transport, or the last: the next one has another `core`."""
        return WireConnection(self.recovery.availability.transport)

    def disconnect_transport(self) -> None:
        """Drop the transport, without a goodbye, as a cut cable would; what was written before is on its way."""
        transport = self.recovery.availability.transport
        transport.flush_now()
        transport.lost("the test cut the connection")
        transport.abort()


class ChannelHarness(_Harness):
    """The channel under test. Its losses leave the connection and the other channels alone."""

    def __init__(self, channel: HookedChannel, recovery: ChannelRecovery) -> None:
        self.channel = channel
        self.connection: HookedConnection = recovery.connection.connection
        self.recovery = recovery.connection
        self._channel = recovery

    @property
    def _ended(self) -> errors.HarebellError | None:
        return self._channel.requests.ended or self.recovery.availability.ended

    @property
    def _is_settled(self) -> bool:
        return self.channel.is_closed or (self.channel.is_open and self.connection.is_open)

    @property
    def _providers(self) -> Mapping[str, object]:
        return self._channel.chains.providers

    @property
    def reconnection_count(self) -> int:
        """How many wire channels it has had; the first one counts."""
        return self._channel.wire_channels

    @property
    def underlying_channel(self) -> WireChannel:
        """The present wire channel, or the last: the next one has another `core`."""
        return WireChannel(self.channel.core, self.channel.transport)

    def disconnect_transport(self) -> None:
        """Lose the wire channel, if it has one: what is unconfirmed and unacknowledged on it is orphaned."""
        if self.channel.core.reason is None:
            self.channel.core.lose(errors.ConnectionLost("the test cut the channel"))
