"""A queue worked on by a handler; against both brokers."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message
from harebell.client.patterns import workers as workers_module
from tests.client.outages import bodies, ready
from tests.client.test_consumer import fill


class Seen:
    """What handlers did, and a way to wait for it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._changed = asyncio.Event()

    def add(self, body: bytes) -> None:
        self.bodies.append(body)
        self._changed.set()

    async def count(self, count: int) -> list[bytes]:
        async with asyncio.timeout(20):
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
        queue, handle, handler_timeout=0.01, on_error=lambda _, error: told.set_result(error)
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
    async with asyncio.timeout(10):
        while not (await channel.queue_declare(queue, passive=True)).consumer_count:
            pass


async def test_resubscribe(connection: Connection, other: Channel, name: str) -> None:
    seen = Seen()
    async with connection.channel() as channel:
        await channel.queue_declare(name)
    async with connection.consume(name, lambda delivery: seen.add(delivery.body), workers=4, resubscribe=True):
        await other.queue_delete(name)
        async with asyncio.timeout(10):
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

    class Broken:
        def encode(self, value: object, /) -> tuple[bytes, str]:
            raise NotImplementedError

        def decode(self, delivery: Delivery, /) -> object:
            raise ZeroDivisionError

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
    assert "the body is no JSON" in str(letter.headers["x-retry-error"])
    letter.reject(requeue=True)
    async with connection.consume(f"{queue}.dead", lambda value, delivery: None, codec=Broken(), dead_letter=queue):
        await ready(channel, queue, 1)
    for each in [f"{queue}.dead", *(f"{queue}.retry.{ms}" for ms in (1000, 10000, 60000))]:
        await channel.queue_delete(each)


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
    workers = connection.consume(queue, handle, workers=2, dead_letter=f"{queue}.dead")
    running = asyncio.ensure_future(workers.run())
    await seen.count(2)
    await connection.close()
    go.set()
    with pytest.raises(errors.ChannelClosed):
        await running
    await ready(channel, queue, 2)
    await channel.queue_delete(f"{queue}.dead")
