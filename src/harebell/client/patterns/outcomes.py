"""What becomes of a delivery once its handler has ended: settled, tried again later, or dead-lettered.

`workers` calls a handler for each delivery and leaves the end of it to an `Outcome`. The one of a plain consumer is
`RetryOutcome`; what a retry is made of is `retry`'s. Nothing is settled before what becomes of it is confirmed, and
what is dropped is logged as dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Protocol

from harebell import errors
from harebell.client.callbacks import awaited, check_callable
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.handling import leaves_of
from harebell.client.patterns.producer import Producer
from harebell.client.patterns.retry import Retry, attempts_of, given_up, restore, tried_again
from harebell.client.patterns.settlements import Settlements
from harebell.client.patterns.source import ChannelSource
from harebell.client.patterns.streak import Streak
from harebell.client.recovery.policy import Backoff
from harebell.client.settling import Reject, Requeue

__all__ = ["OnError", "Outcome", "RetryOutcome", "notify_error"]

logger = logging.getLogger("harebell.client")

MOVING: Final = Backoff(0.1, 10)  # between attempts to publish to a retry queue or a dead-letter queue

OnError = Callable[[Delivery, Exception], object]


class Outcome(Protocol):
    """What becomes of the deliveries of one consumer.

    before   called with each delivery before the handler; None: nothing
    after    awaited with the delivery and what the handler has returned, before the acknowledgement; None: nothing
    failing  the handler has failed, and was not successful since: `succeeded` is called at its next success
    """

    before: Callable[[Delivery], None] | None
    after: Callable[[Delivery, object], Coroutine[Any, Any, None]] | None

    failing: bool

    async def start(self, settlements: Settlements, capacity: int) -> None:
        """Before the first delivery. `capacity`: how many deliveries may be held back unsettled."""

    def succeeded(self) -> None:
        """The handler has returned."""

    async def failed(self, delivery: Delivery, error: Exception) -> None:
        """The handler has raised an error, or took too long: settle the delivery. HandlerFailed ends the consumer."""

    async def close(self) -> None:
        """After the last handler: wait for what is under way."""

    def abandon(self) -> None:
        """End without waiting for the network."""


async def notify_error(on_error: OnError | None, delivery: Delivery, error: Exception) -> None:
    """Call the program's `on_error`; what it raises is logged."""
    if on_error is not None:
        try:
            await awaited(on_error(delivery, error))
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
        max_failures: int | None,
        on_error: OnError | None,
        timeout: float | None,
    ) -> None:
        if on_error is not None:
            check_callable("on_error", on_error, "delivery", "error")
        if max_failures is not None and max_failures < 1:
            raise errors.InvalidArgument(f"max_failures is {max_failures}: 1 or more is needed, or None for no limit")
        if retry is not None and not isinstance(retry, Retry):
            raise errors.InvalidArgument(f"retry is {retry!r}: give a Retry, as Retry(delays=(1, 10, 60)), or None")
        if dead_letter is not None:
            retry = Retry((), dead_letter=dead_letter) if retry is None else replace(retry, dead_letter=dead_letter)
        if retry is not None:
            retry.queues(queue)  # refused here, and not when the first message fails
        self.before: Callable[[Delivery], None] | None = None if retry is None else restore
        self.after: Callable[[Delivery, object], Coroutine[Any, Any, None]] | None = None
        self.failing = False
        self._connection = connection
        self._queue = queue
        self._retry = retry
        self._max_failures = max_failures
        self._on_error = on_error
        self._timeout = timeout
        self._producer: Producer[Message | bytes] | None = None
        self._settlements = Settlements(None)
        self._streak: Streak | None = None

    async def start(self, settlements: Settlements, capacity: int) -> None:
        self._settlements = settlements
        retry = self._retry
        if retry is None:
            if self._max_failures is not None and not self._dead_letters():
                self._streak = Streak(self._max_failures, capacity, self._drop, self._keep)
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

    def _dead_letters(self) -> bool:
        """Whether the queue is known to have a dead-letter exchange: it was declared so on this connection."""
        declared = self._connection.recovery.availability.topology.queues.get(self._queue)
        return declared is not None and "x-dead-letter-exchange" in declared.arguments

    async def _declare(self, retry: Retry) -> None:
        dead = retry.dead_queue(self._queue)
        for name, arguments in retry.queues(self._queue).items():
            async with self._connection.channel(timeout=self._timeout) as channel:
                try:
                    await channel.queue_declare(name, durable=True, arguments=arguments, timeout=self._timeout)
                except errors.PreconditionFailed:
                    if name != dead:  # any queue can be that; the others have to be just so
                        raise

    def succeeded(self) -> None:
        self.failing = False
        if self._streak is not None:
            self._streak.over()

    async def failed(self, delivery: Delivery, error: Exception) -> None:
        retry, settlements = self._retry, self._settlements
        if isinstance(error, Reject | Requeue):
            self.succeeded()  # the handler works: it has decided
        else:
            again = retry is not None and self._is_worth_a_retry(retry, error)
            logger.log(
                logging.WARNING if again else logging.ERROR,
                "delivery %d of queue %r failed: %r", delivery.delivery_tag, self._queue, error,
                exc_info=None if again else error,
            )  # fmt: skip
            await notify_error(self._on_error, delivery, error)
            self.failing = self._streak is not None
        if settlements.is_settled(delivery):
            return
        if isinstance(error, Requeue) or settlements.is_orphan(delivery):  # the second: the broker has it back already
            settlements.refuse(delivery, requeue=True)
        elif retry is not None and self._producer is not None:
            await self._retried(retry, self._producer, delivery, error)
        elif isinstance(error, Reject) or self._dead_letters():
            settlements.refuse(delivery, requeue=False)
        elif self._streak is None:
            self._drop(delivery)
        elif self._streak.failed(delivery):
            raise errors.HandlerFailed(
                f"the handler of queue {self._queue!r} failed {self._streak.failures} times in a row, the last time "
                f"with {error!r}: the consumer has ended, and messages that it has not processed are back in the queue"
            ) from error

    def _is_worth_a_retry(self, retry: Retry, error: Exception) -> bool:
        """Of several errors: whether each of them is."""
        return all(
            isinstance(leaf, (*retry.on, Requeue)) and not isinstance(leaf, errors.UndecodableBody | Reject)
            for leaf in leaves_of(error)
        )

    async def _retried(
        self, retry: Retry, producer: Producer[Message | bytes], delivery: Delivery, error: Exception
    ) -> None:
        again = self._is_worth_a_retry(retry, error)
        if retry.by == "broker":
            self._settlements.refuse(delivery, requeue=again)
            return
        attempts = attempts_of(delivery) + 1
        queue = retry.retry_queue(self._queue, attempts) if again else None
        if queue is not None:
            await self._move(retry, producer, tried_again(delivery, error), queue)
        else:
            letter = given_up(delivery, self._queue, error, int(time.time()))
            await self._move(retry, producer, letter, retry.dead_queue(self._queue))
        self._settlements.done(delivery)

    def _drop(self, delivery: Delivery) -> None:
        if not self._settlements.is_orphan(delivery):
            logger.error(
                "delivery %d of queue %r is dropped, unless a policy of the broker dead-letters it: give the consumer "
                "retry=... or dead_letter=..., or the queue a dead-letter exchange", delivery.delivery_tag, self._queue,
            )  # fmt: skip
        self._settlements.refuse(delivery, requeue=False)

    def _keep(self, delivery: Delivery) -> None:
        self._settlements.refuse(delivery, requeue=True)

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
        if self._streak is not None:
            self._streak.end()
        if self._producer is not None:
            await self._producer.close()

    def abandon(self) -> None:
        if self._streak is not None:
            self._streak.end()
        if self._producer is not None:
            self._producer.abandon()
