"""Every call is cancelled at every point where it waits, while it waits and as the answer comes; on both brokers.

Afterwards what it was called on is usable, or closed; nothing is lost, nothing is taken twice, and nothing is left
behind: no task, no channel, no consumer.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Publication
from tests.client.outages import FAST, eventually
from tests.client.stepping import Moment, Stepped, cancelled_at

MOST = 60  # suspensions of one call; more means that it never ends

pytestmark = pytest.mark.parametrize("moment", ["waiting", "answered"])


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    yield
    gc.collect()  # a transport that nobody closed complains
    assert asyncio.all_tasks() <= {asyncio.current_task()}


async def at_each(
    moment: Moment, program: Callable[[], Coroutine[object, object, object]], check: Callable[[], Awaitable[object]]
) -> None:
    """Cancel the program at its first suspension, its second, ... until it gets through; check after each."""
    for at in range(1, MOST):
        cancelled = await cancelled_at(program(), at, moment)
        async with asyncio.timeout(60):
            await check()
        if not cancelled:
            assert at > 1, "it never waited"
            return
    raise AssertionError(f"still cancelled at suspension {MOST}")


async def ready(channel: Channel, queue: str, count: int) -> None:
    """Until so many are ready, and nobody consumes."""

    async def holds() -> bool:
        info = await channel.queue_declare(queue, passive=True)
        return (info.message_count, info.consumer_count) == (count, 0)

    await eventually(holds)


async def test_connect(broker_url: str, moment: Moment) -> None:
    async def program() -> None:
        connection = await harebell.connect(broker_url, timeout=60, recovery=FAST)
        connection.recovery.say_goodbye()
        await connection.wait_closed()

    async def check() -> None:
        async with harebell.connect(broker_url, timeout=60):
            pass

    await at_each(moment, program, check)


async def test_the_whole_of_a_program(broker_url: str, moment: Moment, name: str) -> None:
    """As programs are: nested `async with`, each left by the cancellation."""
    runs = itertools.count()

    async def program() -> None:
        queue = f"{name}.{next(runs)}"  # a broker may delete that of a lost connection later
        async with harebell.connect(broker_url, timeout=60, recovery=FAST) as connection:
            async with connection.channel() as channel:
                await channel.queue_declare(queue, exclusive=True)
                await channel.confirm_select()
                await channel.publish(b"m", "", queue)
                async with channel.consume(queue) as consumer:
                    (await anext(consumer)).ack()

    async def check() -> None:
        pass

    await at_each(moment, program, check)


async def test_channel(connection: Connection, moment: Moment) -> None:
    async def program() -> None:
        channel = await connection.channel()
        channel.recovery.say_goodbye()

    async def check() -> None:
        async with connection.channel() as channel:
            await channel.exchange_declare("amq.direct", passive=True)
        assert not connection.recovery.channels
        assert not connection.recovery.availability.transport.channels

    await at_each(moment, program, check)


async def test_declare(channel: Channel, moment: Moment, name: str) -> None:
    async def program() -> None:
        await channel.queue_declare(name, exclusive=True)
        await channel.queue_bind(name, "amq.direct", name)

    async def check() -> None:
        assert (await channel.queue_declare(name, exclusive=True)).name == name

    await at_each(moment, program, check)


async def test_publish(channel: Channel, moment: Moment, queue: str) -> None:
    published = 0

    async def program() -> None:
        nonlocal published
        await channel.publish(b"m", "", queue)
        published += 1

    async def check() -> None:
        confirmation = await channel.publish(b"next", "", queue)
        assert confirmation is not None
        found = 0
        while (delivery := await channel.get(queue, no_ack=True)) is not None:
            found += delivery.body == b"m"
        assert published <= found <= 1
        assert not channel.core.publishes.waiters

    await channel.confirm_select()
    await at_each(moment, program, check)


async def test_publish_many(channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        await channel.publish_many([Publication(b"m", "", queue)] * 20, window=4)

    async def check() -> None:
        before = channel.core.publishes.last_tag
        confirmation = await channel.publish(b"next", "", queue)
        assert confirmation is not None
        assert confirmation.publish_tag == before + 1
        assert await channel.queue_purge(queue) <= 21

    await channel.confirm_select()
    await at_each(moment, program, check)


async def test_consume(channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        async with channel.consume(queue, prefetch=2) as consumer:
            delivery = await anext(consumer)
            delivery.nack()

    async def check() -> None:
        await ready(channel, queue, 3)  # none is lost, none is kept
        assert not channel.subscriptions.active
        assert channel.test().reconnection_count == 1

    await channel.confirm_select()
    await channel.publish_many([Publication(b"m", "", queue)] * 3)
    await at_each(moment, program, check)


async def test_an_iterator_that_waits(channel: Channel, moment: Moment, queue: str) -> None:
    """The wait for the next delivery is cancelled, as it begins and as one comes: the next in line takes that one."""
    await channel.confirm_select()
    async with channel.consume(queue) as consumer:

        async def program() -> None:
            task = asyncio.ensure_future(channel.publish(b"m", "", queue))
            try:
                (await anext(consumer)).ack()
            finally:
                task.cancel()

        async def check() -> None:
            await channel.publish(b"last", "", queue)
            async for delivery in consumer:
                delivery.ack()
                if delivery.body == b"last":
                    break
            await channel.queue_declare(queue, passive=True)

        await at_each(moment, program, check)


async def test_get(channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        delivery = await channel.get(queue)
        assert delivery is not None
        delivery.nack()

    await channel.confirm_select()
    await channel.publish(b"m", "", queue)
    await at_each(moment, program, lambda: ready(channel, queue, 1))


async def test_transactions(channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        await channel.publish(b"m", "", queue)
        await channel.tx_commit()

    async def check() -> None:
        await channel.tx_rollback()
        assert await channel.queue_purge(queue) <= 1

    await channel.tx_select()
    await at_each(moment, program, check)


async def test_closing_a_channel(connection: Connection, moment: Moment) -> None:
    opened: list[Channel] = []

    async def check() -> None:
        assert all(channel.is_closed for channel in opened)
        opened[:] = [await connection.channel()]
        assert list(connection.recovery.channels) == [channel.recovery for channel in opened]

    await check()
    await at_each(moment, lambda: opened[0].close(), check)


async def test_closing_a_connection(broker_url: str, moment: Moment) -> None:
    opened: list[Connection] = []

    async def check() -> None:
        for connection in opened:
            assert connection.is_closed
            assert isinstance(await connection.wait_closed(), errors.ChannelClosed)
        opened[:] = [await harebell.connect(broker_url, timeout=60, recovery=FAST)]
        await opened[0].channel()

    await check()
    await at_each(moment, lambda: opened[0].close(), check)
    await opened[0].close()


# -- what stands above the channels: each leaves no channel behind -----------------------------------------------------


async def left(connection: Connection, channel: Channel) -> None:
    """Until the broker has answered the goodbyes; then there is this channel alone."""

    async def alone() -> bool:
        await channel.exchange_declare("amq.direct", passive=True)
        recovery = connection.recovery
        return list(recovery.channels) == [channel.recovery] and len(recovery.availability.transport.channels) == 1

    await eventually(alone)
    assert not connection.recovery.tasks


async def test_a_producer(connection: Connection, channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        async with connection.producer(window=2) as producer:
            await producer.publish(b"m", queue)
            await producer.publish_many([Publication(b"m", "", queue)] * 5)
            for _ in range(3):
                await producer.publish_soon(b"m", queue)

    async def check() -> None:
        await left(connection, channel)
        assert await channel.queue_purge(queue) <= 9

    await at_each(moment, program, check)


async def test_workers(connection: Connection, channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        handled = asyncio.Event()

        async def handle(delivery: harebell.Delivery) -> None:
            handled.set()
            raise harebell.Requeue

        async with connection.consume(queue, handle, workers=2, prefetch=3):
            await handled.wait()

    async def check() -> None:
        await left(connection, channel)
        await ready(channel, queue, 5)

    await channel.confirm_select()
    await channel.publish_many([Publication(b"m", "", queue)] * 5)
    await at_each(moment, program, check)


async def test_a_remote_call(connection: Connection, channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        async with connection.rpc(timeout=60) as rpc:
            assert (await rpc.call(b"hello", queue)).body == b"HELLO"

    async with connection.serve(queue, lambda delivery: delivery.body.upper()):
        opened = set(connection.recovery.channels)

        async def check() -> None:
            async def alone() -> bool:
                await channel.exchange_declare("amq.direct", passive=True)
                return set(connection.recovery.channels) == opened

            await eventually(alone)
            await program()  # the server is well

        await at_each(moment, program, check)


async def test_a_pool(connection: Connection, channel: Channel, moment: Moment, queue: str) -> None:
    async def program() -> None:
        async with connection.channel_pool(2) as pool:
            async with pool.acquire() as one, pool.acquire() as two:
                await one.publish(b"m", "", queue)
                await two.queue_declare(queue, passive=True)

    await at_each(moment, program, lambda: left(connection, channel))


@pytest.mark.parametrize("what", ["close", "cut", "cancel the caller"])
async def test_recovery(broker_url: str, moment: Moment, name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery itself is met wherever it waits: by a close, by another loss, by the caller who waits for it."""
    for at in range(1, MOST):
        # Another name: RabbitMQ may still be busy with the exclusive queue of the connection before.
        if await recovery_met_at(at, moment, what, broker_url, f"{name}.{at}", monkeypatch) < at:
            break
    else:
        raise AssertionError(f"recovery waits more than {MOST} times")
    assert at > 8, "it was met nowhere in dialling, topology and channels"


async def recovery_met_at(
    at: int, moment: Moment, what: str, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> int:
    """One recovery that is met at this suspension; how many it had, at least."""
    async with harebell.connect(url, timeout=60, recovery=FAST) as connection:
        channel = await connection.channel()
        await channel.queue_declare(name, exclusive=True)
        await channel.queue_bind(name, "amq.direct", name)
        await channel.confirm_select()
        consumer = channel.consume(name, prefetch=3)
        await consumer.start()
        closing: list[asyncio.Future[None]] = []
        stepped: list[Stepped] = []
        dialled: list[asyncio.BaseTransport] = []
        spawn, create = connection.recovery.spawn, connection.recovery.availability.loop.create_connection

        def meet() -> None:
            if what == "close":
                closing.append(asyncio.ensure_future(connection.close()))
            elif what == "cut":
                for transport in dialled:
                    transport.abort()  # type: ignore[attr-defined]
            else:
                parked.cancel()

        async def dial(*arguments: Any, **options: Any) -> object:
            transport, protocol = await create(*arguments, **options)
            dialled.append(transport)
            return transport, protocol

        async def run(work: Stepped) -> None:
            await work

        def step(work: Coroutine[object, object, None]) -> None:
            if stepped:
                spawn(work)
            else:
                stepped.append(Stepped(work, at, moment, meet))
                spawn(run(stepped[0]))

        with monkeypatch.context() as patch:
            patch.setattr(connection.recovery, "spawn", step)
            patch.setattr(connection.recovery.availability.loop, "create_connection", dial)
            parked = asyncio.ensure_future(channel.queue_declare(name, passive=True))
            await asyncio.sleep(0)
            connection.test().disconnect_transport()
            async with asyncio.timeout(60):
                (result,) = await asyncio.gather(parked, return_exceptions=True)
            await asyncio.gather(*closing)
        if closing:
            assert connection.is_closed
            assert isinstance(result, errors.ChannelClosed | harebell.QueueInfo), result
            assert not connection.recovery.tasks
        else:
            async with asyncio.timeout(60):
                assert (await channel.queue_declare(name, passive=True)).consumer_count == 1
                assert await channel.publish(b"m", "amq.direct", name, mandatory=True)
                (await anext(consumer)).ack()
    assert connection.is_closed
    return stepped[0].suspended
