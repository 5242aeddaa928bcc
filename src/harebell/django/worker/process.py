"""One process that takes tasks from their queues and runs them: threads for synchronous ones, its loop for the others.

A task is acknowledged when its result is kept, or its next attempt is published: a process that is killed loses none,
and a task that it was running is delivered again. A stop drains: no further task is taken, those that run are waited
for, those that were prefetched go back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import get_random_string

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.outbox import is_final
from harebell.client.servers import HAREBELL
from harebell.django.framework import task_backends
from harebell.django.messages import DUE, UnknownTask, delay_of, failed, message_of, read, result_of
from harebell.django.options import Options
from harebell.django.publishing import Broker
from harebell.django.topology import MAX_DELAY
from harebell.django.worker.running import Runner, Threads, call

__all__ = ["WorkerProcess"]

logger = logging.getLogger("harebell.django")

RELAY_SECONDS: Final = 5.0  # between two looks into the outbox, and at old results
AGAIN_SECONDS: Final = 1.0
DELETED_SECONDS: Final = 0.1  # before a queue that somebody has deleted is declared again
UNROUTED_PREFETCH: Final = 50
CLEAN_UP_SECONDS: Final = 1.0  # in which coroutines that are cut off leave their blocks; one may wait for a thread
FINISHED: Final = ("SUCCESSFUL", "FAILED")
OF_ATTEMPTS: Final = ("worker_ids", "errors", "started_at", "last_attempted_at")
LEASE_SECONDS: Final = 20.0  # between two requests for more time; the shortest consumer timeout is to be longer
# How long a lease is: as the consumer timeout that brokers have by default, and much longer than the loop of a worker
# may be busy with something else.
LEASE_MS: Final = 1_800_000


class WorkerProcess:
    """Takes and runs the tasks in the queues of one backend, each as the backend says that it was enqueued with.

    backend      the TaskBackend
    queues       Django queues
    concurrency  tasks that run at once
    prefetch     further tasks that are fetched in advance
    counts       how many tasks succeeded, failed, are tried again, could not be understood; how many were published
                 again because they had reached no queue
    running      how many run now
    cut_off      how many still ran when the drain was over; they are delivered again
    is_ready     it is connected, and consumes from each of its queues
    """

    def __init__(self, backend: Any, queues: Sequence[str], concurrency: int, prefetch: int) -> None:
        self._backend = backend
        self._options = backend.connected
        self._queues = list(dict.fromkeys(queues))
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._threads = Threads(concurrency, "task")
        self._relay_thread = Threads(1, "relay")  # its own: tasks may have all others for long
        self.worker_id = f"{socket.gethostname()}.{os.getpid()}.{get_random_string(6)}"[:64]
        self._runners: dict[Options, Runner] = {}
        self.counts: Counter[str] = Counter()
        self.cut_off = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: set[asyncio.Task[None]] = set()
        self._reading = 0  # how many of the Django queues have a reader
        self._consuming: set[str] = set()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._broker: Broker | None = None
        self._channels: list[Channel] = []  # with deliveries

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def threads_running(self) -> int:
        """How many threads run something. They can't be ended, and outlive a drain that was too short."""
        return self._threads.running + self._relay_thread.running

    @property
    def is_ready(self) -> bool:
        connected = self._broker is not None and self._broker.connection.is_open
        return connected and len(self._consuming) == len(self._readers) > 0

    def stop(self) -> None:
        """Take no further task, and end when those that run are finished."""
        self._stopping.set()

    async def run(self, *, drain: float | None = None) -> None:
        """Work until `stop`.

        drain  seconds that running tasks have to finish after the stop; None is no limit
        """
        broker = self._broker = await self._connected()
        if broker is None:
            return
        relaying, keeping = asyncio.create_task(self._relay()), asyncio.create_task(self._keep_deliveries(broker))
        try:
            slots = asyncio.Semaphore(self._concurrency)
            beside = {relaying, keeping}
            self._read_queues(broker, slots)
            self._readers.add(asyncio.create_task(self._read_unrouted(broker)))
            stopping = asyncio.create_task(self._stopping.wait())
            done: set[asyncio.Task[Any]] = set()
            while not done:
                self._changed.clear()
                self._read_queues(broker, slots)
                changing = asyncio.create_task(self._changed.wait())
                waited = [*self._readers, *beside, stopping, changing]
                done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                changing.cancel()
                ended = {task for task in beside & done if task.exception() is None}  # it has nothing to do
                beside -= ended
                done -= {*ended, changing}
            self._stopping.set()
            for task in self._readers:
                task.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)
            await asyncio.wait([*self._tasks, relaying], timeout=drain)
            self.cut_off = len(self._tasks)
            for task in done - {stopping}:
                task.result()
        finally:
            for task in [*self._tasks, relaying, keeping]:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CLEAN_UP_SECONDS)
            await broker.close()
            for threads in (self._threads, self._relay_thread):
                threads.shutdown(wait=False, cancel_futures=True)

    def _read_queues(self, broker: Broker, slots: asyncio.Semaphore) -> None:
        for name in self._queues[self._reading :]:
            self._readers.add(asyncio.create_task(self._read_queue(broker, name, slots)))
        self._reading = len(self._queues)

    def add(self, name: str) -> None:
        """Take the tasks of another Django queue, too; called in the worker's loop."""
        if name not in self._queues:
            self._queues.append(name)
            self._changed.set()

    async def _connected(self) -> Broker | None:
        while not self._stopping.is_set():
            try:
                return await Broker.connect(self._options)
            except (errors.ConnectionLost, errors.DeadlineExceeded) as error:
                logger.warning("no broker yet: %s", error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), AGAIN_SECONDS)
        return None

    async def _read_queue(self, broker: Broker, name: str, slots: asyncio.Semaphore) -> None:
        """Run the tasks of a Django queue."""

        async def declare() -> None:
            await broker.declare(name, delayed=True)
            await broker.declare_dead()

        async def take(delivery: Delivery) -> None:
            await slots.acquire()
            task = asyncio.create_task(self._process(broker, delivery, slots))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        await self._read(broker, broker.names.queue(name), self._concurrency + self._prefetch, declare, take)

    async def _read_unrouted(self, broker: Broker) -> None:
        """Publish again what was due and reached no queue."""

        async def take(delivery: Delivery) -> None:
            await self._acknowledge(delivery, self._publish_again(broker, delivery))

        await self._read(broker, broker.names.unrouted, UNROUTED_PREFETCH, broker.declare_delays, take)

    async def _read(
        self,
        broker: Broker,
        queue: str,
        prefetch: int,
        declare: Callable[[], Awaitable[None]],
        take: Callable[[Delivery], Awaitable[None]],
    ) -> None:
        """Give the deliveries of a queue to `take`, until cancelled. A queue that is deleted is declared again."""
        channel = await broker.connection.channel()
        self._channels.append(channel)
        while True:
            await declare()
            consumer = channel.consume(queue, prefetch=prefetch)
            try:
                await consumer.start()
                self._consuming.add(queue)
                while True:
                    delivery = await anext(consumer)
                    try:
                        await take(delivery)
                    except asyncio.CancelledError:  # at the stop: another worker need not wait for what runs here
                        with suppress(errors.HarebellError):
                            delivery.nack(requeue=True)
                        raise
            except (errors.ConsumerCancelled, errors.NotFound) as error:
                logger.warning("the worker declares queue %s and consumes from it again: %s", queue, error)
                broker.forget()
            finally:
                self._consuming.discard(queue)
                await consumer.cancel()  # what was prefetched goes back
            await asyncio.sleep(DELETED_SECONDS)

    async def _keep_deliveries(self, broker: Broker) -> None:
        """Have the broker leave this worker what it has, however long a task runs or waits for a free slot.

        Without leases a broker takes it back after its consumer timeout, and the tasks run twice at a time.
        """
        if broker.product != HAREBELL or not await self._may_lease(broker):
            return
        while True:
            await asyncio.sleep(LEASE_SECONDS)
            for channel in self._channels:
                with suppress(errors.HarebellError):  # a channel that is lost has no deliveries any more
                    await _lease_all(channel)

    async def _may_lease(self, broker: Broker) -> bool:
        """Whether the broker grants leases. A refusal costs the channel, so one without deliveries asks first."""
        try:
            async with broker.connection.channel() as channel:
                await channel.confirm_select()
                await _lease_all(channel)
        except errors.HarebellError as error:  # a lost connection comes back
            if is_final(error):
                logger.warning(
                    "tasks that take longer than the consumer timeout may run twice: "
                    "permit the worker's user to write to the exchange amq.system: %s", error,
                )  # fmt: skip
                return False
        return True

    async def _process(self, broker: Broker, delivery: Delivery, slots: asyncio.Semaphore) -> None:
        try:
            await self._acknowledge(delivery, self._handle(broker, delivery))
        finally:
            slots.release()

    async def _acknowledge(self, delivery: Delivery, handling: Awaitable[None]) -> None:
        """Acknowledge a delivery when it is handled; else it goes back to its queue."""
        try:
            try:
                await handling
            except errors.HarebellError as error:
                logger.warning("a task goes back to its queue: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                delivery.nack(requeue=True)
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("a task goes back to its queue: its result could not be kept")
                await asyncio.sleep(AGAIN_SECONDS)
                delivery.nack(requeue=True)
            else:
                delivery.ack()
        except errors.HarebellError as error:  # its channel or its connection was lost
            logger.warning("a task could not be acknowledged, and is delivered again: %s", error)

    async def _publish_again(self, broker: Broker, delivery: Delivery) -> None:
        try:
            record = read(delivery.body)
            attempt, waits, due = _numbers(delivery)
        except (errors.UndecodableBody, ValueError) as error:
            await self._unreadable(broker, delivery, error)
            return
        await broker.publish_again(record, attempt=attempt, due=due, waits=waits)
        self.counts["published again"] += 1

    async def _handle(self, broker: Broker, delivery: Delivery) -> None:
        try:
            record = read(delivery.body)
            attempt, waits, _ = _numbers(delivery)
            result = result_of(record)
            runner = self._runner_of(record)
        except (errors.UndecodableBody, UnknownTask, ValueError, TypeError, KeyError) as error:
            await self._unreadable(broker, delivery, error)
            return
        due = delay_of(record)
        if due > 0 and attempt == 1:  # the ladder of delays ends before it
            await broker.publish(record, delay=min(due, MAX_DELAY), waits=waits + 1)
            return
        if delivery.redelivered and (known := await self._known(runner, record["id"])) is not None:
            if known["status"] in FINISHED:
                return  # the process that ran it could not acknowledge it any more
            result = result_of({**record, **{name: known[name] for name in OF_ATTEMPTS}})  # one may have been killed
        record = await runner.run(result, attempt)
        if record["status"] == "READY":
            self.counts["tried again"] += 1
            await broker.publish(record, attempt=attempt + 1, delay=runner.options.delay(attempt))
        elif record["status"] == "FAILED":
            self.counts["failed"] += 1
            await broker.dead(message_of(record, self._options), record["errors"][-1][0])
        else:
            self.counts["succeeded"] += 1

    def _runner_of(self, record: dict[str, Any]) -> Runner:
        """What runs the tasks of the backend that a task names. UnknownTask.

        It is not always this worker's: backends with one prefix share queues, and tests change TASKS.
        """
        alias = record["backend"]
        try:
            backend = task_backends[alias]
        except ImproperlyConfigured as error:
            raise UnknownTask(f"{record['task']}: {error}") from error
        settings = getattr(backend, "settings", None)
        if not isinstance(settings, Options):
            raise UnknownTask(f"{record['task']}: TASKS[{alias!r}] is no harebell.django.TaskBackend")
        if settings not in self._runners:
            self._runners[settings] = Runner(backend, self._threads, self.worker_id)
        return self._runners[settings]

    async def _known(self, runner: Runner, id: str) -> dict[str, Any] | None:
        """What is kept of a task that was delivered before."""
        loop = asyncio.get_running_loop()
        known: dict[str, Any] | None = await loop.run_in_executor(self._threads, call, runner.results.get, [id])
        return known

    async def _unreadable(self, broker: Broker, delivery: Delivery, error: Exception) -> None:
        """A message that is no task of this program: it is set aside, and its result says why."""
        self.counts["unreadable"] += 1
        logger.error("a message in the queue of tasks cannot be run and is set aside: %s", error)
        await broker.dead(Message(delivery.body, properties=delivery.properties), str(error))
        try:
            record = read(delivery.body)
        except errors.UndecodableBody:
            return
        try:
            results = self._runner_of(record).results
        except (UnknownTask, TypeError):
            results = self._backend.results
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, call, results.save, [failed(record, error)])

    async def _relay(self) -> None:
        """Publish what other processes have left in the outbox, and delete old results, until the stop."""
        loop = asyncio.get_running_loop()
        clean = getattr(self._backend.results, "clean", None)
        while not self._stopping.is_set():
            try:
                if self._options.enqueue == "outbox":
                    await loop.run_in_executor(self._relay_thread, call, self._backend.relay_outbox)
                if clean is not None:
                    await loop.run_in_executor(self._relay_thread, call, clean)
            except Exception:
                logger.exception("the database cannot be looked at")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RELAY_SECONDS)


async def _lease_all(channel: Channel) -> None:
    """Ask Harebell for more time for all deliveries of a channel."""
    request = Message(b"", headers={"delivery_tag": 0, "multiple": True, "timeout": LEASE_MS})
    await channel.publish(request, "amq.system", "amq.lease")


def _numbers(delivery: Delivery) -> tuple[int, int, int]:
    """A task's attempt, how often it was found to be early, and when it is due, from the headers. ValueError."""
    attempt, waits, due = (int(str(delivery.headers.get(*pair))) for pair in (("attempt", 1), ("waits", 0), (DUE, 0)))
    return attempt, waits, due
