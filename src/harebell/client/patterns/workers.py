"""A queue whose messages a handler processes, several at a time.

    async with connection.consume("work", handle, workers=16, retry=harebell.Retry(delays=(1, 10, 60))) as workers:
        await workers.wait()

How a handler ends decides about its message:

    it returns          ack
    `raise Requeue`     back into the queue
    `raise Reject`      a dead letter; so is a body that the codec cannot read
    any other error     tried again later (`retry`), in the end a dead letter; so is a handler that takes too long

A dead letter is published to the dead-letter queue where there is one (`retry`, `dead_letter`); else the message is
rejected, so that the queue's own dead-letter exchange has it, and it is dropped where there is none.

Rules:
1. A message is settled exactly once, and not before what becomes of it is confirmed.
2. Nothing that happens to one message ends the consumer: errors are logged and given to `on_error`; a delivery that an
   outage orphaned is given to `on_orphan`, and comes again.
3. `stop` is graceful: no new messages; messages that no handler has go back; handlers finish, or are cancelled after
   the grace, and their messages go back, too. A caller of `stop` that is cancelled ends the grace.

The worker tasks share one reader (`reader`); what becomes of a message is decided in `outcomes`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery
from harebell.client.patterns.codec import Codec
from harebell.client.patterns.outcomes import Outcome
from harebell.client.patterns.reader import QueueReader
from harebell.client.patterns.source import ChannelSource
from harebell.client.settling import Settling
from harebell.protocol.v091 import TableLike

__all__ = ["Workers"]

logger = logging.getLogger("harebell.client")

LAST_WORDS: Final = 5.0  # seconds that a cancelled handler has to end

Handler = Callable[..., object]


class Workers:
    """A consumer with a handler, made by `connection.consume`. Enter it with `async with`, or `await run()`."""

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        handler: Handler,
        *,
        workers: int,
        prefetch: int | None,
        outcome: Outcome,
        on_orphan: Callable[[Delivery], object] | None,
        handler_timeout: float | None,
        grace: float,
        codec: Codec[Any] | None,
        resubscribe: bool,
        exclusive: bool,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> None:
        if workers < 1:
            raise errors.InvalidArgument(f"workers is {workers}: at least 1 is needed")
        if prefetch is None:
            prefetch = 2 * workers  # one under work, one at hand
        elif 0 < prefetch < workers:
            raise errors.InvalidArgument(
                f"prefetch is {prefetch}, and {workers} workers need as many: raise it, or leave it out"
            )
        self._queue = queue
        self._handler = handler
        self._count = workers
        self._outcome = outcome
        self._on_orphan = on_orphan
        self._handler_timeout = handler_timeout
        self._grace = grace
        self._codec = codec
        self._reader = QueueReader(
            connection,
            queue,
            prefetch=prefetch,
            resubscribe=resubscribe,
            exclusive=exclusive,
            arguments=arguments,
            timeout=timeout,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False
        self._running = 0

    @property
    def running(self) -> int:
        """How many handlers are at work."""
        return self._running

    @property
    def stopped(self) -> bool:
        """Whether it has ended: stopped, or with an error that `wait` raises."""
        return self._started and all(task.done() for task in self._tasks)

    # -- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Declare the queues of the retry policy, subscribe and begin. NotFound for a missing queue, AccessRefused."""
        if self._started:
            if self.stopped:
                raise errors.LocalProtocolError(f"the consumer of queue {self._queue!r} has ended: make another one")
            return self
        self._started = True
        try:
            await self._outcome.start(self._is_orphan)
            await self._reader.start()
        except BaseException:
            self._abandon()
            raise
        self._tasks = [asyncio.create_task(self._work(), name=f"{self._queue} {n}") for n in range(self._count)]
        return self

    async def wait(self) -> None:
        """Until it has ended: without an error after `stop`, else with the reason, such as ConsumerCancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        for error in self._failures():
            raise copy_of(error) if isinstance(error, errors.HarebellError) else error

    def _failures(self) -> list[BaseException]:
        """What the workers ended with: mostly the same reason for each."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]

    async def run(self) -> None:
        """Work until `stop` is called, or until it ends with an error."""
        async with self:
            await self.wait()

    async def stop(self, *, grace: float | None = None) -> None:
        """End it gracefully; see the rules above. Stopping twice is no error.

        grace  seconds for the handlers that are at work; the consumer's when left out

        A handler that calls this only begins the end: it cannot wait for itself. `run`, or the block, waits.
        """
        if not self._started:
            return
        if asyncio.current_task() in self._tasks:
            await self._take_no_more()
            return
        try:
            await self._take_no_more()
            await self._end(self._grace if grace is None else grace)
        except asyncio.CancelledError:
            await self._break_off()
            raise

    async def _take_no_more(self) -> None:
        try:
            await self._reader.cancel()
        except errors.HarebellError as error:  # then the broker takes everything back by itself
            logger.warning("stopping the consumer of queue %r: %s", self._queue, error)

    async def _end(self, grace: float) -> None:
        running = [task for task in self._tasks if not task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace)
            await self._cut_short(late)
        self._failures()  # they are `wait`'s to tell, and not the loop's
        await self._outcome.close()
        await self._reader.close()

    async def _cut_short(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=LAST_WORDS)
            for task in deaf:
                logger.error("a handler of queue %r goes on although it was cancelled: %r", self._queue, task)

    async def _break_off(self) -> None:
        """The task that waited for the end was cancelled: cancel the handlers at once."""
        try:
            await self._cut_short({task for task in self._tasks if not task.done()})
        finally:
            self._failures()
            self._abandon()

    def _abandon(self) -> None:
        """Close what it holds, without waiting for the network."""
        self._reader.abandon()
        self._outcome.abandon()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            await self._break_off()
            return
        try:
            await self.stop()
        except errors.HarebellError:
            if error is None:
                raise
        if error is None:
            await self.wait()

    # -- one message -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        async for delivery in self._reader:
            self._running += 1
            try:
                await self._handle(delivery, Settling(delivery, on_orphan=self._notify_orphan))
            finally:
                self._running -= 1

    async def _handle(self, delivery: Delivery, settling: Settling[Delivery]) -> None:
        try:
            try:
                self._outcome.received(delivery)
                if self._handler_timeout is None:
                    result = await self._call(delivery)
                else:
                    async with asyncio.timeout(self._handler_timeout):
                        result = await self._call(delivery)
                await self._outcome.succeeded(delivery, result)
            except Exception as error:
                await self._outcome.failed(delivery, settling, error)
            else:
                settling.done()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # raised by the handler itself: this worker was not cancelled
                await self._outcome.failed(delivery, settling, RuntimeError(f"the handler was cancelled: {error!r}"))
                return
            settling.refuse(requeue=True)
            raise
        except errors.ChannelClosed:  # nothing can be published any more: this is the end of the consumer
            settling.refuse(requeue=True)
            raise
        except Exception:  # a mistake of the client, or a message that cannot be read
            logger.exception("delivery %d of queue %r is rejected", delivery.delivery_tag, self._queue)
            settling.refuse(requeue=False)
        except BaseException:
            settling.refuse(requeue=True)
            raise

    async def _call(self, delivery: Delivery) -> object:
        """What the handler returns."""
        if self._codec is None:
            result = self._handler(delivery)
        else:
            try:
                value = self._codec.decode(delivery)
            except errors.UndecodableBody:
                raise
            except Exception as error:
                raise errors.UndecodableBody(f"the codec failed: {error!r}") from error
            result = self._handler(value, delivery)
        return await result if inspect.isawaitable(result) else result

    def _is_orphan(self, delivery: Delivery) -> bool:
        return delivery.delivery_tag in self._reader.channel.core.deliveries.orphans

    def _notify_orphan(self, delivery: Delivery) -> None:
        if self._on_orphan is not None:
            try:
                self._on_orphan(delivery)
            except Exception:  # a callback's failure is not the consumer's
                logger.exception("on_orphan failed on %r", delivery)
