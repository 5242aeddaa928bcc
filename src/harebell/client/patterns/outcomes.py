"""What becomes of a delivery once its handler has ended: settled, tried again later, or dead-lettered.

`workers` calls a handler for each delivery and leaves the end of it to an `Outcome`. The one of a plain consumer is
`RetryOutcome`; what a retry is made of is `retry`'s. Nothing is settled before what becomes of it is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

from harebell import errors
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.producer import Producer
from harebell.client.patterns.retry import Retry, attempts_of, given_up, restore, tried_again
from harebell.client.patterns.source import ChannelSource
from harebell.client.recovery.policy import Backoff
from harebell.client.settling import Reject, Requeue, Settling

__all__ = ["OnError", "Outcome", "RetryOutcome", "notify_error"]

logger = logging.getLogger("harebell.client")

MOVING: Final = Backoff(0.1, 10)  # between attempts to publish to a retry queue or a dead-letter queue

OnError = Callable[[Delivery, Exception], object]


class Outcome(Protocol):
    """What becomes of the deliveries of one consumer."""

    async def start(self, is_orphan: Callable[[Delivery], bool]) -> None:
        """Before the first delivery. `is_orphan`: whether an outage has given a delivery back to the broker."""

    def received(self, delivery: Delivery) -> None:
        """Before the handler is called."""

    async def succeeded(self, delivery: Delivery, result: object) -> None:
        """The handler has returned; the acknowledgement follows."""

    async def failed(self, delivery: Delivery, settling: Settling[Delivery], error: Exception) -> None:
        """The handler has raised an error, or took too long: settle the delivery."""

    async def close(self) -> None:
        """After the last handler: wait for what is under way."""

    def abandon(self) -> None:
        """End without waiting for the network."""


async def notify_error(on_error: OnError | None, delivery: Delivery, error: Exception) -> None:
    """Call the program's `on_error`; what it raises is logged."""
    if on_error is not None:
        try:
            result = on_error(delivery, error)
            if isinstance(result, Awaitable):
                await result
        except Exception:  # a callback's failure is not the consumer's
            logger.exception("on_error failed on %r", delivery)


class RetryOutcome:
    """A consumer's: acknowledged, tried again as `retry` says, or dead-lettered."""

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        retry: Retry | None,
        *,
        dead_letter: str | None,
        on_error: OnError | None,
        timeout: float | None,
    ) -> None:
        if dead_letter is not None:
            retry = Retry((), dead_letter=dead_letter) if retry is None else replace(retry, dead_letter=dead_letter)
        self._connection = connection
        self._queue = queue
        self._retry = retry
        self._on_error = on_error
        self._timeout = timeout
        self._producer: Producer[Message | bytes] | None = None
        self._is_orphan: Callable[[Delivery], bool] = lambda delivery: False

    async def start(self, is_orphan: Callable[[Delivery], bool]) -> None:
        self._is_orphan = is_orphan
        retry = self._retry
        if retry is None:
            return
        if retry.by == "queues" and self._queue in self._connection.recovery.availability.topology.server_named:
            raise errors.InvalidArgument(
                f"retries for queue {self._queue!r}: its name is the broker's and changes after an outage, where "
                "what waits for its retry could not follow; declare a queue with a name of your own"
            )
        self._producer = await Producer(
            self._connection, on_orphan="retry", mandatory=True, timeout=self._timeout
        ).start()
        await self._declare(retry)

    async def _declare(self, retry: Retry) -> None:
        dead = retry.dead_queue(self._queue)
        for name, arguments in retry.queues(self._queue).items():
            async with self._connection.channel(timeout=self._timeout) as channel:
                try:
                    await channel.queue_declare(name, durable=True, arguments=arguments, timeout=self._timeout)
                except errors.PreconditionFailed:
                    if name != dead:  # any queue can be that; the others have to be just so
                        raise

    def received(self, delivery: Delivery) -> None:
        """Give the message back the address that it had before its retries."""
        if self._retry is not None:
            restore(delivery)

    async def succeeded(self, delivery: Delivery, result: object) -> None:
        """A consumer does nothing with what its handler returns."""

    async def failed(self, delivery: Delivery, settling: Settling[Delivery], error: Exception) -> None:
        retry = self._retry
        again = retry is not None and isinstance(error, retry.on) and not isinstance(error, errors.UndecodableBody)
        if not isinstance(error, Reject | Requeue):
            logger.log(
                logging.WARNING if again else logging.ERROR,
                "delivery %d of queue %r failed: %r", delivery.delivery_tag, self._queue, error,
                exc_info=None if again else error,
            )  # fmt: skip
            await notify_error(self._on_error, delivery, error)
        if settling.settled:
            return
        if isinstance(error, Requeue) or self._is_orphan(delivery):  # the second: the broker has it back already
            settling.refuse(requeue=True)
        elif retry is None or self._producer is None:
            settling.refuse(requeue=False)
        elif retry.by == "broker":
            settling.refuse(requeue=again and not isinstance(error, Reject))
        else:
            attempts = attempts_of(delivery) + 1
            queue = retry.retry_queue(self._queue, attempts) if again and not isinstance(error, Reject) else None
            if queue is not None:
                await self._move(retry, self._producer, tried_again(delivery, error), queue)
            else:
                letter = given_up(delivery, self._queue, error, int(time.time()))
                await self._move(retry, self._producer, letter, retry.dead_queue(self._queue))
            settling.done()

    async def _move(self, retry: Retry, producer: Producer[Message | bytes], message: Message, queue: str) -> None:
        """Publish it there, until that is confirmed: nothing is acknowledged before."""
        attempt = 0
        while True:
            try:
                await producer.publish(message, queue)
                return
            except (
                errors.Nacked, errors.Unroutable, errors.DeadlineExceeded, errors.ChannelError, errors.ConnectionLost
            ) as error:  # fmt: skip
                attempt += 1
                logger.error("a message of queue %r cannot be moved to %r: %s", self._queue, queue, error)
                await asyncio.sleep(MOVING.delay(attempt))
                if isinstance(error, errors.Unroutable):
                    try:
                        await self._declare(retry)
                    except errors.HarebellError as refused:
                        logger.error("the queues for retries of %r cannot be declared: %s", self._queue, refused)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    def abandon(self) -> None:
        if self._producer is not None:
            self._producer.abandon()
