"""One client's socket: asyncio's protocol on one side, the broker's Connection on the other.

Heartbeats (specification 4.2.7): one is sent when nothing was sent for half the interval; a client that was silent for
two intervals is disconnected. Any traffic counts. A client that takes no byte of waiting output for ten intervals is
disconnected too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from harebell.broker.net.tls import Tls, certificate_user
from harebell.broker.node import Node
from harebell.broker.v091.connection import Connection
from harebell.protocol.v091.codec import HEARTBEAT_FRAME

__all__ = ["SocketTransport"]

log = logging.getLogger("harebell.broker.connection")

FLUSH_TIMEOUT: Final = 10.0  # seconds for a client to take the written output before its socket is closed
OUTPUT_HIGH_WATER: Final = 1 << 20  # bytes not yet taken by the socket above which the connection's consumers wait
STUCK_BEATS: Final = 20  # half heartbeat intervals in which a client takes no waiting output, until it is disconnected


class SocketTransport(asyncio.Protocol):
    """The asyncio end of one connection; each read goes to `connection` at once and whole."""

    peer = local = "?"
    peer_host = ""
    certificate_user: str | None = None
    connection: Connection  # only when the node accepted the socket

    def __init__(
        self,
        node: Node,
        made: Callable[[SocketTransport, int], bool],
        lost: Callable[[SocketTransport], None],
        tls: Tls | None = None,
    ) -> None:
        self._node = node
        self._made, self._lost = made, lost
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._half = 0.0
        self._accepted = self._received = self._sent = False
        self._silent = 0
        self._taken = self._stuck = 0

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's class is no subclass of it
        if not self._made(self, transport.get_extra_info("socket").fileno()):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=OUTPUT_HIGH_WATER)
        with contextlib.suppress(OSError):  # a closed socket has no options
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        address = transport.get_extra_info("peername")
        if transport.get_extra_info("socket").family == socket.AF_UNIX:
            self.peer_host, self.peer, self.local = "127.0.0.1", "a socket of this machine", "a socket of this broker"
        elif address:
            self.peer_host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
            own = transport.get_extra_info("sockname")
            self.local = f"{own[0]}:{own[1]}"
        if self._tls is not None:
            self.certificate_user = certificate_user(transport.get_extra_info("peercert"), self._tls.user)
        self.connection, self._accepted = Connection(self._node, self), True
        self._node.add_connection(self.connection)
        self._timer = self._loop.call_later(self._node.limits.handshake_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        self._received = True
        self.connection.receive_data(data)

    def pause_writing(self) -> None:
        self.connection.writable = False

    def resume_writing(self) -> None:
        self.connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._accepted:
            self.connection.lost()
        self._lost(self)

    # -- Transport, for the connection ---------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._sent = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self, after: float = 0.0) -> None:
        if after:
            self._restart_timer(after, self.close)
        elif self._transport is not None:
            self._transport.close()
            self._restart_timer(FLUSH_TIMEOUT, self.abort)

    def set_heartbeat(self, seconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if seconds:
            self._half = seconds / 2
            self._received, self._silent = True, 0
            self._timer = self._loop.call_later(self._half, self._beat)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._received = True  # input sent during the pause was not read, so the client was not silent
            self._transport.resume_reading()

    def abort(self) -> None:
        """End the connection at once; written output may be lost."""
        if self._transport is not None:
            self._transport.abort()

    # -- timers --------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Send and check heartbeats, twice per interval."""
        self._silent = 0 if self._received or self.connection.paused else self._silent + 1
        self._received = False
        if self._silent >= 4:
            self.abort()
            return
        if self._is_stuck():
            log.warning("%s: closed: it takes nothing of the %d bytes that wait for it", self.peer, self.unsent)
            self.abort()
            return
        if not self._sent:
            self.write(HEARTBEAT_FRAME)
        self._sent = False
        self._timer = self._loop.call_later(self._half, self._beat)

    def _is_stuck(self) -> bool:
        """Whether output waits and the client has taken none of it for too long."""
        waiting = self.unsent
        taken = self.connection.send_oct - waiting
        self._stuck = self._stuck + 1 if waiting and taken <= self._taken else 0
        self._taken = taken
        return self._stuck >= STUCK_BEATS

    def _restart_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, callback)
