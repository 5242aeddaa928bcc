"""The HTTP server, in the broker's loop: uvicorn's connections on listeners of our own.

Rules, beside uvicorn's: a handshake of TLS and a request's head must each arrive in HEAD_SECONDS, and a connection
without a request ends after IDLE_SECONDS; there are MOST_CONNECTIONS at a time, and none when descriptors run out,
because the store needs the last ones. Signals, logs and the loop are the program's.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from harebell.admin.http.app import HEADERS, App
from harebell.broker.net.descriptors import last_for_connections
from harebell.broker.net.listening import close_listeners, open_listeners, serve, shown_address
from harebell.broker.net.tls_stream import TlsStream

__all__ = ["Server"]

log = logging.getLogger("harebell.admin")

HEAD_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60
MOST_CONNECTIONS: Final = 4096
STOP_SECONDS: Final = 1.0  # for answers that are on their way when the server stops


class _State(ServerState):
    """What the connections of one server share, with the header Date, which is made anew each second."""

    def __init__(self) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._headers = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Nothing: they are made above."""


class _Connection(H11Protocol):
    """One client's connection."""

    def __init__(self, config: Config, state: ServerState, last_descriptor: int) -> None:
        super().__init__(config, state, {})
        self.access_log = False
        self._last_descriptor = last_descriptor
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}
        if self.may_stay(transport):
            self._await_head()
        else:
            transport.abort()

    def may_stay(self, transport: asyncio.Transport | TlsStream) -> bool:
        """Whether there is room for the connection."""
        descriptor: int = transport.get_extra_info("socket").fileno()
        return len(self.connections) <= MOST_CONNECTIONS and descriptor <= self._last_descriptor

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:  # the next request was here already
            self._stop_waiting()
        elif self._deadline is None and self.conn.trailing_data[0]:  # a part of it was
            self._await_head()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: a server may ignore what a client would like to upgrade to (RFC 9110, 7.8).

        uvicorn would log that a library for WebSockets is missing, which would change nothing.
        """

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, with the headers of every answer."""
        lines = [b"HTTP/1.1 400 Bad Request", b"connection: close", b"content-length: 0"]
        lines += [name + b": " + value for name, value in HEADERS]
        self.transport.write(b"\r\n".join([*lines, b"", b""]))
        self.transport.close()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Secured:
    """What a `TlsStream` serves: nothing during the handshake, then a client's connection.

    streams  those of the server, for its end
    """

    def __init__(self, connection: _Connection, streams: set[TlsStream]) -> None:
        self.peer = ""
        self._connection, self._streams = connection, streams
        self._stream: TlsStream | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._made = False

    def accepted(self, transport: asyncio.Transport | TlsStream) -> bool:
        assert isinstance(transport, TlsStream)
        self._stream = transport
        self._streams.add(transport)
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, transport.abort)
        address = transport.get_extra_info("peername")
        self.peer = f"{shown_address(*address[:2])}, HTTPS" if address else "HTTPS"
        return self._connection.may_stay(transport)

    def made(self, transport: asyncio.Transport | TlsStream) -> None:
        self._stop_waiting()
        self._made = True
        self._connection.connection_made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._stream is not None:
            self._streams.discard(self._stream)
        if self._made:
            self._connection.connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server:
    """The listeners of one application. It listens on `port`, and first on `address`, once it has started."""

    def __init__(self, app: App, hosts: Sequence[str], port: int, tls: ssl.SSLContext | None = None) -> None:
        self.address, self.port = "", port
        self._hosts, self._tls = hosts, tls
        self._config = Config(
            app, log_config=None, lifespan="off", ws="none", interface="asgi3", timeout_keep_alive=IDLE_SECONDS,
            server_header=False, proxy_headers=False,
        )  # fmt: skip
        self._state = _State()
        self._servers: list[asyncio.Server] = []
        self._streams: set[TlsStream] = set()

    async def start(self) -> None:
        """Listen. Raises ListenError, which is an OSError."""
        self._config.load()
        last = last_for_connections()

        def connection() -> _Connection | TlsStream:
            made = _Connection(self._config, self._state, last)
            return made if self._tls is None else TlsStream(self._tls, _Secured(made, self._streams))

        sockets = await open_listeners(self._hosts, self.port)
        address = sockets[0].getsockname()
        try:
            await serve(sockets, connection, self._servers.append)
        except BaseException:
            await self.stop()
            raise
        self.address, self.port = address[:2]

    async def stop(self) -> None:
        """Close the listeners, let answers that are on their way go out, and end all connections."""
        await close_listeners(self._servers)
        self._servers = []
        for connection in tuple(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(tuple(self._state.tasks), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in tuple(self._state.connections):
            _abort(connection)
        for stream in tuple(self._streams):  # the handshakes under way, and what lingers
            stream.abort()


def _abort(connection: Any) -> None:
    connection.transport.abort()
