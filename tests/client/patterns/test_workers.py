"""A queue worked on by a handler; against both brokers."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message
from harebell.client.patterns import workers as workers_module
from harebell.client.patterns.workers import Workers
from tests.client.outages import bodies, next_of, ready
from tests.client.test_consumer import fill


class Broken:
    """A codec that fails."""

    def encode(self, value: object, /) -> tuple[bytes, str]:
        raise NotImplementedError

    def decode(self, delivery: Delivery, /) -> object:
        raise ZeroDivisionError


class Seen:
    """What handlers did, and a way to wait for it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._changed = asyncio.Event()

    def add(self, body: bytes) -> None:
        self.bodies.append(body)
        self._changed.set()

    async def count(self, count: int) -> list[bytes]:
        async with asyncio.timeout(60):
            while len(self.bodies) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.bodies


async def test_what_is_handled_is_acknowledged(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 100)
    seen, at_once = Seen(), 0

    async def handle(delivery: Delivery) -> None:
        nonlocal at_once
        at_once = max(at_once, workers.running)
        await asyncio.sleep(0)
        seen.add(delivery.body)

    async with connection.consume(queue, handle, workers=7) as workers:
        assert sorted(await seen.count(100), key=int) == [b"%d" % n for n in range(100)]
    assert workers.stopped
    assert 1 < at_once <= 7
    assert await channel.message_count(queue) == 0


async def test_one_worker_keeps_the_order_and_may_be_a_plain_function(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 50)
    seen = Seen()
    async with connection.consume(queue, lambda delivery: seen.add(delivery.body), workers=1):
        assert await seen.count(50) == [b"%d" % n for n in range(50)]


async def test_what_fails_is_rejected_and_nobody_else_is_harmed(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    await channel.queue_declare(f"{queue}.dlq", exclusive=True)
    work = f"{queue}.work"
    await channel.queue_declare(
        work, exclusive=False,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.dlq"},
    )  # fmt: skip
    await fill(channel, work, 6)
    seen, failures = Seen(), []
    requeued: list[Any] = []

    async def handle(delivery: Delivery) -> None:
        match delivery.body:
            case b"0":
                raise ValueError("zero")
            case b"1":
                raise harebell.Reject
            case b"2" if not requeued:
                requeued.append(delivery)
                raise harebell.Requeue
            case b"3":
                raise asyncio.CancelledError("its own")
            case b"4":
                delivery.ack()
                raise ValueError("after the ack")
        seen.add(delivery.body)

    async def failed(delivery: Delivery, error: Exception) -> None:
        failures.append((delivery.body, str(error)))
        raise RuntimeError("no better")

    async with connection.consume(work, handle, workers=1, on_error=failed):
        await seen.count(2)
        await ready(channel, f"{queue}.dlq", 3)
    assert sorted(seen.bodies) == [b"2", b"5"]
    assert sorted(await bodies(channel, f"{queue}.dlq")) == [b"0", b"1", b"3"]
    assert sorted(body for body, _ in failures) == [b"0", b"3", b"4"]
    assert "ValueError('zero')" in caplog.text
    assert "on_error failed" in caplog.text
    await channel.queue_delete(work)


async def test_a_handler_that_takes_too_long_fails(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 1)
    told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def handle(delivery: Delivery) -> None:
        await asyncio.Event().wait()

    async with connection.consume(
        queue, handle, handler_timeout=0.01, max_failures=None, on_error=lambda _, error: told.set_result(error)
    ):
        assert isinstance(await told, TimeoutError)
    assert await channel.message_count(queue) == 0


async def test_stop_lets_handlers_finish_and_gives_back_the_rest(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 20)
    seen, go = Seen(), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        await go.wait()

    workers = connection.consume(queue, handle, workers=3, prefetch=10)
    running = asyncio.ensure_future(workers.run())
    await seen.count(3)
    stopping = asyncio.ensure_future(workers.stop())
    await ready(channel, queue, 17)  # what nobody worked on is back while the handlers go on
    assert not stopping.done()
    go.set()
    await stopping
    await running
    assert len(seen.bodies) == 3
    assert await channel.message_count(queue) == 17
    await workers.stop()


async def test_after_the_grace_handlers_are_cancelled_and_their_messages_go_back(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 5)
    seen, cancelled = Seen(), []

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(delivery.body)

    async with connection.consume(queue, handle, workers=2) as workers:
        await seen.count(2)
        await workers.stop(grace=0)
        assert sorted(cancelled) == sorted(seen.bodies)
    await ready(channel, queue, 5)
    assert [(await anext_of(channel, queue)).redelivered for _ in range(2)] == [True, True]


async def anext_of(channel: Channel, queue: str) -> Delivery:
    delivery = await channel.get(queue)
    assert delivery is not None
    return delivery


async def test_who_is_cancelled_grants_no_grace(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 5)
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        await asyncio.Event().wait()

    running = asyncio.ensure_future(connection.consume(queue, handle, workers=2).run())
    await seen.count(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ready(channel, queue, 5)


async def test_an_orphan_is_told_and_comes_again(connection: Connection, other: Channel, queue: str) -> None:
    seen, orphans = Seen(), []
    go = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        if not delivery.redelivered:
            await go.wait()

    def orphaned(delivery: Delivery) -> None:
        orphans.append(delivery.body)
        raise RuntimeError("no better")

    async with connection.consume(queue, handle, workers=1, on_orphan=orphaned):
        await other.publish(b"m", "", queue)
        await seen.count(1)
        await connection.test().force_reconnect()
        go.set()
        await seen.count(2)
        await other.publish(b"n", "", queue)
        assert await seen.count(3) == [b"m", b"m", b"n"]
    assert orphans == [b"m"]
    await ready(other, queue, 0)


async def test_a_failure_of_an_orphan_moves_nothing(connection: Connection, other: Channel, queue: str) -> None:
    """The broker has it back already: publishing it to the dead-letter queue would double it."""
    seen, go = Seen(), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        if not delivery.redelivered:
            await go.wait()
            raise ValueError("after the outage")

    async with connection.consume(queue, handle, workers=1, dead_letter=f"{queue}.dead"):
        await other.publish(b"m", "", queue)
        await seen.count(1)
        await connection.test().force_reconnect()
        go.set()
        await seen.count(2)
    assert await other.queue_delete(f"{queue}.dead") == 0


async def test_a_deleted_queue_ends_it_unless_it_may_come_back(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    workers = connection.consume(name, lambda delivery: None)
    running = asyncio.ensure_future(workers.run())
    await consumers(channel, name)
    await channel.queue_delete(name)
    with pytest.raises(errors.ConsumerCancelled):
        await running
    assert workers.stopped


async def consumers(channel: Channel, queue: str) -> None:
    async with asyncio.timeout(60):
        while not (await channel.queue_declare(queue, passive=True)).consumer_count:
            pass


async def test_resubscribe(connection: Connection, other: Channel, name: str) -> None:
    seen = Seen()
    async with connection.channel() as channel:
        await channel.queue_declare(name)
    async with connection.consume(name, lambda delivery: seen.add(delivery.body), workers=4, resubscribe=True):
        await other.queue_delete(name)
        async with asyncio.timeout(60):
            while True:
                try:
                    await other.publish(b"m", "", name, mandatory=False)
                    await consumers(other, name)
                    break
                except errors.NotFound:
                    pass
        await other.publish(b"again", "", name)
        count = 1
        while b"again" not in await seen.count(count):
            count += 1
    await other.queue_delete(name)


@dataclasses.dataclass
class Order:
    id: int


async def test_a_codec_and_a_body_it_cannot_read(connection: Connection, channel: Channel, queue: str) -> None:
    seen: list[Order] = []
    done = asyncio.Event()

    async def handle(order: Order, delivery: Delivery) -> None:
        seen.append(order)
        if order.id == 2:
            done.set()

    orders = harebell.JSON(Order)
    async with connection.producer(codec=orders) as producer:
        await producer.publish(Order(1), queue)
        await producer.publish(Message(b"no json"), queue)
        await producer.publish(Order(2), queue)
    retry = harebell.Retry(dead_letter=f"{queue}.dead")
    async with connection.consume(queue, handle, workers=1, codec=orders, retry=retry):
        await done.wait()
    assert seen == [Order(1), Order(2)]
    letter = await anext_of(channel, f"{queue}.dead")
    assert letter.body == b"no json"
    assert "the body is no Order" in str(letter.headers["x-retry-error"])
    letter.reject(requeue=True)
    async with connection.consume(f"{queue}.dead", lambda value, delivery: None, codec=Broken(), dead_letter=queue):
        await ready(channel, queue, 1)
    for each in [f"{queue}.dead", *(f"{queue}.retry.{ms}" for ms in (1000, 10000, 60000))]:
        await channel.queue_delete(each)


@pytest.mark.parametrize("function", ["on_error", "setup", "cleanup"])
async def test_its_other_functions_may_end_it(
    connection: Connection, channel: Channel, queue: str, function: str
) -> None:
    await fill(channel, queue, 1)
    called = asyncio.Event()

    async def stop(*given: object) -> None:
        await workers.stop()
        called.set()

    async def handle(delivery: Delivery) -> None:
        raise KeyError("mine")

    options: Any = {function: stop}
    workers = connection.consume(queue, handle, workers=1, max_failures=None, grace=math.inf, **options)
    async with asyncio.timeout(60):
        running = asyncio.create_task(workers.run())
        if function == "cleanup":
            await ready(channel, queue, 0)
            await workers.stop()
        await called.wait()
        await running
    assert workers.stopped


async def test_a_handler_may_end_it(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 10)
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        if len(seen.bodies) == 3:
            await workers.stop()

    workers = connection.consume(queue, handle, workers=1)
    await workers.run()
    assert seen.bodies == [b"0", b"1", b"2"]
    assert await channel.message_count(queue) == 7
    with pytest.raises(errors.LocalProtocolError, match="has ended"):
        await workers.start()


async def test_a_stream_takes_nothing_back(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    await fill(channel, name, 3)
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        raise {b"0": ValueError, b"1": harebell.Reject, b"2": harebell.Requeue}[delivery.body]

    first: dict[str, Any] = {"x-stream-offset": "first"}
    async with connection.consume(name, handle, workers=1, arguments=first):
        assert await seen.count(3) == [b"0", b"1", b"2"]
    assert connection.test().reconnection_count == 1
    await channel.queue_delete(name)


async def test_bad_arguments(connection: Connection, queue: str, name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="workers is 0"):
        connection.consume(queue, print, workers=0)
    with pytest.raises(errors.InvalidArgument, match="prefetch is 3, and 4 workers"):
        connection.consume(queue, print, workers=4, prefetch=3)
    async with connection.channel() as channel:
        nameless = (await channel.queue_declare(exclusive=True)).name
        with pytest.raises(errors.InvalidArgument, match="its name is the broker's"):
            await connection.consume(nameless, print, retry=harebell.Retry()).run()
    workers = connection.consume(f"{name}.missing", print, dead_letter=f"{name}.dead")
    await workers.stop()  # never started
    with pytest.raises(errors.NotFound):
        await workers.start()
    assert workers.stopped
    async with connection.channel() as channel:
        await channel.queue_delete(f"{name}.dead")


async def test_a_handler_that_is_deaf_is_left_behind(
    connection: Connection,
    channel: Channel,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(workers_module, "LAST_WORDS", 0)
    await fill(channel, queue, 1)
    seen, go = Seen(), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    async with connection.consume(queue, handle, workers=1) as workers:
        assert await workers.start() is workers
        await seen.count(1)
        await workers.stop(grace=0)
        await ready(channel, queue, 1)
        go.set()
    assert "goes on although it was cancelled" in caplog.text


async def test_closing_the_connection_ends_it(broker_url: str, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 2)
    seen, go = Seen(), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        await go.wait()
        raise ValueError("too late")

    connection = await harebell.connect(broker_url)
    again: list[Delivery] = []
    workers = connection.consume(queue, handle, workers=2, dead_letter=f"{queue}.dead", on_orphan=again.append)
    running = asyncio.ensure_future(workers.run())
    await seen.count(2)
    await connection.close()
    go.set()
    await running  # the program itself has ended it
    assert len(again) == 2
    await ready(channel, queue, 2)
    await channel.queue_delete(f"{queue}.dead")


# -- a handler that is at fault ----------------------------------------------------------------------------------------


async def broken(delivery: Delivery) -> None:
    raise LookupError(delivery.body.decode())


@pytest.mark.parametrize("workers", [1, 16])
async def test_a_handler_that_fails_on_every_message_leaves_them_in_the_queue(
    connection: Connection, channel: Channel, queue: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(channel, queue, 100)
    events = connection.events()
    with pytest.raises(errors.HandlerFailed, match=r"failed \d+ times in a row, the last time with Lookup") as caught:
        async with connection.consume(queue, broken, workers=workers, prefetch=workers + 20):
            await asyncio.Event().wait()
    assert isinstance(caught.value.__cause__, LookupError)
    ended = await next_of(events, e.ConsumerEnded)
    assert (ended.queue, type(ended.error)) == (queue, errors.HandlerFailed)
    await ready(channel, queue, 100)
    assert "LookupError('0')" in caplog.text
    assert "ended: the handler of queue" in caplog.text
    assert "is dropped" not in caplog.text


async def test_what_cannot_be_held_back_is_dropped_and_the_log_says_so(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With one message at a time, the next one comes only once this one is settled."""
    await fill(channel, queue, 10)
    with pytest.raises(errors.HandlerFailed, match="failed 3 times in a row"):
        await connection.consume(queue, broken, workers=1, prefetch=1, max_failures=3).run()
    await ready(channel, queue, 8)
    assert caplog.text.count("is dropped, unless a policy") == 2


async def test_a_message_that_is_at_fault_is_dropped_once_the_handler_was_successful(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(channel, queue, 40)
    seen, failures = Seen(), 0

    async def handle(delivery: Delivery) -> None:
        nonlocal failures
        if int(delivery.body) % 4:
            failures += 1
            raise ValueError(delivery.body)
        seen.add(delivery.body)

    async with connection.consume(queue, handle, workers=1, max_failures=5):
        await seen.count(10)
        await seen.count(10)
    assert failures >= 27
    await ready(channel, queue, 40 - 10 - caplog.text.count("is dropped"))  # the last ones were undecided, and are kept
    assert caplog.text.count("is dropped") >= 27


@pytest.mark.parametrize("how", ["max_failures=None", "dead-letter exchange", "dead_letter"])
async def test_where_nothing_is_lost_or_it_is_asked_for_the_consumer_goes_on(
    connection: Connection, channel: Channel, queue: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    dead, work = f"{queue}.dead", f"{queue}.work"
    await channel.queue_declare(dead, durable=True)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    await channel.queue_declare(work, arguments=to_dead if how == "dead-letter exchange" else {})
    await fill(channel, work, 30)
    options: dict[str, dict[str, Any]] = {
        "max_failures=None": {"max_failures": None},
        "dead_letter": {"dead_letter": dead},
    }
    done = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        if delivery.body == b"29":
            done.set()
        raise ValueError

    async with connection.consume(work, handle, workers=1, **options.get(how, {})):
        await done.wait()
    await ready(channel, work, 0)
    await ready(channel, dead, 0 if how == "max_failures=None" else 30)
    assert caplog.text.count("is dropped") == (30 if how == "max_failures=None" else 0)
    await channel.queue_delete(work)
    await channel.queue_delete(dead)


async def test_a_codec_that_fails_on_every_message_ends_it_too(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 30)

    async def handle(value: Any, delivery: Delivery) -> None:
        raise AssertionError("nothing can be decoded")

    with pytest.raises(errors.HandlerFailed, match="the codec failed") as caught:
        await connection.consume(queue, handle, codec=Broken()).run()
    assert isinstance(caught.value.__cause__, errors.UndecodableBody)
    await ready(channel, queue, 30)


async def test_a_decision_of_the_handler_is_no_failure(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 30)
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        raise harebell.Reject

    async with connection.consume(queue, handle, max_failures=1):
        await seen.count(30)
    await ready(channel, queue, 0)


# -- the block ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_consumer_ends_the_block(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    events, reached = connection.events(), False
    with pytest.raises(errors.ConsumerCancelled):
        async with connection.consume(name, print):
            await other.queue_delete(name)
            await asyncio.Event().wait()
            reached = True
    assert not reached
    assert (await next_of(events, e.ConsumerEnded)).queue == name
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing of the cancellation is left


async def test_a_body_that_waits_for_the_end_is_told_there(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    async with connection.consume(name, print) as workers:
        deleting = asyncio.ensure_future(other.queue_delete(name))  # RabbitMQ may cancel before it answers
        with pytest.raises(errors.ConsumerCancelled):
            await workers.wait()
        await deleting  # the program has dealt with it, and goes on
    assert workers.stopped


async def test_an_error_of_the_body_wins(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise KeyError("its own") from None

    with pytest.raises(KeyError):
        async with connection.consume(name, print):
            deleting = asyncio.ensure_future(other.queue_delete(name))
            await body()
    await deleting
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_of_the_programs_stays_one(connection: Connection, other: Channel, name: str) -> None:
    """Also when the consumer ends in the same moment."""
    await other.queue_declare(name)
    inside, cancelled = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with connection.consume(name, print) as workers:
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:  # whichever of the two was first
                while not (workers.stopped and cancelled.is_set()):  # noqa: ASYNC110
                    await asyncio.sleep(0)

    task = asyncio.ensure_future(run())
    await inside.wait()
    await other.queue_delete(name)
    task.cancel()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_consumer_without_a_block_is_told_by_wait(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    workers = await connection.consume(name, print).start()
    events = connection.events()
    await other.queue_delete(name)
    assert isinstance((await next_of(events, e.ConsumerEnded)).error, errors.ConsumerCancelled)
    with pytest.raises(errors.ConsumerCancelled):
        await workers.wait()
    await workers.stop()
    with pytest.raises(errors.ConsumerCancelled):  # whoever asks
        await workers.wait()


async def test_a_block_that_is_left_by_another_task(connection: Connection, other: Channel, name: str) -> None:
    """As a fixture's may be."""
    await other.queue_declare(name)
    workers = connection.consume(name, print)
    await asyncio.ensure_future(workers.__aenter__())
    await other.queue_delete(name)
    async with asyncio.timeout(60):
        while not workers.stopped:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(errors.ConsumerCancelled):
        await workers.__aexit__(None, None, None)


# -- what comes before and after ---------------------------------------------------------------------------------------


async def test_setup_and_cleanup(connection: Connection, channel: Channel, name: str) -> None:
    seen, steps = Seen(), []

    async def setup(own: Channel) -> None:
        steps.append("setup")
        await own.queue_declare(name)
        await own.queue_bind(name, "amq.direct", name)

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)

    async def cleanup(own: Channel) -> None:
        steps.append(f"cleanup after {len(seen.bodies)}")
        await own.queue_delete(name)

    async with connection.consume(name, handle, setup=setup, cleanup=cleanup, resubscribe=True) as workers:
        await channel.publish(b"one", "amq.direct", name)
        await seen.count(1)
        events = connection.events()
        await channel.queue_delete(name)
        await next_of(events, e.Resubscribed)  # it was set up again
        await channel.publish(b"two", "amq.direct", name)
        await seen.count(2)
    assert steps == ["setup", "setup", "cleanup after 2"]
    await workers.stop()
    assert len(steps) == 3
    with pytest.raises(errors.NotFound):
        await channel.queue_inspect(name)


async def test_plain_functions_around_the_handlers(connection: Connection, channel: Channel, queue: str) -> None:
    seen, given = Seen(), []
    options: Any = {each: lambda *arguments, each=each: given.append(each) for each in ("setup", "on_error", "cleanup")}

    def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        raise KeyError("mine")

    async with connection.consume(queue, handle, max_failures=None, **options):
        await channel.publish(b"one", "", queue)
        await seen.count(1)
    assert given == ["setup", "on_error", "cleanup"]


async def test_a_setup_that_fails_fails_the_start(connection: Connection, queue: str) -> None:
    async def setup(channel: Channel) -> None:
        raise LookupError("no such schema")

    with pytest.raises(LookupError):
        await connection.consume(queue, print, setup=setup).start()


async def test_a_cleanup_runs_also_for_who_is_cancelled(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    cleaned, inside = [], asyncio.Event()

    async def cleanup(own: Channel) -> None:
        cleaned.append(await own.message_count(queue))
        raise LookupError("not clean")

    async def run() -> None:
        async with connection.consume(queue, print, cleanup=cleanup):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [0]
    assert "the cleanup of the consumer" in caplog.text
    with pytest.raises(LookupError):
        async with connection.consume(queue, print, cleanup=cleanup):
            pass


LEAKS: ContextVar[bytes] = ContextVar("LEAKS", default=b"")


class Plain:
    """A codec whose values are the bodies."""

    def encode(self, value: bytes, /) -> tuple[bytes, str]:
        return value, ""

    def decode(self, delivery: Delivery, /) -> bytes:
        return delivery.body


CONTEXT_WAYS: dict[str, Callable[[Connection, str, Callable[[bytes], bytes]], Workers]] = {
    "a coroutine function": lambda c, q, see: c.consume(q, waiting(see), workers=1),
    "one that waits for nothing": lambda c, q, see: c.consume(q, hasty(see), workers=1),
    "a plain function": lambda c, q, see: c.consume(q, lambda delivery: none(see(delivery.body)), workers=1),
    "a plain function that gives a task": lambda c, q, see: c.consume(
        q, lambda delivery: asyncio.ensure_future(waiting(see)(delivery)), workers=1
    ),
    "a codec": lambda c, q, see: c.consume(q, lambda value, delivery: none(see(value)), codec=Plain(), workers=1),
    "a time limit": lambda c, q, see: c.consume(q, waiting(see), handler_timeout=60, workers=1),
    "on_error": lambda c, q, see: c.consume(
        q, raising, on_error=lambda delivery, error: see(delivery.body), dead_letter=f"{q}.dead", workers=1
    ),
    "batches": lambda c, q, see: c.consume(q, lambda batch: none(see(batch[0].body)), batch=1, workers=1),
    "parts of a batch": lambda c, q, see: c.consume(q, in_parts(see), batch=3, within=600, workers=1),
    "serve": lambda c, q, see: c.serve(q, lambda delivery: see(delivery.body), workers=1),
}


def none(given: object) -> None:
    """Returns nothing, as a handler."""


def raising(delivery: Delivery) -> None:
    raise LookupError


def waiting(see: Callable[[bytes], bytes]) -> Callable[[Delivery], Coroutine[Any, Any, None]]:
    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        see(delivery.body)
        await asyncio.sleep(0)

    return handle


def hasty(see: Callable[[bytes], bytes]) -> Callable[[Delivery], Coroutine[Any, Any, None]]:
    async def handle(delivery: Delivery) -> None:
        see(delivery.body)

    return handle


def in_parts(see: Callable[[bytes], bytes]) -> Callable[[list[Delivery]], None]:
    def handle(batch: list[Delivery]) -> None:
        if len(batch) > 1:
            LEAKS.set(b"the batch")
            raise LookupError
        see(batch[0].body)

    return handle


@pytest.mark.parametrize("way", CONTEXT_WAYS)
async def test_each_message_has_a_context_of_its_own(
    connection: Connection, channel: Channel, queue: str, way: str
) -> None:
    await fill(channel, queue, 3)
    seen = Seen()
    contexts: list[tuple[bytes, bytes]] = []

    def see(body: bytes) -> bytes:
        contexts.append((LEAKS.get(), body))
        LEAKS.set(body)
        seen.add(body)
        return body

    token = LEAKS.set(b"the start")
    workers = await CONTEXT_WAYS[way](connection, queue, see).start()
    LEAKS.reset(token)
    await seen.count(3)
    await workers.stop()
    assert contexts == [(b"the start", body) for body in (b"0", b"1", b"2")]
    if way == "on_error":
        await channel.queue_delete(f"{queue}.dead")
