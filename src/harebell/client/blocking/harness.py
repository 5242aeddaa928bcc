"""What a test does to a connection or a channel: cut it, hold it down, count. Made by `connection.test()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harebell.client import harness as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.forwarded_harness import (
    ForwardedChannelHarness,
    ForwardedConnectionHarness,
    ForwardedReconnectSignal,
)
from harebell.client.harness import DEFAULT_SECONDS

__all__ = ["ChannelHarness", "ConnectionHarness", "ReconnectSignal"]


class ReconnectSignal(ForwardedReconnectSignal):
    """Set by the first reconnect after it was made."""


@documented_by(asyncio_api.ConnectionHarness)
class ConnectionHarness(ForwardedConnectionHarness):
    """The connection under test."""

    def signal_on_reconnect(self) -> ReconnectSignal:
        return ReconnectSignal(self.io, self.inner.signal_on_reconnect())

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()

    @contextmanager
    def transport_lock(self, timeout: float = DEFAULT_SECONDS) -> Iterator[None]:
        lock = self.inner.transport_lock(timeout)
        self.io.run(lock.__aenter__)
        try:
            yield
        finally:
            self.unblock_reconnect()


@documented_by(asyncio_api.ChannelHarness)
class ChannelHarness(ForwardedChannelHarness):
    """The channel under test. Its losses leave the connection and the other channels alone."""

    def signal_on_reconnect(self) -> ReconnectSignal:
        return ReconnectSignal(self.io, self.inner.signal_on_reconnect())

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()

    @contextmanager
    def transport_lock(self, timeout: float = DEFAULT_SECONDS) -> Iterator[None]:
        lock = self.inner.transport_lock(timeout)
        self.io.run(lock.__aenter__)
        try:
            yield
        finally:
            self.unblock_reconnect()
