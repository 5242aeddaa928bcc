"""What a test does to a connection or a channel: cut it, hold it down, count. Made by `connection.test()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harebell.client import harness as asyncio_face
from harebell.client.blocking.docs import documented_by
from harebell.client.harness import DEFAULT_SECONDS

if TYPE_CHECKING:
    from harebell.client.blocking.channel import Channel
    from harebell.client.blocking.connection import Connection

__all__ = ["ChannelHarness", "ConnectionHarness", "ReconnectSignal"]


@documented_by(asyncio_face.ReconnectSignal)
class ReconnectSignal:
    """Set by the first reconnect after it was made."""

    def __init__(self, connection: Connection, inner: asyncio_face.ReconnectSignal) -> None:
        self._io = connection._io
        self._inner = inner

    def wait(self, timeout: float = DEFAULT_SECONDS) -> None:
        self._io.run(self._inner.wait, timeout)


@documented_by(asyncio_face.ConnectionHarness)
class ConnectionHarness:
    """The connection under test."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._io = connection._io
        self._inner = connection._inner.test()

    @property
    def reconnection_count(self) -> int:
        return self._inner.reconnection_count

    def provider(self, id: str) -> object:
        return self._inner.provider(id)

    def disconnect_transport(self) -> None:
        with self._io.turn:
            self._inner.disconnect_transport()

    def signal_on_reconnect(self) -> ReconnectSignal:
        return ReconnectSignal(self.connection, self._inner.signal_on_reconnect())

    def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        self._io.run(self._inner.force_reconnect, timeout)

    def block_reconnect(self) -> None:
        with self._io.turn:
            self._inner.block_reconnect()

    def unblock_reconnect(self) -> None:
        with self._io.turn:
            self._inner.unblock_reconnect()

    @contextmanager
    def reconnect_blocked(self) -> Iterator[None]:
        self.block_reconnect()
        try:
            self.disconnect_transport()
            yield
        finally:
            self.unblock_reconnect()


@documented_by(asyncio_face.ChannelHarness)
class ChannelHarness:
    """The channel under test. Its losses leave the connection and the other channels alone."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.connection = channel.connection
        self._io = channel._io
        self._inner = channel._inner.test()

    @property
    def reconnection_count(self) -> int:
        return self._inner.reconnection_count

    def provider(self, id: str) -> object:
        return self._inner.provider(id)

    def disconnect_transport(self) -> None:
        with self._io.turn:
            self._inner.disconnect_transport()

    def signal_on_reconnect(self) -> ReconnectSignal:
        return ReconnectSignal(self.connection, self._inner.signal_on_reconnect())

    def force_reconnect(self, timeout: float = DEFAULT_SECONDS) -> None:
        self._io.run(self._inner.force_reconnect, timeout)

    def block_reconnect(self) -> None:
        with self._io.turn:
            self._inner.block_reconnect()

    def unblock_reconnect(self) -> None:
        with self._io.turn:
            self._inner.unblock_reconnect()
