"""A queue whose messages a handler processes, several at a time.

    async with connection.consume("work", handle, workers=16, retry=harebell.Retry(delays=(1, 10, 60))) as workers:
        await workers.wait()

How a handler ends decides about its message:

    it returns          ack
    `raise Requeue`     back into the queue
    `raise Reject`      a dead letter
    any other error     tried again later (`retry`), in the end a dead letter; so is a handler that takes too long. A
                        body that the codec cannot read is a dead letter at once

A dead letter is published to the dead-letter queue where there is one (`retry`, `dead_letter`); else the message is
rejected, so that the queue's own dead-letter exchange has it. Where there is none it is dropped, and the log says so;
a handler that fails `max_failures` times in a row there ends the consumer, and the messages return to the queue.

Rules:
1. A message is settled exactly once, and not before what becomes of it is confirmed.
2. Nothing that happens to one message ends the consumer: errors are logged and given to `on_error`; a delivery that an
   outage orphaned is given to `on_orphan`, and comes again.
3. What ends the consumer ends the `async with` block too, as with a TaskGroup: its body is cancelled, and the block
   raises the reason. A close of the program's own is no such reason: `wait` returns, and the body goes on.
4. A message whose handler cannot be called goes back, and so do those after it: that is no failure of the handler.
5. `stop` is graceful: no new messages; messages that no handler has go back; handlers finish, or are cancelled after
   the grace, and their messages go back, too. A caller of `stop` that is cancelled ends the grace.
6. Each message, or batch, has a context of its own (`contextvars`), a copy of that in which the consumer was started.
   Its handler runs in there, its middlewares, `on_error`, and what is published for it: its retry, its dead letter, the
   reply to it.

The worker tasks share one reader (`reader`). How a handler is called: `handling`; what becomes of a message:
`outcomes`; how it is settled: `settlements`; handlers of batches: `batches`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextvars import copy_context
from types import CoroutineType, TracebackType
from typing import Any, Final, Self

from harebell import errors
from harebell.client import events as e
from harebell.client.callbacks import awaited, check_callable, check_plain
from harebell.client.channel import Channel
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery
from harebell.client.patterns.batches import Batches, Filling
from harebell.client.patterns.codec import Codec
from harebell.client.patterns.contexts import awaited_in, steps, within
from harebell.client.patterns.handling import BatchHandling, Handler, NotCalled, OneHandling, own_error
from harebell.client.patterns.outcomes import Outcome
from harebell.client.patterns.reader import QueueReader, Setup
from harebell.client.patterns.settlements import OneByOne, Settlements
from harebell.client.patterns.source import ChannelSource
from harebell.client.prefetch import MAX_PREFETCH, check_prefetch
from harebell.client.seconds import check_seconds
from harebell.protocol.v091 import TableLike

__all__ = ["Workers"]

logger = logging.getLogger("harebell.client")

LAST_WORDS: Final = 5.0  # seconds that a cancelled handler has to end, and so has `cleanup`


class Workers:
    """A consumer with a handler, made by `connection.consume`. Enter it with `async with`, or `await run()`."""

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        handler: Handler,
        *,
        workers: int | None,
        prefetch: int | None,
        outcome: Outcome,
        on_orphan: Callable[[Delivery], object] | None,
        handler_timeout: float | None,
        grace: float,
        codec: Codec[Any] | None,
        setup: Setup | None,
        cleanup: Setup | None,
        resubscribe: bool,
        exclusive: bool,
        arguments: TableLike | None,
        timeout: float | None,
        batch: int | None = None,
        within: float | None = None,
    ) -> None:
        filling = None if batch is None else Filling(batch, within)
        if batch is None and within is not None:
            raise errors.InvalidArgument(f"within={within} is how long a batch waits: give its size, batch=..., too")
        size = 1 if batch is None else batch
        if workers is None:
            workers = 16 if batch is None else 1
        if workers < 1:
            raise errors.InvalidArgument(f"workers is {workers}: at least 1 is needed")
        grace = check_seconds(grace, "grace")
        if handler_timeout is not None:
            handler_timeout = check_seconds(handler_timeout, "handler_timeout")
        at_once = workers * size  # deliveries that handlers may process
        if at_once > MAX_PREFETCH:
            raise errors.InvalidArgument(
                f"{workers} workers with batches of {size}: at most {MAX_PREFETCH} deliveries may be unacknowledged"
            )
        if prefetch is None:
            prefetch = min(2 * at_once, MAX_PREFETCH)  # as many at hand as under work
        elif 0 < check_prefetch(prefetch) < at_once:
            needs = f"{workers} workers need as many" if size == 1 else f"{workers} x {size} in batches need as many"
            raise errors.InvalidArgument(f"prefetch is {prefetch}, and {needs}: raise it, or leave it out")
        self._handling: OneHandling | BatchHandling
        if filling is None:
            self._handling = OneHandling(handler, codec, handler_timeout)
        else:
            self._handling = BatchHandling(handler, codec, handler_timeout)
        if on_orphan is not None:
            check_plain("on_orphan", on_orphan, "delivery")
        for what, function in (("setup", setup), ("cleanup", cleanup)):
            if function is not None:
                check_callable(what, function, "channel")
        self._connection = connection
        self._queue = queue
        self._count = workers
        self._capacity = prefetch - at_once if prefetch else MANY
        self._outcome = outcome
        self._settlements = Settlements(on_orphan)
        self._grace = grace
        self._cleanup = cleanup
        self._reader = QueueReader(
            connection,
            queue,
            prefetch=prefetch,
            resubscribe=resubscribe,
            exclusive=exclusive,
            arguments=arguments,
            timeout=timeout,
            prepare=self._prepare,
            setup=setup,
        )
        self._batches: Batches | None = None
        if filling is not None and isinstance(self._handling, BatchHandling):
            self._batches = Batches(
                queue, filling, self._reader, self._handling, outcome, self._settlements, self._failed
            )
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None  # the end, once it has begun
        self._started = False
        self._running = 0
        self._failure: BaseException | None = None  # what has ended it
        self._raised = False  # `wait` has raised that
        self._body = _Body()

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
            await self._outcome.start(self._settlements, self._capacity)
            await self._reader.start()
        except BaseException:
            self._abandon()
            raise
        batches = self._batches
        for n in range(self._count):
            work = self._work() if batches is None else self._work_on_batches(batches)
            self._tasks.append(asyncio.create_task(work, name=f"{self._queue} {n}"))
        for task in self._tasks:
            task.add_done_callback(self._worker_ended)
        return self

    def _prepare(self, channel: Channel) -> None:
        """The reader has opened this channel, to consume on it."""
        self._settlements.start(channel)
        channel.core.settler = self._settler(channel)
        self._handling.start(self._queue, channel, channel.chains)

    def _settler(self, channel: Channel) -> OneByOne:
        """What the deliveries are bound to."""
        return OneByOne(channel)

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        """One worker that fails is the end of all."""
        failure = None if task.cancelled() else task.exception()
        if failure is None or self._failure is not None:
            return
        if isinstance(failure, NotCalled):
            failure = errors.ConsumerCancelled(
                f"the consumer of queue {self._queue!r} has ended, and what no handler had is back in the "
                f"queue: {failure}; wait for the consumer, or stop it, before the program ends"
            )
        self._failure = failure
        if isinstance(failure, errors.HandlerFailed):
            self._connection.recovery.emit(e.ConsumerEnded(self._queue, self._reader.tag, failure))
        self._begin_end(self._grace)
        self._body.cancel()

    async def wait(self) -> None:
        """Until it has ended: without an error after `stop` or a close, else with the reason, as ConsumerCancelled."""
        if self._tasks:
            with self._body.waiting():
                await asyncio.wait(self._tasks)
        self._raise()

    def _raise(self) -> None:
        failure = self._failure
        if failure is None:
            return
        self._raised = True
        if isinstance(failure, errors.HarebellError):
            raise copy_of(failure) from failure.__cause__
        raise failure

    async def run(self) -> None:
        """Work until `stop` is called, or until it ends with an error."""
        async with self:
            await self.wait()

    async def stop(self, *, grace: float | None = None) -> None:
        """End it gracefully; see the rules above. Stopping twice is no error.

        grace  seconds for the handlers that are at work; the consumer's when left out

        A handler, or `cleanup`, that calls this only begins the end: it cannot wait for itself. `run`, or the block,
        waits.
        """
        if not self._started:
            return
        if asyncio.current_task() in (self._ending, *self._tasks):
            await self.take_no_more()
            return
        try:
            await asyncio.shield(self._begin_end(self._grace if grace is None else grace))
        except asyncio.CancelledError:
            await self._break_off()
            raise

    def _begin_end(self, grace: float) -> asyncio.Task[None]:
        """Begin the end, unless it has begun."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace))
            self._ending.add_done_callback(self._has_ended)
        return self._ending

    def _has_ended(self, ending: asyncio.Task[None]) -> None:
        if not ending.cancelled() and (error := ending.exception()) is not None:
            logger.error("the end of the consumer of queue %r: %r", self._queue, error)

    async def take_no_more(self) -> None:
        """Begin the end, without waiting for it: handlers finish what they have."""
        try:
            await self._reader.cancel()
        except errors.HarebellError as error:  # then the broker takes everything back by itself
            logger.warning("stopping the consumer of queue %r: %s", self._queue, error)

    async def _end(self, grace: float) -> None:
        await self.take_no_more()
        running = [task for task in self._tasks if not task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace)
            await self._cut_short(late)
        try:
            await self._outcome.close()
            await self._clean_up()
        finally:
            await self._reader.close()

    async def _cut_short(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=LAST_WORDS)
            for task in deaf:
                logger.error("a handler of queue %r goes on although it was cancelled: %r", self._queue, task)

    async def _clean_up(self) -> None:
        """Call the program's `cleanup`, once."""
        cleanup, self._cleanup = self._cleanup, None
        channel = self._settlements.started
        if cleanup is not None and channel is not None and not channel.is_closed:
            await awaited(cleanup(channel))

    async def _break_off(self) -> None:
        """The task that waited for the end was cancelled: cancel the handlers at once."""
        if self._ending is not None:
            self._ending.cancel()
        try:
            await self._cut_short({task for task in self._tasks if not task.done()})
            async with asyncio.timeout(LAST_WORDS):
                await self._clean_up()
        except Exception:  # the program's
            logger.exception("the cleanup of the consumer of queue %r failed", self._queue)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Close what it holds, without waiting for the network."""
        self._outcome.abandon()
        self._reader.abandon()

    async def __aenter__(self) -> Self:
        await self.start()
        self._body.enter()
        if self._failure is not None:  # before its body has begun
            self._body.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ours = self._body.leave(error)
        if error is not None and not isinstance(error, Exception) and not ours:
            await self._break_off()
            return
        try:
            await self.stop()
        except errors.HarebellError:
            if error is None:
                raise
        if (error is None or ours) and not self._raised:
            self._raise()

    # -- one message -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        reader, outcome, done = self._reader, self._outcome, self._settlements.done
        handling = self._handling
        assert isinstance(handling, OneHandling)  # else `_work_on_batches` runs
        handler = handling.plain
        call = handling.call if handler is None else handler
        before, after = outcome.before, outcome.after
        started_in = copy_context()
        while True:
            delivery = reader.take()
            if delivery is None:
                try:
                    delivery = await anext(reader)
                except StopAsyncIteration:
                    return
            self._running += 1
            context = started_in.copy()
            run = context.run
            try:
                if before is not None:
                    before(delivery)
                result = run(call, delivery)
                if result is not None:
                    if type(result) is CoroutineType:
                        try:
                            waits_for = run(result.send, None)
                        except StopIteration as stop:  # as of most: `within` would cost twice as much
                            result = stop.value
                        else:
                            result = await steps(context, result, waits_for)
                    elif inspect.isawaitable(result):
                        result = await awaited_in(context, result)
                if after is not None:
                    await within(context, after(delivery, result))
                done(delivery)
                if outcome.failing:
                    outcome.succeeded()
            except BaseException as error:
                await within(context, self._failed(delivery, error))
            finally:
                self._running -= 1

    async def _work_on_batches(self, batches: Batches) -> None:
        started_in = copy_context()
        while batch := await batches.next():
            self._running += 1
            try:
                await batches.process(batch, started_in)
            finally:
                self._running -= 1

    async def _failed(self, delivery: Delivery, error: BaseException) -> None:
        """Processing it was not successful: settle it. Raises what ends the worker."""
        settlements, error = self._settlements, own_error(error)
        if not isinstance(error, Exception):
            settlements.refuse(delivery, requeue=True)
            raise error
        try:
            await self._outcome.failed(delivery, error)
        except errors.HandlerFailed:
            raise
        except (errors.ChannelClosed, asyncio.CancelledError):  # nothing can be published any more, or no time is left
            settlements.refuse(delivery, requeue=True)
            raise
        except Exception:  # a mistake of the client, or a message that cannot be read
            logger.exception("delivery %d of queue %r is rejected", delivery.delivery_tag, self._queue)
            settlements.refuse(delivery, requeue=False)


MANY: Final = 1_000_000  # deliveries that may be held back where the broker sets no limit


class _Body:
    """The body of an `async with` block, which the end of the consumer cancels."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None  # that runs it; None outside of the block
        self._cancelling = 0  # how often that task had been cancelled before
        self._cancelled = False  # by us
        self._waits = 0

    def enter(self) -> None:
        self._task = asyncio.current_task()
        if self._task is not None:
            self._cancelling = self._task.cancelling()

    def cancel(self) -> None:
        """End the body, unless it waits for the end anyway."""
        if self._task is not None and not self._waits and not self._cancelled:
            self._cancelled = self._task.cancel()

    def waiting(self) -> _Waiting:
        """For a `with` block in which the task waits for the end of the consumer."""
        return _Waiting(self)

    def change_waits(self, by: int) -> None:
        if asyncio.current_task() is self._task:
            self._waits += by

    def leave(self, error: BaseException | None) -> bool:
        """The block is left with this error: whether that is our cancellation."""
        task, self._task = self._task, None
        current = asyncio.current_task()
        if current is None or current is not task or not self._cancelled:
            return False
        return current.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


class _Waiting:
    __slots__ = ("_body",)

    def __init__(self, body: _Body) -> None:
        self._body = body

    def __enter__(self) -> None:
        self._body.change_waits(1)

    def __exit__(self, *error: object) -> None:
        self._body.change_waits(-1)
