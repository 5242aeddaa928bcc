"""What a queue delivers, on a channel that exists for that alone.

    async for delivery in connection.deliveries("work"):
        async with delivery.process():
            ...

The reader lives on over an outage, as every consumer does. When the broker cancels it (its queue was deleted, or has
moved) it ends with ConsumerCancelled; with resubscribe=True it declares the queue again, if that was declared on this
connection, and goes on, waiting for a queue that is not there as long as it takes.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery
from harebell.client.patterns.source import ChannelSource
from harebell.client.recovery.policy import Backoff
from harebell.client.recovery.redeclare import Redeclaration
from harebell.protocol.v091 import TableLike

__all__ = ["QueueReader"]

logger = logging.getLogger("harebell.client")

RESUBSCRIBING: Final = Backoff(0.1, 10)


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
    ) -> None:
        self._opened: Channel | None = None
        if prefetch < 0:
            raise errors.InvalidArgument(f"prefetch is {prefetch}: 0 (no limit) or more is needed")
        self._connection = connection
        self._loop = connection.recovery.availability.loop
        self.queue = queue
        self._prefetch = prefetch
        self._resubscribe = resubscribe
        self._exclusive = exclusive
        self._arguments = arguments
        self._timeout = timeout
        self._consumer: Consumer | None = None
        self._renewing = asyncio.Lock()
        self._ending = asyncio.Event()

    @property
    def channel(self) -> Channel:
        """The channel that it consumes on; LocalProtocolError before it began."""
        if self._opened is None:
            raise errors.LocalProtocolError(f"the reader of queue {self.queue!r} has not begun: enter or iterate it")
        return self._opened

    async def start(self) -> Self:
        """Open the channel and subscribe, unless that is done. NotFound for a missing queue, AccessRefused."""
        async with self._renewing:
            if self._consumer is None and not self._ending.is_set():
                channel = await self._connection.channel(timeout=self._timeout)
                try:
                    self._consumer = await self._subscribed(channel)
                except BaseException:
                    channel.recovery.say_goodbye()
                    raise
                self._opened = channel
                if self._ending.is_set():  # closed meanwhile
                    channel.recovery.say_goodbye()
        return self

    async def _subscribed(self, channel: Channel) -> Consumer:
        consumer = channel.consume(
            self.queue,
            prefetch=self._prefetch,
            exclusive=self._exclusive,
            arguments=self._arguments,
            timeout=self._timeout,
        )
        await consumer.start()
        return consumer

    async def cancel(self) -> None:
        """No more deliveries: what was not taken goes back to the queue. What was can still be settled."""
        self._ending.set()
        if self._consumer is not None:
            await self._consumer.cancel(timeout=self._timeout)

    async def close(self) -> None:
        """End it, and close its channel: what was not settled goes back to the queue."""
        self._ending.set()
        if self._opened is not None:
            await self._opened.close(timeout=self._timeout)

    def abandon(self) -> None:
        """Close it without waiting for the network."""
        self._ending.set()
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

    async def __anext__(self) -> Delivery:
        while not self._ending.is_set():
            if self._consumer is None:
                await self.start()
                continue
            consumer = self._consumer
            try:
                return await anext(consumer)
            except errors.ConsumerCancelled as error:
                if not self._resubscribe:
                    raise
                logger.warning("%s", error)
                await self._renew(consumer)
        raise StopAsyncIteration

    async def _renew(self, ended: Consumer) -> None:
        """Subscribe again in place of the ended one, unless another task has done it. Raises why that is hopeless."""
        async with self._renewing:
            attempt = 0
            while self._consumer is ended and not self._ending.is_set():
                availability = self._connection.recovery.availability
                transport, topology = availability.transport, availability.topology
                try:
                    if self.queue in topology.queues:
                        await Redeclaration(transport, topology).run({self.queue})
                    self._consumer = await self._subscribed(self.channel)
                except (errors.ChannelError, errors.ConnectionLost, errors.DeadlineExceeded) as error:
                    if self.channel.is_closed or self._connection.is_closed:
                        raise
                    attempt += 1
                    delay = RESUBSCRIBING.delay(attempt)
                    logger.info("queue %r is not there to consume from: %s", self.queue, error)
                    try:
                        async with asyncio.timeout(delay):
                            await self._ending.wait()
                    except TimeoutError:
                        continue

    def __del__(self) -> None:
        # `async for` has no way to say that it was left; the last reference going away says it.
        if self._opened is not None and not self._opened.is_closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_goodbye, self._opened)


def _goodbye(channel: Channel) -> None:
    if not channel.is_closed:
        channel.recovery.say_goodbye()
