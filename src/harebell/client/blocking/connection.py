"""The blocking face: a connection. What it does is done by the asyncio face's, on the process's I/O thread."""

from __future__ import annotations

import inspect
import socket
import ssl
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from harebell import errors
from harebell.client import connection as asyncio_face, events as e
from harebell.client.blocking.callbacks import Callbacks
from harebell.client.blocking.channel import Channel, asked
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.harness import ConnectionHarness
from harebell.client.blocking.thread import IoThread, io_thread
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.connection import DEFAULT_RECOVERY, State
from harebell.client.middleware.hooks import CloseEvent, DialEvent, DisconnectEvent
from harebell.client.middleware.registry import Middlewares
from harebell.client.notifications import Stop
from harebell.client.recovery.policy import Recovery
from harebell.client.statistics import ConnectionStatistics
from harebell.client.transport.dialling import Credentials
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Table

__all__ = ["Connection", "Events", "connect"]


def connect(
    url: str | ConnectionParameters | Sequence[str | ConnectionParameters] = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    credentials: Credentials | None = None,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    middleware: Middlewares | None = None,
) -> Connection:
    """An open connection, to be used as a context manager or closed by the caller; any thread may use it.

    url          amqp://user:password@host:port/vhost or amqps://..., with the query of `harebell.client.url`; several
                 of them are tried in turn
    timeout      seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                 included; 30 when the URL says nothing
    heartbeat    seconds; wins over the URL's; 0 takes what the broker proposes
    context      a TLS context of your own, for amqps; wins over the URL's files
    sock         a connected socket to use; the URL then gives all but the address, and the connection cannot come back
    credentials  called at each dial, in some thread, for (user name, password or token)
    recovery     how the connection comes back; None: it ends with its transport
    middleware   what stands around the calls and events of the connection and its channels, as it is registered now; it
                 is called on the I/O thread, as the asyncio face calls it, and must not block

    Raises InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there, AccessRefused
    for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded; LocalProtocolError inside a running
    event loop.
    """
    io = io_thread()

    async def opened() -> asyncio_face.Connection:
        inner = await asyncio_face.connect(
            url,
            timeout=timeout,
            heartbeat=heartbeat,
            context=context,
            sock=sock,
            credentials=None if credentials is None else _in_a_thread(io, credentials),
            recovery=recovery,
            middleware=middleware,
        )
        io.connections.add(inner)
        return inner

    return Connection(io, io.run_or_undo(_hang_up, opened))


def _in_a_thread(io: IoThread, credentials: Credentials) -> Credentials:
    async def ask() -> tuple[str, str]:
        given = await io.loop.run_in_executor(None, credentials)
        return await given if inspect.isawaitable(given) else given

    return ask


def _hang_up(inner: asyncio_face.Connection) -> None:
    """Say goodbye and wait for nothing."""
    inner._say_goodbye()
    inner._core.closed()


@documented_by(asyncio_face.Connection)
class Connection:
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    def __init__(self, io: IoThread, inner: asyncio_face.Connection) -> None:
        self._io = io
        self._inner = inner
        self._callbacks = callbacks = Callbacks()
        with io.turn:
            inner._over.add_done_callback(lambda over: callbacks.end())

    @property
    def parameters(self) -> ConnectionParameters:
        return self._inner.parameters

    @property
    def state(self) -> State:
        return self._inner.state

    @property
    def blocked(self) -> str | None:
        return self._inner.blocked

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        return self._inner.closed_reason

    @property
    def server_properties(self) -> Table:
        return self._inner.server_properties

    def events(self) -> Events:
        """What happens to the connection from now on: `for event in connection.events()`."""
        with self._io.turn:
            return Events(self, self._inner.events())

    def notify_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_close, partial(self._callbacks.put, callback))

    def notify_dial(self, callback: Callable[[DialEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_dial, partial(self._callbacks.put, callback))

    def notify_disconnect(self, callback: Callable[[DisconnectEvent], None]) -> Stop:
        return asked(self._io, self._inner.notify_disconnect, partial(self._callbacks.put, callback))

    def statistics(self) -> ConnectionStatistics:
        with self._io.turn:
            return self._inner.statistics()

    def test(self) -> ConnectionHarness:
        return ConnectionHarness(self)

    def channel(self, *, timeout: float | None = None, middleware: Middlewares | None = None) -> Channel:
        """A new channel, open, to be used as a context manager or closed by the caller.

        middleware  what stands around the calls and events of this channel, inside what `connect` was given
        """

        async def opened() -> AsyncChannel:
            return await self._inner.channel(timeout=timeout, middleware=middleware)

        return Channel(self, self._io.run_or_undo(AsyncChannel._say_goodbye, opened))

    def update_secret(self, secret: str, reason: str = "", *, timeout: float | None = None) -> None:
        self._io.run(self._inner.update_secret, secret, reason, timeout=timeout)

    def wait_closed(self) -> errors.HarebellError:
        return self._io.run(self._inner.wait_closed)

    def close(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.close, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # Who is interrupted does not wait for the network: the goodbye is written, the transport closes after it.
            with self._io.turn:
                _hang_up(self._inner)
            return
        self.close()

    def __del__(self) -> None:
        if self._io.usable and not self._inner.is_closed:
            warnings.warn(f"unclosed connection to {self.parameters.peer}", ResourceWarning, source=self, stacklevel=1)
            self._io.loop.call_soon_threadsafe(_hang_up, self._inner)


@documented_by(e.Events)
class Events:
    """The events of one connection from now on, as an iterator; Closed is the last one.

    Made by `connection.events()`. Waiting can be interrupted and taken up again without losing an event.
    """

    def __init__(self, connection: Connection, inner: e.Events) -> None:
        self._connection = connection
        self._inner = inner

    def close(self) -> None:
        with self._connection._io.turn:
            self._inner.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> e.Event:
        try:
            return self._inner._waiting.popleft()
        except IndexError:
            pass
        try:
            return self._connection._io.run_or_undo(self._inner._waiting.appendleft, self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
