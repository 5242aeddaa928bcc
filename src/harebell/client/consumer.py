"""A subscription as an asynchronous iterator, or with a function that takes each delivery.

    async for delivery in channel.consume("work", prefetch=500):
        delivery.ack()

    await channel.consume("work", prefetch=500).each(Delivery.ack)

    while batch := await consumer.receive(100, within=0.5):
        batch[-1].ack(multiple=True)

The iterator lives on over a reconnect. It ends with the reason when the channel or the connection is closed for good or
the broker cancels the consumer, and without one after a cancel or close of our own. Leaving the `async with` block, or
dropping the iterator, cancels the subscription and gives back what was not taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from harebell import errors
from harebell.client.callbacks import check_plain
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery
from harebell.client.recovery.subscription import Subscription
from harebell.client.recovery.subscriptions import Subscriptions
from harebell.client.seconds import seconds_of
from harebell.client.starting import start_by_waiting, stop_starting
from harebell.protocol.v091 import TableLike

__all__ = ["Consumer"]

FAIR: Final = 256  # deliveries handed out before other tasks, acks on their way out among them, get their turn


class Cancel(Protocol):
    """A channel's method `cancel`."""

    async def __call__(self, consumer_tag: str, *, requeue: bool = True, timeout: float | None = None) -> None: ...


class Consumer:
    """An asynchronous iterator of Delivery, made by `channel.consume`; it subscribes when it is entered or first asked.

    Several tasks may iterate over one consumer; each delivery goes to one of them.
    """

    # The client's own, no public API: `subscription` is what the broker knows, `started` that it does, `starting` an
    # attempt to subscribe and its error, `first` the attempt that a wait for a message began.

    def __init__(
        self,
        subscriptions: Subscriptions,
        cancel: Cancel,
        queue: str,
        *,
        prefetch: int | None,
        no_ack: bool,
        exclusive: bool,
        consumer_tag: str,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> None:
        self.starting: asyncio.Future[errors.HarebellError | None] | None = None
        self.first: asyncio.Task[object] | None = None
        self._subscriptions = subscriptions
        self._cancel = cancel
        self._loop = subscriptions.requests.availability.loop
        self._queue = queue
        self._prefetch = prefetch
        self._no_ack = no_ack
        self._exclusive = exclusive
        self._asked_tag = consumer_tag
        self._arguments = arguments
        self._timeout = timeout
        self.subscription = self._new()
        self.started = False
        self._handed = 0

    def _new(self) -> Subscription:
        return self._subscriptions.new(self._queue, self._no_ack, self._exclusive, self._arguments, self._asked_tag)

    @property
    def tag(self) -> str:
        """The consumer tag: the broker knows the subscription by it."""
        return self.subscription.tag

    @property
    def buffered(self) -> int:
        """Deliveries that came and were not taken yet."""
        return len(self.subscription.buffer) + len(self.subscription.ahead)

    async def start(self) -> None:
        """Subscribe, unless that is done. NotFound for a missing queue, AccessRefused, DeadlineExceeded."""
        while self.starting is not None and not self.starting.done():
            starting = self.starting
            await asyncio.wait([starting])  # another task subscribes
            if not starting.cancelled() and (error := starting.result()) is not None:
                raise copy_of(error)
        if self.started:
            return
        if self.starting is not None:
            self.subscription = self._new()  # the attempt before may still be cancelled under its own tag
        starting = self.starting = self._loop.create_future()
        try:
            await self._subscriptions.begin(self.subscription, self._prefetch, self._timeout)
        except errors.HarebellError as error:
            starting.set_result(error)
            raise
        except BaseException:  # no error of the others, which try it themselves
            starting.cancel()
            raise
        self.started = True
        starting.set_result(None)

    async def cancel(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        """End the subscription; what was not taken goes back to the queue. On a dead channel, or twice, no error.

        requeue  False: what was delivered before the broker answered can still be taken, and then the iteration ends. A
                 second cancel gives back what is left of it. The queue keeps its order for the next consumer, and of
                 messages that need no acknowledgement none is lost.
        """
        await stop_starting(self)
        if self._subscribed:
            await self._cancel(self.subscription.tag, requeue=requeue, timeout=timeout)
        else:
            if requeue:
                self.subscription.give_back()
            self.subscription.ended(None)

    @property
    def _subscribed(self) -> bool:
        return self.started and not self.subscription.finished

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # cancelled or interrupted: wait for no network
            if self._subscribed:
                self._subscriptions.abandon(self.subscription)
            return
        try:
            await self.cancel()
        except errors.HarebellError:
            if kind is None:
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self.started:
            await start_by_waiting(self)
        subscription = self.subscription
        self._handed += 1
        if not self._handed % FAIR:
            await asyncio.sleep(0)
        if not subscription.buffer:
            await self._filled()
        return subscription.take()

    async def each(self, callback: Callable[[Delivery], object]) -> None:
        """Hand every delivery to a function, until the subscription ends; then return or raise as the iteration does.

        callback  called in the event loop, one delivery after the other. What it raises ends the subscription, and is
                  raised here; so does cancelling this call. What was not handed out goes back to the queue. A plain
                  function: InvalidArgument for a coroutine function
        """
        check_plain("the callback", callback, "delivery")
        async with self:
            subscription = self.subscription
            while True:
                try:
                    await self._filled()
                except StopAsyncIteration:
                    return
                for _ in range(FAIR):
                    if not subscription.buffer:
                        break
                    callback(subscription.take())
                else:
                    await asyncio.sleep(0)

    async def receive(
        self, max_messages: int = 20_000, timeout: float | None = None, *, within: float = 0.0
    ) -> list[Delivery]:
        """A batch of deliveries: waits for one, then for as many as come, and gives at most `max_messages`.

        timeout  seconds to wait for the first, `math.inf` for no limit; the connection's when left out
        within   seconds to wait for the rest, counted from the first; 0: give what is there

        [] when the timeout passed, or the subscription has ended by a cancel or close of our own. Otherwise it raises
        the reason of the end, after the last delivery: ConsumerCancelled, ChannelClosed.
        """
        if max_messages < 1:
            raise errors.InvalidArgument(f"max_messages is {max_messages}: at least 1 is needed")
        seconds = seconds_of(timeout, self.subscription.transport.timeout)
        within = seconds_of(within, 0.0)
        if not self.started:
            await start_by_waiting(self)
        subscription, loop = self.subscription, self._loop
        if subscription.buffer:
            await asyncio.sleep(0)  # other tasks, acks on their way out among them, get their turn
        if not await self._arrived(1, loop.time() + seconds):
            return []
        wanted = min(max_messages, self._prefetch or max_messages)
        if within > 0:
            await self._arrived(wanted, loop.time() + within)
        batch = subscription.take_many(max_messages)
        if subscription.buffer:
            subscription.wake()
        return batch

    async def _arrived(self, count: int, deadline: float) -> bool:
        """Wait until so many deliveries are there. False once the deadline is past; or raises what ends it."""
        subscription = self.subscription
        while len(subscription.buffer) < count and not subscription.finished:
            waiter = self._loop.create_future()
            timer = self._loop.call_at(deadline, _expire, waiter)
            try:
                await self._woken(waiter)
            finally:
                timer.cancel()
                if waiter in subscription.waiters:
                    subscription.waiters.remove(waiter)
            if self._loop.time() >= deadline:
                break
        if not subscription.buffer and subscription.finished and subscription.reason is not None:
            raise copy_of(subscription.reason)
        return bool(subscription.buffer)

    async def _filled(self) -> None:
        """Wait for a delivery. Raises what ends the iteration."""
        subscription = self.subscription
        while not subscription.buffer:
            if subscription.finished:
                if subscription.reason is not None:
                    raise copy_of(subscription.reason)
                raise StopAsyncIteration
            await self._woken(self._loop.create_future())

    async def _woken(self, waiter: asyncio.Future[None]) -> None:
        """Wait for the next delivery, or the end."""
        subscription = self.subscription
        subscription.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in subscription.waiters:
                subscription.waiters.remove(waiter)
            if subscription.buffer:
                subscription.wake()  # this one goes: the next in line takes what it was woken for
            raise

    def __del__(self) -> None:
        # `async for` has no way to say that it was left; the last reference going away says it.
        if (self._subscribed or self.buffered) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._subscriptions.abandon, self.subscription)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
