"""What a queue delivers, on a channel that exists for that alone.

    async for delivery in connection.deliveries("work"):
        async with delivery.process():
            ...

The reader lives on over an outage, as every consumer does. It ends with the reason when it can consume no more: its
queue was deleted or has moved, or is gone after an outage. With resubscribe=True it goes on instead: it declares the
queue again, if that was declared on this connection, or waits for it as long as it takes.

Whether the queue is there again is asked on another channel: a refusal would cost this one, and what is in process on
it could not be acknowledged any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from harebell import errors
from harebell.client import events as e
from harebell.client.callbacks import awaited
from harebell.client.channel import Channel
from harebell.client.consumer import FAIR, Consumer
from harebell.client.messages import Delivery
from harebell.client.patterns.source import ChannelSource
from harebell.client.prefetch import check_prefetch
from harebell.client.recovery.policy import Backoff
from harebell.client.recovery.redeclare import Redeclaration
from harebell.client.recovery.stream_position import Resume
from harebell.client.seconds import check_seconds
from harebell.client.starting import abandon_starting, start_by_waiting, stop_starting
from harebell.protocol.v091 import TableLike

__all__ = ["QueueReader", "Setup"]

logger = logging.getLogger("harebell.client")

RESUBSCRIBING: Final = Backoff(0.1, 10)
PASSING: Final = (errors.ConsumerCancelled, errors.NotFound, errors.ResourceLocked, errors.AccessRefused)
"""What ends a subscription and may pass: the queue is gone, or somebody else's."""

Setup = Callable[[Channel], object]


class QueueReader:
    """An asynchronous iterator of Delivery, made by `connection.deliveries`; it begins when entered or first asked.

    Several tasks may iterate over one reader; each delivery goes to one of them.
    """

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        *,
        prefetch: int,
        resubscribe: bool,
        exclusive: bool,
        arguments: TableLike | None,
        timeout: float | None,
        prepare: Callable[[Channel], None] | None = None,
        setup: Setup | None = None,
        resume: Resume = "handed_out",
    ) -> None:
        self.first: asyncio.Task[object] | None = None
        self._opened: Channel | None = None
        self._connection = connection
        self._loop = connection.recovery.availability.loop
        self.queue = queue
        self._prefetch = check_prefetch(prefetch)
        self._resubscribe = resubscribe
        self._exclusive = exclusive
        self._arguments = arguments
        self._timeout = None if timeout is None else check_seconds(timeout)
        self._prepare = prepare
        self._setup = setup
        self._resume: Resume = resume
        self._consumer: Consumer | None = None
        self._renewing = asyncio.Lock()
        self._ending = asyncio.Event()
        self._handed = 0

    @property
    def channel(self) -> Channel:
        """The channel that it consumes on; LocalProtocolError before it began."""
        if self._opened is None:
            raise errors.LocalProtocolError(f"the reader of queue {self.queue!r} has not begun: enter or iterate it")
        return self._opened

    @property
    def consumer(self) -> Consumer:
        """Its present consumer, or the last; LocalProtocolError before it began."""
        if self._consumer is None:
            raise errors.LocalProtocolError(f"the reader of queue {self.queue!r} has not begun: enter or iterate it")
        return self._consumer

    @property
    def ended(self) -> bool:
        """Whether the program has ended it."""
        return self._ending.is_set()

    @property
    def tag(self) -> str:
        """The tag of its present consumer, or the last; "" before it began."""
        return "" if self._consumer is None else self._consumer.tag

    async def start(self) -> Self:
        """Open the channel and subscribe, unless that is done. NotFound for a missing queue, AccessRefused."""
        async with self._renewing:
            if self._consumer is None and not self._ending.is_set():
                channel = await self._connection.channel(timeout=self._timeout)
                try:
                    if self._prepare is not None:
                        self._prepare(channel)
                    self._consumer = await self._subscribed(channel)
                except BaseException:
                    channel.recovery.say_goodbye()
                    raise
                self._opened = channel
                if self._ending.is_set():  # closed meanwhile
                    channel.recovery.say_goodbye()
        return self

    async def _subscribed(self, channel: Channel) -> Consumer:
        if self._setup is not None:
            await awaited(self._setup(channel))
        consumer = channel.consume(
            self.queue,
            prefetch=self._prefetch,
            exclusive=self._exclusive,
            arguments=self._arguments,
            timeout=self._timeout,
        )
        consumer.subscription.resubscribing, consumer.subscription.resume = self._resubscribe, self._resume
        await consumer.start()
        return consumer

    async def cancel(self) -> None:
        """No more deliveries: what was not taken goes back to the queue. What was can still be settled."""
        self._ending.set()
        await stop_starting(self)
        if self._consumer is not None:
            await self._consumer.cancel(timeout=self._timeout)

    async def close(self) -> None:
        """End it, and close its channel: what was not settled goes back to the queue."""
        self._ending.set()
        await stop_starting(self)
        if self._opened is not None:
            await self._opened.close(timeout=self._timeout)

    def abandon(self) -> None:
        """Close it without waiting for the network."""
        self._ending.set()
        abandon_starting(self)
        if self._opened is not None and not self._opened.is_closed:
            self._opened.recovery.say_goodbye()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.abandon()
            return
        try:
            await self.close()
        except errors.HarebellError:
            if error is None:
                raise

    def __aiter__(self) -> Self:
        return self

    def take(self) -> Delivery | None:
        """The next delivery, if it is there and other tasks have had their turn lately; else None: await the next."""
        consumer = self._consumer
        if consumer is None or not consumer.subscription.buffer or self._ending.is_set():
            return None
        self._handed += 1
        return consumer.subscription.take() if self._handed % FAIR else None

    async def __anext__(self) -> Delivery:
        while not self._ending.is_set():
            if self._consumer is None:
                await start_by_waiting(self)
                continue
            consumer = self._consumer
            try:
                return await anext(consumer)
            except PASSING as error:
                if not self.goes_on(error):
                    raise
                await self.renew(consumer)
        raise StopAsyncIteration

    async def receive(
        self, max_messages: int = 20_000, timeout: float | None = None, *, within: float = 0.0
    ) -> list[Delivery]:
        """A batch of deliveries, as `Consumer.receive` gives it; [] once it has ended."""
        while not self._ending.is_set():
            if self._consumer is None:
                await start_by_waiting(self)
                continue
            consumer = self._consumer
            try:
                return await consumer.receive(max_messages, timeout, within=within)
            except PASSING as error:
                if not self.goes_on(error):
                    raise
                await self.renew(consumer)
        return []

    async def batch(self, size: int, within: float) -> list[Delivery]:
        """As `receive`, but waits for the first delivery as long as it takes: [] means that it has ended."""
        while True:
            batch = await self.receive(size, math.inf, within=within)
            if batch or self._ending.is_set() or self.consumer.subscription.finished:
                return batch

    def goes_on(self, error: errors.HarebellError) -> bool:
        """Whether to `renew` it: its consumer has ended with this error."""
        return self._resubscribe and not self.channel.is_closed and not self._connection.is_closed

    async def renew(self, ended: Consumer) -> None:
        """Subscribe again in place of the ended one, unless another task has done it. Raises why that is hopeless."""
        async with self._renewing:
            attempt = 0
            while self._consumer is ended and not self._ending.is_set():
                try:
                    if await self._is_there():
                        self._consumer = await self._subscribed(self.channel)
                        self._connection.recovery.emit(e.Resubscribed(self.queue, self._consumer.tag))
                        return
                    why = f"queue {self.queue!r} is not there to consume from"
                except (
                    errors.ChannelError, errors.ChannelClosed, errors.ConnectionLost, errors.DeadlineExceeded
                ) as error:  # fmt: skip
                    if self.channel.is_closed or self._connection.is_closed:
                        raise
                    why = str(error)
                attempt += 1
                logger.info("waiting to consume from queue %r: %s", self.queue, why)
                try:
                    async with asyncio.timeout(RESUBSCRIBING.delay(attempt)):
                        await self._ending.wait()
                except TimeoutError:
                    continue

    async def _is_there(self) -> bool:
        """Whether the queue can be consumed from, after it was declared again where that is this connection's."""
        if self._setup is not None:
            return True  # it declares what is needed
        availability = self._connection.recovery.availability
        seconds = availability.timeout
        await availability.usable("queue.declare", self._loop.time() + seconds, seconds)
        redeclaration = Redeclaration(availability.transport, availability.topology)
        if self.queue in availability.topology.queues:
            await redeclaration.run({self.queue})
        found = (await redeclaration.inspect([self.queue])).get(self.queue)
        return found is not None and not (self._exclusive and found.consumer_count)

    def __del__(self) -> None:
        # `async for` has no way to say that it was left; the last reference going away says it.
        if self._opened is not None and not self._opened.is_closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_goodbye, self._opened)


def _goodbye(channel: Channel) -> None:
    if not channel.is_closed:
        channel.recovery.say_goodbye()
