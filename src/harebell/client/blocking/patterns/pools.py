"""The blocking API: channels and connections to borrow.

    with connection.channel_pool(max_size=10) as pool:
        with pool.acquire() as channel: ...

The rules stand at the top of `harebell.client.patterns.pools`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from harebell.client import connection as asyncio_connection
from harebell.client.blocking.callbacks import in_a_thread
from harebell.client.blocking.channel import Channel
from harebell.client.blocking.connection import Connection, opening
from harebell.client.blocking.thread import IoThread, io_thread
from harebell.client.callbacks import check_plain
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.connection_pool import unused
from harebell.client.patterns import pools as asyncio_api

__all__ = ["ChannelPool", "ConnectionPool", "Lease"]

B = TypeVar("B")
P = TypeVar("P", bound=asyncio_api.Pooled)


class Lease(Generic[B]):
    """Something to be borrowed: `with` it."""

    def __init__(self, take: Callable[[], B], give_back: Callable[[B, BaseException | None], None]) -> None:
        self._take = take
        self._give_back = give_back
        self._item: B | None = None

    def __enter__(self) -> B:
        self._item = self._take()
        return self._item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        item, self._item = self._item, None
        assert item is not None  # it was entered
        self._give_back(item, error)


class _Pool(Generic[P, B]):
    """What both pools are: the asyncio pool, and the twins of what it has lent."""

    def __init__(self, io: IoThread, inner: asyncio_api.Pool[P], twin_of: Callable[[P], B]) -> None:
        self._io = io
        self._inner = inner
        self._twin_of = twin_of
        self._lent: dict[int, P] = {}  # by the identity of the twin

    @property
    def size(self) -> int:
        """How many there are, lent ones included."""
        return self._inner.size

    @property
    def idle(self) -> int:
        """How many are not lent."""
        return self._inner.idle

    def acquire(self, *, timeout: float | None = None) -> Lease[B]:
        """One to borrow: `with pool.acquire() as it`.

        timeout  seconds to wait for it, the pool's when left out: DeadlineExceeded. ChannelClosed once the pool is
        """
        return Lease(lambda: self.take(timeout=timeout), self._put)

    def take(self, *, timeout: float | None = None) -> B:
        """One to borrow, which `release` gives back."""
        inner = self._inner

        async def taken() -> P:
            return await inner.acquire(timeout=timeout)

        def give_back(item: P) -> None:
            self._io.loop.create_task(inner.release(item))

        item = self._io.run_or_undo(give_back, taken)
        twin = self._twin_of(item)
        self._lent[id(twin)] = item
        return twin

    def release(self, item: B, *, failed: bool = False) -> None:
        """Give back what `take` gave. LocalProtocolError when it is not lent.

        failed  it must not be lent again: it is closed
        """
        lent = self._lent.pop(id(item), None)
        # What the pool does not know it refuses, in its own words.
        self._io.run(self._inner.release, item if lent is None else lent, failed=failed)  # type: ignore[arg-type]

    def _put(self, item: B, error: BaseException | None) -> None:
        if error is None or isinstance(error, Exception):
            self.release(item, failed=error is not None)
            return
        lent = self._lent.pop(id(item))
        with self._io.turn:  # an interrupted program does not wait for the network
            self._io.loop.create_task(self._inner.release(lent, failed=True))

    def close(self) -> None:
        """Close what is in the pool; what is lent is closed when it comes back. Waiting borrowers get ChannelClosed."""
        self._io.run(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._io.run(self._inner.__aexit__, kind, error, traceback)


class ChannelPool(_Pool[AsyncChannel, Channel]):
    """Channels of one connection. Made by `connection.channel_pool`, or here.

    max_size  how many channels at most
    setup     makes a new channel ready, such as turning confirms on; called in some thread
    idle      seconds after which an unused one is closed; None: never
    timeout   seconds that a borrower waits
    """

    def __init__(
        self,
        connection: Connection,
        max_size: int = 10,
        *,
        setup: Callable[[Channel], object] | None = None,
        idle: float | None = 60,
        timeout: float = 30,
    ) -> None:
        io = connection.io
        if setup is not None:
            check_plain("setup", setup, "channel")

        def work(inner: AsyncChannel) -> None:
            assert setup is not None  # else it is not called
            setup(Channel(connection, inner))

        with io.turn:
            pool = asyncio_api.ChannelPool(
                connection.inner,
                max_size,
                setup=None if setup is None else in_a_thread(io, work),
                idle=idle,
                timeout=timeout,
            )
        super().__init__(io, pool, lambda inner: Channel(connection, inner))


class _Pooled:
    """A connection and its twin, which live as long as each other."""

    def __init__(self, io: IoThread, inner: asyncio_connection.Connection) -> None:
        self.inner = inner
        self.twin = Connection(io, inner)

    @property
    def is_closed(self) -> bool:
        return self.inner.is_closed

    async def close(self) -> None:
        await self.inner.close()


class ConnectionPool(_Pool[_Pooled, Connection]):
    """Connections to one broker.

    url       as `harebell.blocking.connect` takes it
    max_size  how many connections at most
    idle      seconds after which an unused one is closed; None: never
    timeout   seconds that a borrower waits
    options   what else `harebell.blocking.connect` takes
    """

    def __init__(
        self,
        url: Any = "amqp://guest:guest@localhost/",
        max_size: int = 4,
        *,
        idle: float | None = 60,
        timeout: float = 30,
        **options: Any,
    ) -> None:
        io = io_thread()

        async def make() -> _Pooled:
            return _Pooled(io, await opening(io, url, **options))

        with io.turn:
            pool = asyncio_api.Pool(
                "connection", make, lambda pooled: unused(pooled.inner), max_size=max_size, idle=idle, timeout=timeout
            )
        super().__init__(io, pool, lambda pooled: pooled.twin)
