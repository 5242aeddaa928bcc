"""Channels to borrow, for programs whose tasks come and go; and what a pool of anything is.

    async with connection.channel_pool(max_size=10) as pool:
        async with pool.acquire() as channel: ...

Rules:
1. At most `max_size` exist. When all are lent, borrowers wait and are served in the order of their coming.
2. What is lent belongs to its borrower alone. It goes back as new, or not at all: what has failed, what is closed, a
   channel with a consumer, a transaction, a prefetch, callbacks or unsettled deliveries left on it is closed instead.
3. What was not borrowed for `idle` seconds is closed.
4. Closing the pool closes what is in it at once, and what is lent when it comes back.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from harebell import errors
from harebell.client.callbacks import awaited, check_callable
from harebell.client.channel import Channel
from harebell.client.patterns.source import ChannelSource
from harebell.client.seconds import check_seconds, seconds_of

__all__ = ["ChannelPool", "Lease", "Pool", "Pooled"]

logger = logging.getLogger("harebell.client")


class Pooled(Protocol):
    @property
    def is_closed(self) -> bool: ...

    async def close(self) -> None: ...


T = TypeVar("T", bound=Pooled)


class Lease(Generic[T]):
    """Something to be borrowed: `async with` it, or `await` it and give it back with `pool.release`."""

    def __init__(self, pool: Pool[T], timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout
        self._item: T | None = None

    if not TYPE_CHECKING:  # a type checker reports it itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(
                f"pool.acquire() is not awaited, and has no {name!r} yet: write `async with pool.acquire() as ...`, or "
                "`await pool.acquire()`"
            )

    def __await__(self) -> Generator[Any, None, T]:
        return self._pool._take(self._timeout).__await__()

    async def __aenter__(self) -> T:
        self._item = await self._pool._take(self._timeout)
        return self._item

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        item, self._item = self._item, None
        assert item is not None  # it was entered
        if error is None or isinstance(error, Exception):
            await self._pool.release(item, failed=error is not None)
        else:
            self._pool._put(item, failed=True)  # who is cancelled waits for no network


class Pool(Generic[T]):
    """What both pools are; `make` gives a new one, `clean` says whether one that came back is as good as new."""

    def __init__(
        self,
        what: str,
        make: Callable[[], Awaitable[T]],
        clean: Callable[[T], bool],
        *,
        max_size: int,
        idle: float | None,
        timeout: float,
    ) -> None:
        if max_size < 1:
            raise errors.InvalidArgument(f"max_size is {max_size}: at least 1 is needed")
        self._what = what
        self._make = make
        self._clean = clean
        self._max_size = max_size
        self._idle_seconds = idle
        self._timeout = check_seconds(timeout)
        self._idle: deque[tuple[T, float]] = deque()  # the one used last is at the right, and is lent next
        self._lent: dict[int, T] = {}
        self._making = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._called: set[asyncio.Future[None]] = set()  # who waited, is to have one now, and has not taken it yet
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def size(self) -> int:
        """How many there are, lent ones included."""
        return len(self._idle) + len(self._lent) + self._making

    @property
    def idle(self) -> int:
        """How many are not lent."""
        return len(self._idle)

    def acquire(self, *, timeout: float | None = None) -> Lease[T]:
        """One to borrow: `async with pool.acquire() as it`.

        timeout  seconds to wait for it, the pool's when left out: DeadlineExceeded. ChannelClosed once the pool is
        """
        return Lease(self, timeout)

    async def release(self, item: T, *, failed: bool = False) -> None:
        """Give back what was awaited from `acquire`.

        failed  it must not be lent again: it is closed
        """
        closing = self._put(item, failed=failed)
        if closing is not None:
            await asyncio.shield(closing)

    async def close(self) -> None:
        """Close what is in the pool; what is lent is closed when it comes back. Waiting borrowers get ChannelClosed."""
        self._begin_to_close()
        if self._closing:
            await asyncio.wait(self._closing)  # when this is cancelled, they end by themselves

    def _begin_to_close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiters:
            self._wake()
        while self._idle:
            self._drop(self._idle.popleft()[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            await self.close()
        else:
            self._begin_to_close()  # who is cancelled waits for no network

    # -- lending -----------------------------------------------------------------------------------------------------

    async def _take(self, timeout: float | None) -> T:
        seconds = seconds_of(timeout, self._timeout)
        try:
            async with asyncio.timeout(seconds):
                return await self._taken()
        except TimeoutError as error:
            if isinstance(error, errors.HarebellError):
                raise
            raise errors.DeadlineExceeded(
                f"no {self._what} within {seconds:g} s: {len(self._lent)} of {self._max_size} are lent, "
                f"{len(self._waiters)} more wait; give them back sooner, or raise max_size"
            ) from None

    async def _taken(self) -> T:
        queued = False
        while True:
            self._check_open()
            if queued or not (self._waiters or self._called):  # no borrower came before
                while self._idle:
                    item, _ = self._idle.pop()
                    if not item.is_closed:
                        self._lent[id(item)] = item
                        return item
                if self.size < self._max_size:
                    return await self._made()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if queued:
                self._waiters.appendleft(waiter)  # another took what was free; this one stays the first
            else:
                self._waiters.append(waiter)
            try:
                await waiter
                self._called.remove(waiter)
            except BaseException:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif waiter in self._called:
                    self._called.remove(waiter)
                    self._wake()  # it was this one's turn, and it goes
                raise
            queued = True

    async def _made(self) -> T:
        self._making += 1
        try:
            item = await self._make()
        except BaseException:
            self._making -= 1
            self._wake()
            raise
        self._making -= 1
        self._lent[id(item)] = item
        if self._closed:
            self._put(item, failed=True)
            self._check_open()
        return item

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ChannelClosed(f"the pool of {self._what}s is closed")

    def _put(self, item: T, *, failed: bool) -> asyncio.Task[None] | None:
        """Take it back; when it is not good for another one, the task that closes it."""
        if self._lent.pop(id(item), None) is None:
            raise errors.LocalProtocolError(f"this {self._what} is not lent: give back each one once")
        closing = None
        if failed or self._closed or item.is_closed or not self._clean(item):
            closing = self._drop(item)
        else:
            now = asyncio.get_running_loop().time()
            self._idle.append((item, now))
            if self._idle_seconds is not None and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._shrink)
        self._wake()
        return closing

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._called.add(waiter)
                return

    def _shrink(self) -> None:
        """Close what was idle for too long."""
        self._timer = None
        assert self._idle_seconds is not None  # else there is no timer
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][1] + self._idle_seconds <= loop.time() + 0.001:
            self._drop(self._idle.popleft()[0])
        if self._idle:
            self._timer = loop.call_at(self._idle[0][1] + self._idle_seconds, self._shrink)

    def _drop(self, item: T) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._close(item))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, item: T) -> None:
        try:
            await item.close()
        except errors.HarebellError as error:
            logger.info("closing a %s: %s", self._what, error)


class ChannelPool(Pool[Channel]):
    """Channels of one connection. Made by `connection.channel_pool`, or here.

    max_size  how many channels at most
    setup     makes a new channel ready, such as turning confirms on: a function, or a coroutine function
    idle      seconds after which an unused one is closed; None: never
    timeout   seconds that a borrower waits
    """

    def __init__(
        self,
        connection: ChannelSource,
        max_size: int = 10,
        *,
        setup: Callable[[Channel], object] | None = None,
        idle: float | None = 60,
        timeout: float = 30,
    ) -> None:
        if setup is not None:
            check_callable("setup", setup, "channel")
        self._modes: dict[int, _Modes] = {}

        async def make() -> Channel:
            channel = await connection.channel()
            try:
                if setup is not None:
                    await awaited(setup(channel))
            except BaseException:
                if not channel.is_closed:
                    channel.recovery.say_goodbye()
                raise
            self._modes[id(channel)] = _Modes(channel)
            return channel

        def clean(channel: Channel) -> bool:
            core = channel.core
            left = channel.subscriptions.active or core.deliveries.unacked or core.unseen.first() or channel.parked
            return not left and self._modes[id(channel)].unchanged()

        super().__init__("channel", make, clean, max_size=max_size, idle=idle, timeout=timeout)

    def _drop(self, item: Channel) -> asyncio.Task[None]:
        self._modes.pop(id(item), None)
        return super()._drop(item)


class _Modes:
    """What a borrower may have changed on a channel, and the next one would not expect."""

    def __init__(self, channel: Channel) -> None:
        self._channel = weakref.ref(channel)
        self._had = _modes_of(channel)

    def unchanged(self) -> bool:
        channel = self._channel()
        return channel is not None and _modes_of(channel) == self._had


def _modes_of(channel: Channel) -> tuple[object, ...]:
    return channel.requests.mode_changes, channel.on_return, channel.notifications.listeners.registered
