"""A subscription as an asynchronous iterator.

    async for delivery in channel.consume("work", prefetch=500):
        delivery.ack()

Deliveries wait in one deque; no task or future is made for one. The iterator ends with the reason when the channel or
the connection dies or the broker cancels the consumer, and without one after a cancel or close of our own. Leaving the
`async with` block, or dropping the iterator, cancels the subscription and gives back what was not taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from warren import errors
from warren.client.core import ChannelCore, ConsumerCore, fresh
from warren.client.records import Delivery
from warren.client.wire import MAX_BUFFERED_BYTES, MAX_BUFFERED_MESSAGES, AsyncCore, FutureSlot
from warren.protocol.v091 import Table, methods as m

__all__ = ["Consumer", "Feed"]

FAIR: Final = 256  # deliveries handed out before other tasks, acks on their way out among them, get their turn


class Feed:
    """What came for one consumer and was not taken yet; the core puts in, the iterator takes out."""

    __slots__ = ("buffer", "bytes", "connection", "finished", "reason", "waiters")

    def __init__(self, connection: AsyncCore) -> None:
        self.connection = connection
        self.buffer: deque[Delivery] = deque()
        self.bytes = 0
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.finished = False
        self.reason: errors.WarrenError | None = None

    def append(self, delivery: Delivery) -> None:
        self.buffer.append(delivery)
        self.bytes += delivery.body_size
        if self.waiters:
            self.wake()
        if self.bytes > MAX_BUFFERED_BYTES or len(self.buffer) > MAX_BUFFERED_MESSAGES:
            self.connection.overfull.add(self)

    def take(self) -> Delivery:
        delivery = self.buffer.popleft()
        self.bytes -= delivery.body_size
        overfull = self.connection.overfull
        if (
            overfull
            and self in overfull
            and self.bytes <= MAX_BUFFERED_BYTES // 2
            and len(self.buffer) <= MAX_BUFFERED_MESSAGES // 2
        ):
            self.relieve()
        return delivery

    def relieve(self) -> None:
        """No longer a reason to stop reading."""
        self.connection.overfull.discard(self)
        if not self.connection.overfull:
            self.connection.resume_reading()

    def wake(self) -> None:
        """Wake one who waits for a delivery."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def ended(self, reason: errors.WarrenError | None) -> None:
        self.finished = True
        if self.reason is None:
            self.reason = reason
        while self.waiters:
            self.wake()

    def give_back(self, channel: ChannelCore, no_ack: bool) -> None:
        """Nobody takes the rest: back into the queue with it."""
        buffered, self.buffer = self.buffer, deque()
        self.bytes = 0
        self.relieve()
        if not no_ack and channel.reason is None:
            for delivery in buffered:
                channel.give_back(delivery)


def _drop(feed: Feed, channel: ChannelCore, consumer: ConsumerCore) -> None:
    """The iterator is gone: end the subscription without waiting for the answer."""
    channel.cancel_unheard(consumer)
    feed.give_back(channel, consumer.no_ack)
    feed.ended(None)


class Consumer:
    """An asynchronous iterator of Delivery, made by `channel.consume`; it subscribes when it is entered or first asked.

    Several tasks may iterate over one consumer; each delivery goes to one of them.
    """

    def __init__(
        self,
        channel: ChannelCore,
        connection: AsyncCore,
        queue: str,
        *,
        prefetch: int | None,
        no_ack: bool,
        exclusive: bool,
        consumer_tag: str,
        arguments: Table | None,
        timeout: float | None,
    ) -> None:
        self._starting: asyncio.Future[None] | None = None
        self._channel = channel
        self._connection = connection
        self._prefetch = prefetch
        self._exclusive = exclusive
        self._arguments = arguments
        self._timeout = timeout
        self._queue = queue
        self._no_ack = no_ack
        self._asked_tag = consumer_tag
        self._feed, self._core = self._fresh()
        self._handed = 0

    def _fresh(self) -> tuple[Feed, ConsumerCore]:
        feed = Feed(self._connection)
        tag = self._asked_tag or self._channel.next_consumer_tag()
        return feed, ConsumerCore(tag, self._queue, self._no_ack, feed.append, feed.ended)

    @property
    def tag(self) -> str:
        """The consumer tag: the broker knows the subscription by it."""
        return self._core.tag

    @property
    def buffered(self) -> int:
        """Deliveries that came and were not taken yet."""
        return len(self._feed.buffer)

    async def start(self) -> None:
        """Subscribe, unless that is done. NotFound for a missing queue, AccessRefused, DeadlineExceeded."""
        while self._starting is not None and not self._starting.done():
            await asyncio.shield(self._starting)  # another task is at it
        if self._starting is not None:
            if not self._starting.cancelled():
                return
            self._feed, self._core = self._fresh()  # the first attempt is being cancelled under its own tag
        self._starting = self._connection.loop.create_future()
        try:
            await self._subscribe()
        except BaseException:
            self._starting.cancel()
            raise
        self._starting.set_result(None)

    async def _subscribe(self) -> None:
        channel, connection, consumer = self._channel, self._connection, self._core
        qos: FutureSlot | None = None
        if self._prefetch is not None:
            # Sent together with the consume: another task's qos must not come between them.
            qos = FutureSlot(m.BasicQos(0, self._prefetch), connection.loop.create_future())
            channel.request(qos)
        request = m.BasicConsume(
            consumer.queue,
            consumer.tag,
            no_ack=consumer.no_ack,
            exclusive=self._exclusive,
            arguments=self._arguments,
        )
        slot = FutureSlot(request, connection.loop.create_future())
        try:
            channel.consume(slot, consumer)
        except errors.WarrenError:
            if qos is not None:
                qos.abandoned = True
            raise
        if qos is not None:
            try:
                await connection.reply(qos, self._timeout, channel.abandon)
            except BaseException:
                channel.abandon(slot)
                raise
        await connection.reply(slot, self._timeout, channel.abandon)

    async def cancel(self, *, timeout: float | None = None) -> None:
        """End the subscription; what was not taken goes back to the queue. On a dead channel, or twice, no error."""
        channel, consumer, feed = self._channel, self._core, self._feed
        if not self._subscribed or channel.reason is not None:
            feed.ended(None)
            return
        slot = FutureSlot(m.BasicCancel(consumer.tag), self._connection.loop.create_future())
        channel.cancel(slot, consumer)
        feed.give_back(channel, consumer.no_ack)
        feed.ended(None)
        await self._connection.reply(slot, timeout, channel.abandon)

    @property
    def _subscribed(self) -> bool:
        started = self._starting is not None and self._starting.done() and not self._starting.cancelled()
        return started and not self._feed.finished and not self._core.cancelling

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            if self._subscribed:
                _drop(self._feed, self._channel, self._core)  # who is cancelled does not wait for the network
            return
        try:
            await self.cancel()
        except errors.WarrenError:
            if kind is None:
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if self._starting is None or not self._starting.done() or self._starting.cancelled():
            await self.start()
        feed = self._feed
        self._handed += 1
        if not self._handed % FAIR:
            await asyncio.sleep(0)
        while not feed.buffer:
            if feed.finished:
                if feed.reason is not None:
                    raise fresh(feed.reason)
                raise StopAsyncIteration
            waiter = self._connection.loop.create_future()
            feed.waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and feed.buffer:
                    feed.wake()  # this one was woken and goes: the next in line takes the delivery
                elif waiter in feed.waiters:
                    feed.waiters.remove(waiter)
                raise
        return feed.take()

    def __del__(self) -> None:
        # `async for` has no way to say that it was left; the last reference going away says it.
        if self._subscribed and self._channel.reason is None and not self._connection.loop.is_closed():
            self._connection.loop.call_soon_threadsafe(_drop, self._feed, self._channel, self._core)
