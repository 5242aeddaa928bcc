"""One client's socket: asyncio's protocol on one side, the broker's Connection on the other.

A client is taken for one of AMQP 0-9-1 until its first bytes say that it speaks 0-10.

Heartbeats (specification 4.2.7): one is sent when nothing was sent for half the interval; a client that was silent for
two intervals is disconnected. Any traffic counts. A client that takes no byte of waiting output for ten intervals is
disconnected too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final, cast

from harebell.broker.connections.transport import Client
from harebell.broker.net.dialect import FirstBytes
from harebell.broker.net.listening import shown_address
from harebell.broker.net.tls import Tls, certificate_user
from harebell.broker.net.tls_stream import TlsStream
from harebell.broker.node import Node
from harebell.broker.v010.connection import Connection as Connection010
from harebell.broker.v010.sessions import Sessions
from harebell.broker.v091.connection import Connection as Connection091
from harebell.protocol.v091.large_frames import LARGE

__all__ = ["SocketTransport"]

log = logging.getLogger("harebell.broker.connection")

FLUSH_TIMEOUT: Final = 10.0  # seconds for a client to take the written output before its socket is closed
DRAIN_CHECK: Final = 0.05  # seconds after which the last output is looked at again
OUTPUT_HIGH_WATER: Final = 1 << 20  # bytes not yet taken by the socket above which the connection's consumers wait
STUCK_BEATS: Final = 20  # half heartbeat intervals in which a client takes no waiting output, until it is disconnected


class SocketTransport(asyncio.Protocol):
    """The asyncio end of one connection; each read goes to `connection` at once and whole.

    Without TLS, asyncio calls it; with TLS, a `TlsStream` does, which is then its transport.
    """

    peer = local = "?"
    peer_host = ""
    tls: tuple[str, str] | None = None
    certificate_user: str | None = None
    connection: Client  # only when the node accepted the socket

    def __init__(
        self,
        node: Node,
        sessions: Sessions,
        made: Callable[[SocketTransport, int], bool],
        lost: Callable[[SocketTransport], None],
        tls: Tls | None = None,
    ) -> None:
        self._node, self._sessions = node, sessions
        self._first: FirstBytes | None = FirstBytes()
        self._made, self._lost = made, lost
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | TlsStream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._half = 0.0
        self._accepted = self._received = self._sent = self._finished = False
        self._silent = 0
        self._taken = self._stuck = 0

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)  # uvloop's class is no subclass of it
        if self.accepted(stream):
            self.made(stream)
        else:
            stream.abort()

    def accepted(self, transport: asyncio.Transport | TlsStream) -> bool:
        self._transport = transport
        own = transport.get_extra_info("socket")
        if not self._made(self, own.fileno()):
            return False
        self._timer = self._loop.call_later(self._node.limits.handshake_timeout, self.abort)
        transport.set_write_buffer_limits(high=OUTPUT_HIGH_WATER)
        with contextlib.suppress(OSError):  # a closed socket has no options
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        address = transport.get_extra_info("peername")
        if own.family == socket.AF_UNIX:
            self.peer_host, self.peer, self.local = "127.0.0.1", "a socket of this machine", "a socket of this broker"
        elif address:
            self.peer_host, self.peer = str(address[0]), shown_address(*address[:2])
            self.local = shown_address(*transport.get_extra_info("sockname")[:2])
        return True

    def made(self, transport: asyncio.Transport | TlsStream) -> None:
        if self._tls is not None:
            cipher, protocol, _ = transport.get_extra_info("cipher")
            self.tls = protocol, cipher
            self.certificate_user = certificate_user(transport.get_extra_info("peercert"), self._tls.user)
        connection = Connection091(self._node, self)
        self._node.add_connection(connection)
        self.connection, self._accepted = connection, True

    def forget(self) -> int:
        """Let nothing of the socket come to the broker any more. Returns its descriptor; -1 when it is closed."""
        if self._transport is None:
            return -1
        self._transport.set_protocol(asyncio.Protocol())
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def in_handshake(self) -> bool:
        """Whether TLS is not established, so that no AMQP connection exists."""
        return not self._accepted

    def data_received(self, data: bytes) -> None:
        self._received = True
        if self._first is not None:
            told = self._first.add(data)
            if told is None:
                return
            data, foreign = told
            self._first = None
            if foreign:
                self._become_v010()
        self.connection.receive_data(data)

    def _become_v010(self) -> None:
        connection = Connection010(self._node, self, self._sessions)
        self._node.replace_connection(self.connection, connection)
        self.connection = connection

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

    def write(self, data: bytes | memoryview) -> None:
        self._sent = True
        if self._transport is not None and not self._finished and not self._transport.is_closing():
            self._transport.write(data)

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        transport = self._transport
        if transport is None or self._finished or transport.is_closing():
            return
        self._sent = True
        if not isinstance(transport, asyncio.Transport | TlsStream):
            transport.writelines(pieces)  # uvloop's, which is no subclass: one call of the system, and no copy
        elif sum(map(len, pieces)) < LARGE:
            transport.write(b"".join(pieces))
        else:
            for piece in pieces:
                transport.write(piece)

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self, after: float = 0.0) -> None:
        if after:
            self._restart_timer(after, self.close)
        elif self._transport is not None:
            self._transport.close()
            self._restart_timer(FLUSH_TIMEOUT, self.abort)

    def finish(self, within: float) -> None:
        if self._finished or self._transport is None or self._transport.is_closing():
            return
        self._finished = True
        if not self._transport.can_write_eof():
            self.close()  # TLS has a close of its own, which both sides say and which reads what comes before
            return
        self._end_output(self._loop.time() + within)

    def _end_output(self, deadline: float) -> None:
        """End the output once the socket has taken it all; `deadline` is in seconds of the loop.

        Before that, asyncio would report a client that is gone as an error of ours.
        """
        transport, now = self._transport, self._loop.time()
        if transport is None or transport.is_closing():
            return
        if now >= deadline:
            self.close()
        elif transport.get_write_buffer_size():
            self._restart_timer(min(DRAIN_CHECK, deadline - now), lambda: self._end_output(deadline))
        else:
            try:
                transport.write_eof()
            except OSError:
                self.close()  # the client is gone already
            else:
                self._restart_timer(deadline - now, self.close)

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
            log.info("%s: closed: nothing has come from it for %g s", self.peer, 4 * self._half)
            self.abort()
            return
        if self._is_stuck():
            log.warning("%s: closed: it takes nothing of the %d bytes that wait for it", self.peer, self.unsent)
            self.abort()
            return
        if not self._sent:
            self.write(self.connection.heartbeat_frame)
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
