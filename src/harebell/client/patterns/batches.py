"""A queue whose messages a handler processes in batches: a list of deliveries for each call.

    async with connection.consume("work", handle, batch=100, within=0.5) as workers:
        await workers.wait()

A batch has at most so many deliveries, or those that came within so many seconds of its first one. When the handler
returns, those that it has not settled itself are acknowledged together. When it fails,

1. the handler is called again with each delivery that is not settled, as a batch of one, and what becomes of that is
   what becomes of any message: so one message that is at fault costs the others nothing but a second attempt. A failure
   is what a batch of one ends with: it alone is counted, retried, given to `on_error`;
2. `raise Reject` and `raise Requeue` are decisions, and hold for all of the batch;
3. bodies that the codec cannot read are dead letters, before the handler is called, and it gets the others;
4. a handler that is cancelled gives all of them back.

One worker fills its batch at a time, so that few deliveries are not spread over many workers. All else is `workers`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from typing import Any, Final

from harebell import errors
from harebell.client.messages import Delivery
from harebell.client.patterns.contexts import within
from harebell.client.patterns.handling import BatchHandling, Unreadable, own_error
from harebell.client.patterns.outcomes import Outcome
from harebell.client.patterns.reader import QueueReader
from harebell.client.patterns.settlements import Settlements
from harebell.client.seconds import check_seconds
from harebell.client.settling import Reject, Requeue

__all__ = ["Batches", "Filling"]

logger = logging.getLogger("harebell.client")

WITHIN: Final = 0.5  # seconds, when left out


class Filling:
    """How batches are filled: with at most `size` deliveries, those that came `within` seconds of the first."""

    def __init__(self, size: int, within: float | None) -> None:
        if size < 1:
            raise errors.InvalidArgument(f"batch is {size}: at least 1 is needed")
        within = WITHIN if within is None else check_seconds(within, "within")
        if within == math.inf:
            raise errors.InvalidArgument("within is inf: a batch that never fills would wait for ever; give seconds")
        self.size = size
        self.within = within


class Batches:
    """The batches of one consumer.

    failed  settles a delivery whose handler has failed on it alone, and raises what ends the worker
    """

    def __init__(
        self,
        queue: str,
        filling: Filling,
        reader: QueueReader,
        handling: BatchHandling,
        outcome: Outcome,
        settlements: Settlements,
        failed: Callable[[Delivery, BaseException], Coroutine[Any, Any, None]],
    ) -> None:
        self._queue = queue
        self._filling = filling
        self._reader = reader
        self._handling = handling
        self._outcome = outcome
        self._settlements = settlements
        self._failed = failed
        self._turn = asyncio.Lock()

    async def next(self) -> list[Delivery]:
        """The next one; [] at the end."""
        async with self._turn:
            return await self._reader.batch(self._filling.size, self._filling.within)

    async def process(self, batch: list[Delivery], started_in: Context) -> None:
        """Have the handler process it in a context of its own, and settle all of it. Raises what ends the worker."""
        outcome, context = self._outcome, started_in.copy()
        try:
            if outcome.before is not None:
                for delivery in batch:
                    outcome.before(delivery)
            await within(context, self._handling.call(batch))
            self._settlements.done_together(batch)
            if outcome.failing:
                outcome.succeeded()
        except BaseException as error:
            if len(batch) == 1:
                await within(context, self._failed(batch[0], error))
            else:
                await self._divided(batch, error, started_in)

    async def _divided(self, batch: list[Delivery], error: BaseException, started_in: Context) -> None:
        """The handler has failed on several at once."""
        settlements, error = self._settlements, own_error(error)
        left = {delivery.delivery_tag: delivery for delivery in batch}
        try:
            if not isinstance(error, Exception):
                raise error
            decided = isinstance(error, Reject | Requeue)
            if not decided:
                logger.warning(
                    "a batch of %d deliveries of queue %r failed: %r; %s", len(batch), self._queue, error,
                    "those bodies are given up" if isinstance(error, Unreadable) else "each is tried alone",
                )  # fmt: skip
            for part in _parts(batch, error):
                for delivery in part:
                    del left[delivery.delivery_tag]
                ours = [delivery for delivery in part if self._is_ours(delivery)]
                if decided:
                    for delivery in ours:
                        await within(started_in.copy(), self._failed(delivery, error))
                elif ours:
                    await self.process(ours, started_in)
        except BaseException:
            for delivery in left.values():
                settlements.refuse(delivery, requeue=True)
            raise

    def _is_ours(self, delivery: Delivery) -> bool:
        """Whether it is to be settled here: not by the handler, and not by an outage, which is reported."""
        settlements = self._settlements
        if settlements.is_orphan(delivery):
            settlements.refuse(delivery, requeue=True)
            return False
        return not settlements.is_settled(delivery)


def _parts(batch: list[Delivery], error: BaseException) -> Iterator[list[Delivery]]:
    """What to process apart from each other."""
    if not isinstance(error, Unreadable):
        for delivery in batch:
            yield [delivery]
        return
    unreadable = {delivery.delivery_tag for delivery in error.deliveries}
    for delivery in error.deliveries:
        yield [delivery]
    if others := [delivery for delivery in batch if delivery.delivery_tag not in unreadable]:
        yield others
