"""The asyncio face: a connection.

    async with warren.connect("amqp://guest:guest@localhost/") as connection:
        async with connection.channel() as channel:
            ...

`connect` and `connection.channel` give something that can be awaited, or entered with `async with`, which also closes.
A call that is cancelled, or that has passed its deadline, leaves everything usable: its late answer is dropped. This
connection ends with its transport; it does not come back by itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from warren import errors
from warren.client.channel import Channel
from warren.client.core import ChannelCore, fresh
from warren.client.url import ConnectionParameters, parameters_of
from warren.client.wire import AsyncCore, FutureSlot
from warren.protocol.v091 import Table, methods as m

__all__ = ["Connection", "Opening", "connect"]


class _Closing(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


_T = TypeVar("_T", bound=_Closing)


class Opening(Generic[_T]):
    """Something to be opened: `await` it and close the result yourself, or `async with` it."""

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._opened: _T | None = None

    def __await__(self) -> Generator[object, None, _T]:
        return self._make().__await__()

    async def __aenter__(self) -> _T:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


def connect(
    url: str | ConnectionParameters = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
) -> Opening[Connection]:
    """A connection to a broker: `async with connect(url) as connection`, or `connection = await connect(url)`.

    url        amqp://user:password@host:port/vhost or amqps://..., with the query of `warren.client.url`
    timeout    seconds for connecting, and for each call that does not say otherwise; 30 when the URL says nothing
    heartbeat  seconds; wins over the URL's; 0 takes what the broker proposes
    context    a TLS context of your own, for amqps; wins over the URL's files
    sock       a connected socket to use; the URL then gives all but the address

    Raises (when awaited) InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there,
    AccessRefused for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded.
    """

    async def make() -> Connection:
        return await _open(parameters_of(url, timeout=timeout, heartbeat=heartbeat, context=context), sock)

    return Opening(make)


async def _open(parameters: ConnectionParameters, sock: socket.socket | None) -> Connection:
    loop, timeout = asyncio.get_running_loop(), parameters.timeout
    core = AsyncCore(parameters, loop)
    context = parameters.ssl_context()
    name = (parameters.server_name or parameters.host) if context is not None else None
    try:
        async with asyncio.timeout(timeout):
            if sock is not None:
                await loop.create_connection(lambda: core, sock=sock, ssl=context, server_hostname=name)
            else:
                await loop.create_connection(
                    lambda: core, parameters.host, parameters.port, ssl=context, server_hostname=name
                )
            await core.opened
    except TimeoutError as error:
        core.abort()
        raise errors.DeadlineExceeded(
            f"{parameters.peer}: no connection within {timeout:g} s, {core.handshake.stage}"
        ) from error
    except OSError as error:  # a refused TLS certificate too
        core.abort()
        raise errors.ConnectionLost(f"{parameters.peer} cannot be reached: {error}") from error
    except BaseException:
        core.abort()
        raise
    if core.reason is not None:
        raise fresh(core.reason) from core.reason.__cause__
    return Connection(core)


class Connection:
    """An open connection. Made by `connect`."""

    def __init__(self, core: AsyncCore) -> None:
        self._core = core

    @property
    def parameters(self) -> ConnectionParameters:
        return self._core.parameters

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now (connection.blocked); None when it does. Publishers wait meanwhile."""
        return self._core.blocked

    @property
    def is_open(self) -> bool:
        return self._core.open

    @property
    def closed_reason(self) -> errors.WarrenError | None:
        """Why it is closed; None while it is open."""
        return self._core.reason

    @property
    def server_properties(self) -> Table:
        """What the broker says about itself: product, version, capabilities."""
        return self._core.handshake.server_properties

    def channel(self, *, timeout: float | None = None) -> Opening[Channel]:
        """A new channel: `async with connection.channel() as channel`, or `channel = await connection.channel()`."""

        async def make() -> Channel:
            connection = self._core
            slot = FutureSlot(m.ChannelOpen(), connection.loop.create_future())
            core = connection.new_channel(slot, ChannelCore)
            await connection.reply(slot, timeout, core.abandon)
            return Channel(self._core, core)

        return Opening(make)

    async def update_secret(self, secret: str, reason: str = "", *, timeout: float | None = None) -> None:
        """Give the broker a new password or token for this connection."""
        slot = FutureSlot(m.ConnectionUpdateSecret(secret.encode(), reason), self._core.loop.create_future())
        self._core.request(slot)
        await self._core.reply(slot, timeout)

    async def wait_closed(self) -> errors.WarrenError:
        """Wait until the connection has ended, and give the reason."""
        await asyncio.shield(self._core.gone)
        assert self._core.reason is not None  # the core sets it before its transport ends
        return self._core.reason

    async def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the transport. Closing twice, or a lost connection, is no error.

        A broker that does not answer within the timeout is left without its answer.
        """
        core = self._core
        seconds = core.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                if core.open:
                    slot = FutureSlot(m.ConnectionClose(), core.loop.create_future())
                    core.close(slot)
                    await slot.future
                await asyncio.shield(core.gone)
        except TimeoutError:
            core.abort()
        except BaseException:
            core.closed()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            # Who is cancelled does not wait for the network: the goodbye is written, the transport closes after it.
            if self._core.open:
                self._core.close(FutureSlot(m.ConnectionClose(), self._core.loop.create_future()))
            self._core.closed()
            return
        await self.close()
