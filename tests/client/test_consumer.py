"""The consumer iterator, against both brokers."""

from __future__ import annotations

import asyncio

import pytest

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.consumer import FAIR
from harebell.client.messages import Delivery, Publication
from tests.client.outages import ready


async def fill(channel: Channel, queue: str, count: int) -> None:
    await channel.confirm_select()
    await channel.publish_many([Publication(str(n).encode(), "", queue) for n in range(count)])


async def test_iterate_and_acknowledge(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 3000)
    seen = []
    async for delivery in channel.consume(queue, prefetch=100):
        seen.append(delivery.body)
        delivery.ack()
        if len(seen) == 3000:
            break
    assert seen == [str(n).encode() for n in range(3000)]
    await ready(channel, queue, 0)


async def test_leaving_the_loop_ends_the_subscription(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 50)
    async for delivery in channel.consume(queue, prefetch=20):
        delivery.ack()
        break
    await ready(channel, queue, 49)
    assert (await channel.queue_declare(queue, passive=True)).consumer_count == 0


async def test_leaving_the_block_gives_back_the_rest(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 50)
    async with channel.consume(queue, prefetch=20) as consumer:
        assert consumer.tag
        (await anext(consumer)).ack()
    await ready(channel, queue, 49)
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)


@pytest.mark.parametrize("no_ack", [False, True])
async def test_a_cancel_may_leave_what_came_to_be_taken(channel: Channel, queue: str, no_ack: bool) -> None:
    await fill(channel, queue, 50)
    consumer = channel.consume(queue, prefetch=20, no_ack=no_ack)
    first = await anext(consumer)
    await consumer.cancel(requeue=False)
    left = [delivery async for delivery in consumer]
    assert [d.body for d in (first, *left)] == [str(n).encode() for n in range(1 + len(left))]
    await ready(channel, queue, 49 - len(left))
    if not no_ack:
        assert 1 + len(left) <= 20
        left[-1].ack(multiple=True)
    assert (await channel.queue_declare(queue, passive=True)).consumer_count == 0


async def test_a_second_cancel_gives_back_what_the_first_left(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 50)
    async with channel.consume(queue, prefetch=20) as consumer:
        (await anext(consumer)).ack()
        await channel.cancel(consumer.tag, requeue=False)
        (await anext(consumer)).ack()
        assert consumer.buffered
    assert not consumer.buffered
    await ready(channel, queue, 48)
    consumer = channel.consume(queue, prefetch=20)
    (await anext(consumer)).ack()
    await consumer.cancel(requeue=False)
    del consumer
    await ready(channel, queue, 47)


async def test_what_a_cancel_left_may_be_lost_with_the_channel(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 5)
    consumer = channel.consume(queue)
    first = await anext(consumer)
    await consumer.cancel(requeue=False)
    await connection.test().force_reconnect()
    await ready(channel, queue, 5)
    with pytest.raises(errors.AcknowledgeOrphans):
        first.ack()
    await consumer.cancel()  # gives back what came on this channel alone
    assert not consumer.buffered
    assert channel.is_open


async def test_a_cancelled_iteration_gives_back_the_rest(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 5)
    handed = asyncio.Event()

    async def work() -> None:
        async with channel.consume(queue) as consumer:
            async for _ in consumer:
                handed.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await ready(channel, queue, 0)
    await handed.wait()  # RabbitMQ may answer before it delivers
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while (await channel.queue_declare(queue, passive=True)).consumer_count:
            pass
    await ready(channel, queue, 4)  # the one that was handed out is the program's to settle
    assert channel.is_open


async def test_a_wait_that_is_cancelled_loses_nothing(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    async with channel.consume(queue) as consumer:
        for n in range(20):
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
            published = asyncio.ensure_future(channel.publish(str(n).encode(), "", queue))
            waiting.cancel()
            await published
            with pytest.raises(asyncio.CancelledError):
                await waiting
            delivery = await anext(consumer)
            assert delivery.body == str(n).encode()
            delivery.ack()


async def test_several_tasks_share_a_consumer(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    seen: list[bytes] = []
    done = asyncio.Event()

    async with channel.consume(queue, prefetch=10) as consumer:

        async def work() -> None:
            async for delivery in consumer:
                seen.append(delivery.body)
                delivery.ack()
                await asyncio.sleep(0)
                if len(seen) == 300:
                    done.set()

        workers = [asyncio.create_task(work()) for _ in range(5)]
        await channel.publish_many([Publication(str(n).encode(), "", queue) for n in range(300)])
        async with asyncio.timeout(60):
            await done.wait()
    await asyncio.gather(*workers)  # leaving the block has ended their iterations
    assert sorted(seen, key=int) == [str(n).encode() for n in range(300)]


async def test_a_deleted_queue_ends_the_iteration_with_the_reason(
    connection: Connection, channel: Channel, queue: str
) -> None:
    async with channel.consume(queue) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        async with connection.channel() as other:
            await other.queue_delete(queue)
        with pytest.raises(errors.ConsumerCancelled, match=queue):
            await waiting
        with pytest.raises(errors.ConsumerCancelled):
            await anext(consumer)
    assert channel.is_open


async def test_a_missing_queue(channel: Channel, name: str) -> None:
    with pytest.raises(errors.NotFound, match=name):
        async for _ in channel.consume(name):
            raise AssertionError("nothing can come")
    assert not channel.is_open


async def test_closing_the_channel_ends_the_iteration_quietly(channel: Channel, queue: str) -> None:
    async with channel.consume(queue) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await channel.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


@pytest.mark.parametrize("how", ["ack", "nack", "all"])
async def test_multiple_leaves_out_what_lies_in_a_buffer(channel: Channel, queue: str, how: str) -> None:
    second = f"{queue}.2"
    await channel.queue_declare(second)
    await fill(channel, queue, 50)
    await fill(channel, second, 50)
    async with channel.consume(queue) as one, channel.consume(second) as other:
        seen = [await anext(one), *[await anext(other) for _ in range(5)]]
        async with asyncio.timeout(60):
            while one.buffered + other.buffered < 94:
                await channel.queue_inspect(queue)
        if how == "all":
            channel.ack(0, multiple=True)
        elif how == "ack":
            seen[-1].ack(multiple=True)
        else:
            seen[-1].nack(multiple=True, requeue=False)
        for delivery in seen:
            with pytest.raises(errors.LocalProtocolError, match="settled before"):
                delivery.ack()
    assert channel.test().reconnection_count == 1
    await ready(channel, queue, 49)
    await ready(channel, second, 45)
    await channel.queue_delete(second)


async def test_no_ack_needs_no_acknowledgement(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 3)
    deliveries = [await channel.get(queue, no_ack=True)]
    async with channel.consume(queue, no_ack=True) as consumer:
        deliveries += [await anext(consumer), await anext(consumer)]
    for delivery in deliveries:
        assert delivery is not None
        async with delivery.process():
            pass
        for settle in (delivery.ack, delivery.nack, delivery.reject):
            with pytest.raises(errors.LocalProtocolError, match="came with no_ack"):
                settle()
    assert channel.test().reconnection_count == 1


async def test_a_tag_of_ones_own(channel: Channel, queue: str) -> None:
    async with channel.consume(queue, consumer_tag="mine") as consumer:
        assert consumer.tag == "mine"
        with pytest.raises(errors.InvalidArgument, match="mine"):
            await anext(channel.consume(queue, consumer_tag="mine"))


async def test_an_exclusive_consumer_keeps_others_out(connection: Connection, channel: Channel, queue: str) -> None:
    async with channel.consume(queue, exclusive=True), connection.channel() as other:
        with pytest.raises(errors.AccessRefused, match=queue):
            await anext(other.consume(queue))


async def test_a_stream_from_its_first_message(channel: Channel, name: str) -> None:
    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    try:
        await fill(channel, name, 20)
        for _ in range(2):  # reading destroys nothing
            seen = []
            async for delivery in channel.consume(name, prefetch=5, arguments={"x-stream-offset": "first"}):
                seen.append((delivery.body, delivery.headers["x-stream-offset"]))
                delivery.ack()
                if len(seen) == 20:
                    break
            assert seen == [(str(n).encode(), n) for n in range(20)]
    finally:
        await channel.queue_delete(name)


async def test_leaving_a_stream_early_costs_nobody_the_connection(channel: Channel, name: str) -> None:
    # A stream queue answers basic.nack with 540, which ends the connection.
    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    try:
        await fill(channel, name, 20)
        for _ in range(2):
            async with channel.consume(name, prefetch=20, arguments={"x-stream-offset": "first"}) as consumer:
                assert (await anext(consumer)).stream_offset == 0
                async with asyncio.timeout(60):
                    while consumer.buffered < 19:
                        await channel.queue_declare(name, passive=True)
            assert channel.is_open
    finally:
        await channel.queue_delete(name)


async def test_each_delivery_to_a_function(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 1000)
    seen, done = [], asyncio.Event()

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.ack()
        if len(seen) == 1000:
            done.set()

    consuming = asyncio.ensure_future(channel.consume(queue, prefetch=700).each(handle))
    await done.wait()
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert seen == [str(n).encode() for n in range(1000)]
    await ready(channel, queue, 0)
    assert (await channel.queue_declare(queue, passive=True)).consumer_count == 0


async def test_a_function_that_fails_ends_the_subscription(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 10)
    seen: list[Delivery] = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 3:
            raise LookupError("no third")
        delivery.ack()

    with pytest.raises(LookupError, match="no third"):
        await channel.consume(queue, prefetch=8).each(handle)
    await ready(channel, queue, 7)  # the third is the program's to settle
    seen[2].nack()
    await ready(channel, queue, 8)


async def test_a_function_does_not_keep_the_loop(channel: Channel, queue: str) -> None:
    """Acknowledgements go out, and other tasks run, while deliveries do not run dry."""
    await fill(channel, queue, 2000)
    turns = seen = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def handle(delivery: Delivery) -> None:
        nonlocal seen
        seen += 1
        if seen == 2000:
            raise LookupError("that was the last")

    counting = asyncio.ensure_future(count_turns())
    consumer = channel.consume(queue)
    await consumer.start()
    while consumer.buffered < 2000:
        await channel.queue_declare(queue, passive=True)
    turns = 0
    with pytest.raises(LookupError):
        await consumer.each(handle)
    assert turns >= 2000 // FAIR
    counting.cancel()


async def test_a_function_on_a_queue_that_goes_away(connection: Connection, channel: Channel, queue: str) -> None:
    consumer = channel.consume(queue)
    await consumer.start()
    consuming = asyncio.ensure_future(consumer.each(Delivery.ack))
    async with connection.channel() as other:
        await other.queue_delete(queue)
    with pytest.raises(errors.ConsumerCancelled, match=queue):
        await consuming


async def test_cancelling_ends_the_function_quietly(channel: Channel, queue: str) -> None:
    consumer = channel.consume(queue)
    await consumer.start()
    consuming = asyncio.ensure_future(consumer.each(Delivery.ack))
    await asyncio.sleep(0)
    await consumer.cancel()
    await consuming


# -- batches -----------------------------------------------------------------------------------------------------------


async def test_batches(channel: Channel, queue: str) -> None:
    await fill(channel, queue, 250)
    async with channel.consume(queue, prefetch=120) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 250:
            batch = await consumer.receive(100, within=0.2)
            sizes.append(len(batch))
            batch[-1].ack(multiple=True)
        assert sizes[0] == 100
        assert max(sizes) == 100
        assert await consumer.receive(timeout=0.01) == []
    await ready(channel, queue, 0)
    assert await consumer.receive() == []  # it has ended


async def test_a_batch_waits_for_the_first_and_then_so_long_for_the_rest(channel: Channel, queue: str) -> None:
    async with channel.consume(queue, prefetch=3) as consumer:
        receiving = asyncio.ensure_future(consumer.receive(10, within=60))
        for n in range(3):
            await channel.publish(b"%d" % n, "", queue)
        async with asyncio.timeout(60):  # more than the prefetch cannot come
            batch = await receiving
        assert [delivery.body for delivery in batch] == [b"0", b"1", b"2"]
        batch[-1].ack(multiple=True)
        receiving = asyncio.ensure_future(consumer.receive(2, within=0.01))
        await channel.publish(b"3", "", queue)
        assert [delivery.body for delivery in await receiving] == [b"3"]
        assert not consumer.subscription.waiters


async def test_what_ends_a_consumer_comes_after_its_last_batch(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 3)
    async with channel.consume(queue) as consumer:
        while consumer.buffered < 3:
            await channel.queue_inspect(queue)
        async with connection.channel() as other:
            await other.queue_delete(queue)
        assert len(await consumer.receive(10, within=60)) == 3
        with pytest.raises(errors.ConsumerCancelled):
            await consumer.receive()
        with pytest.raises(errors.InvalidArgument, match="max_messages is 0"):
            await consumer.receive(0)


async def test_a_cancelled_batch_leaves_its_deliveries_to_others(channel: Channel, queue: str) -> None:
    async with channel.consume(queue) as consumer:
        receiving = asyncio.ensure_future(consumer.receive(10, within=60))
        taking = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await channel.publish(b"0", "", queue)
        while not consumer.buffered and not taking.done():
            await channel.queue_inspect(queue)
        receiving.cancel()
        async with asyncio.timeout(60):
            assert (await taking).body == b"0"
        with pytest.raises(asyncio.CancelledError):
            await receiving
