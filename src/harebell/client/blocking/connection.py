"""The blocking API: a connection. What it does is done by the asyncio connection, on the process's I/O thread.

Calls that only forward are generated (`forwarded_connection`).
"""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from harebell.client import connection as asyncio_api
from harebell.client.blocking.callbacks import Callbacks
from harebell.client.blocking.channel import Channel
from harebell.client.blocking.credentials import in_a_thread
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.events import Events
from harebell.client.blocking.forwarded_connection import ForwardedConnection
from harebell.client.blocking.harness import ConnectionHarness
from harebell.client.blocking.thread import IoThread, io_thread
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.connection import DEFAULT_RECOVERY
from harebell.client.middleware.registry import Middlewares
from harebell.client.recovery.policy import Recovery
from harebell.client.transport.dialling import Credentials, Dial
from harebell.client.url import ConnectionParameters

__all__ = ["Connection", "connect"]


def connect(
    url: str | ConnectionParameters | Sequence[str | ConnectionParameters] = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    dial: Dial | None = None,
    dial_timeout: float | None = None,
    credentials: Credentials | None = None,
    client_properties: Mapping[str, object] | None = None,
    locale: str | None = None,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    middleware: Middlewares | None = None,
) -> Connection:
    """An open connection, to be used as a context manager or closed by the caller; any thread may use it.

    url          amqp://user:password@host:port/vhost or amqps://..., with the query of `harebell.client.url`; several
                 of them are tried in turn, and after a loss the other ones first
    timeout      seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                 included; 30 when the URL says nothing
    heartbeat    seconds; wins over the URL's; 0 takes what the broker proposes
    context      a TLS context of your own, for amqps; wins over the URL's files
    sock         a connected socket to use; the URL then gives all but the address, and the connection cannot come back
    dial         called with host and port at each dial, in some thread, for a connected socket: through a proxy, a
                 tunnel. TLS and the login are the client's
    dial_timeout  seconds for each host, login included; left out, `timeout` for a single one and 5 for each of several
    credentials  called at each dial, in some thread, for (user name, password or token)
    client_properties  what the client says about itself, beside its own product, version and platform, or in place of
                 them; the broker shows it
    locale       of the broker's texts; en_US when left out, and brokers have no other
    recovery     how the connection comes back; None: it ends with its transport
    middleware   what stands around the calls and events of the connection and its channels, as it is registered now; it
                 is called on the I/O thread, as the asyncio API calls it, and must not block

    Raises InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there, AccessRefused
    for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded; LocalProtocolError inside a running
    event loop.
    """
    io = io_thread()

    async def opened() -> asyncio_api.Connection:
        inner = await asyncio_api.connect(
            url,
            timeout=timeout,
            heartbeat=heartbeat,
            context=context,
            sock=sock,
            dial=None if dial is None else in_a_thread(io, dial),
            dial_timeout=dial_timeout,
            credentials=None if credentials is None else in_a_thread(io, credentials),
            client_properties=client_properties,
            locale=locale,
            recovery=recovery,
            middleware=middleware,
        )
        io.connections.add(inner)
        return inner

    return Connection(io, io.run_or_undo(_hang_up, opened))


def _hang_up(inner: asyncio_api.Connection) -> None:
    """Close it without waiting for the broker's answer."""
    inner.recovery.hang_up()


def _leave(inner: AsyncChannel) -> None:
    """Close it without waiting for the broker's answer."""
    inner.recovery.say_goodbye()


@documented_by(asyncio_api.Connection)
class Connection(ForwardedConnection):
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    def __init__(self, io: IoThread, inner: asyncio_api.Connection) -> None:
        callbacks = Callbacks(io)
        super().__init__(io, inner, callbacks)
        with io.turn:
            inner.recovery.over.add_done_callback(lambda over: callbacks.end())

    def events(self) -> Events:
        """What happens to the connection from now on: `for event in connection.events()`."""
        with self.io.turn:
            return Events(self, self.io, self.inner.events())

    def test(self) -> ConnectionHarness:
        return ConnectionHarness(self.io, self.inner.test())

    def channel(self, *, timeout: float | None = None, middleware: Middlewares | None = None) -> Channel:
        """A new channel, open, to be used as a context manager or closed by the caller.

        middleware  what stands around the calls and events of this channel, inside what `connect` was given
        """

        async def opened() -> AsyncChannel:
            return await self.inner.channel(timeout=timeout, middleware=middleware)

        return Channel(self, self.io.run_or_undo(_leave, opened))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # An interrupted program does not wait for the network: close is written, then the transport closes.
            with self.io.turn:
                _hang_up(self.inner)
            return
        self.close()

    def __del__(self) -> None:
        if self.io.usable and not self.inner.is_closed:
            warnings.warn(f"unclosed connection to {self.parameters.peer}", ResourceWarning, source=self, stacklevel=1)
            self.io.loop.call_soon_threadsafe(_hang_up, self.inner)
