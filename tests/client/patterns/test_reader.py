"""The iterator that owns its channel; against both brokers."""

from __future__ import annotations

import asyncio

import pytest

from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from tests.client.outages import next_of, ready
from tests.client.test_consumer import fill


async def test_iterate_and_leave(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 20)
    seen = []
    async for delivery in connection.deliveries(queue, prefetch=5):
        async with delivery.process():
            seen.append(delivery.body)
        if len(seen) == 15:
            break
    assert seen == [b"%d" % n for n in range(15)]
    await ready(channel, queue, 5)
    await no_consumers(channel, queue)


async def no_consumers(channel: Channel, queue: str) -> None:
    async with asyncio.timeout(60):
        while (await channel.queue_declare(queue, passive=True)).consumer_count:
            pass


async def test_a_block_gives_back_what_was_not_settled(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 5)
    async with connection.deliveries(queue) as reader:
        await anext(reader)
        (await anext(reader)).ack()
    await ready(channel, queue, 4)
    assert reader.channel.is_closed
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_cancel_leaves_the_rest_to_be_settled(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 5)
    async with connection.deliveries(queue) as reader:
        delivery = await anext(reader)
        await reader.cancel()
        await ready(channel, queue, 4)
        delivery.ack()
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
    await ready(channel, queue, 4)


async def test_it_outlasts_an_outage(connection: Connection, other: Channel, queue: str) -> None:
    async with connection.deliveries(queue) as reader:
        await connection.test().force_reconnect()
        await other.publish(b"m", "", queue)
        async with asyncio.timeout(60):
            async with (await anext(reader)).process() as delivery:
                assert delivery.body == b"m"


async def test_a_deleted_queue_ends_it(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name)
    async with connection.deliveries(name) as reader:
        await channel.queue_delete(name)
        with pytest.raises(errors.ConsumerCancelled, match="declare it and consume again"):
            async with asyncio.timeout(60):
                await anext(reader)


async def test_or_it_declares_the_queue_again(connection: Connection, other: Channel, name: str) -> None:
    async with connection.channel() as channel:
        await channel.queue_declare(name, durable=True)
        await channel.queue_bind(name, "amq.direct", name)
    async with connection.deliveries(name, resubscribe=True) as reader:
        for n in range(2):
            await other.queue_delete(name)  # by somebody else: this connection does not know
            waiting = asyncio.ensure_future(anext(reader))
            await consumed(other, name)
            await other.publish(b"%d" % n, "amq.direct", name)
            async with asyncio.timeout(60):
                delivery = await waiting
            assert delivery.body == b"%d" % n
            delivery.ack()
    await other.queue_delete(name)


async def consumed(channel: Channel, queue: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await channel.queue_declare(queue, passive=True)).consumer_count:
                    return
            except errors.NotFound:
                pass


async def test_or_it_waits_for_somebody_to_declare_it(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    async with connection.deliveries(name, resubscribe=True) as reader:
        events = connection.events()
        await other.queue_delete(name)
        waiting = asyncio.ensure_future(anext(reader))
        async with asyncio.timeout(60):
            async for event in events:
                if isinstance(event, e.ConsumerEnded):
                    assert event.resubscribing
                    assert isinstance(event.error, errors.ConsumerCancelled)
                    break
        await other.queue_declare(name)
        await other.publish(b"m", "", name)
        async with asyncio.timeout(60):
            (await waiting).ack()
        assert (await next_of(events, e.Resubscribed)).queue == name
        assert reader.channel.test().reconnection_count == 1  # no refusal has cost the channel
        # stopped while it waits for the queue
        await other.queue_delete(name)
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        await reader.cancel()
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(60):
                await waiting


async def test_who_is_cancelled_waits_for_no_network(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 3)

    async def reading() -> None:
        async with connection.deliveries(queue) as reader:
            await anext(reader)
            inside.set()
            await asyncio.Event().wait()

    inside = asyncio.Event()
    task = asyncio.ensure_future(reading())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ready(channel, queue, 3)


async def test_bad_arguments(connection: Connection, name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="prefetch is -1"):
        connection.deliveries(name, prefetch=-1)
    reader = connection.deliveries(name)
    with pytest.raises(errors.LocalProtocolError, match="has not begun"):
        _ = reader.channel
    with pytest.raises(errors.NotFound):
        await reader.start()
    await reader.close()
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_closed_while_it_begins(connection: Connection, channel: Channel, queue: str) -> None:
    reader = connection.deliveries(queue)
    starting = asyncio.ensure_future(reader.start())
    await asyncio.sleep(0)
    await reader.close()
    await starting
    assert reader.channel.is_closed
    await no_consumers(channel, queue)


async def test_batches_over_the_loss_of_the_queue(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    await fill(other, name, 5)
    async with connection.deliveries(name, resubscribe=True) as reader:
        batch = await reader.receive(5, within=60)
        batch[-1].ack(multiple=True)
        receiving = asyncio.ensure_future(reader.receive(5, within=0.01))
        events = connection.events()
        await other.queue_delete(name)
        await next_of(events, e.ConsumerEnded)
        await other.queue_declare(name)
        await fill(other, name, 1)
        async with asyncio.timeout(60):
            assert [delivery.body for delivery in await receiving] == [b"0"]
    assert await reader.receive() == []
    await other.queue_delete(name)


async def test_batches_end_with_the_reason(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name)
    reader = connection.deliveries(name)
    receiving = asyncio.ensure_future(reader.receive())
    async with asyncio.timeout(60):
        while not (await other.queue_declare(name, passive=True)).consumer_count:
            pass
    await other.queue_delete(name)
    with pytest.raises(errors.ConsumerCancelled):
        await receiving
    await reader.close()
