"""What recovery looks like to a program, step by step, with what it prints; against both brokers."""

from __future__ import annotations

import asyncio

import pytest

import harebell
from harebell import errors
from tests.client.outages import FAST


async def test_a_first_receiver(broker_url: str, name: str) -> None:
    printed: list[str] = []
    async with harebell.connect(broker_url) as connection, connection.channel() as channel:
        queue = await channel.queue_declare(name, exclusive=True)
        received = channel.consume(queue.name, no_ack=True)
        await channel.publish(b"Hello World!", "", queue.name)
        async for delivery in received:
            printed.append(f"Received a message: {delivery.body.decode()}")
            break
    assert printed == ["Received a message: Hello World!"]


@pytest.mark.parametrize("what", ["channel", "connection"])
async def test_connection_recovery(broker_url: str, name: str, what: str) -> None:
    printed: list[str] = []
    connection = await harebell.connect(broker_url, recovery=FAST)
    channel = await connection.channel()
    await (channel if what == "channel" else connection).test().force_reconnect()
    printed.append(f"IS CLOSED: {str(channel.is_closed).lower()}")
    queue = await channel.queue_declare(name, auto_delete=True)
    printed.append(f"QUEUE    : {{Name:{queue.name} Messages:{queue.message_count} Consumers:{queue.consumer_count}}}")
    await channel.queue_delete(queue.name)
    await connection.close()
    printed.append(f"IS CLOSED: {str(channel.is_closed).lower()}")
    assert printed == [
        "IS CLOSED: false",
        f"QUEUE    : {{Name:{name} Messages:0 Consumers:0}}",
        "IS CLOSED: true",
    ]


async def test_delivery_tag_continuity(broker_url: str, name: str) -> None:
    """Each delivery is acknowledged by hand, and the channel lost after each."""
    printed: list[str] = []
    connection = await harebell.connect(broker_url, recovery=FAST)
    consume_channel = await connection.channel()
    publish_channel = await connection.channel()
    queue = await consume_channel.queue_declare(name)
    await consume_channel.qos(prefetch_count=1)
    consumer = consume_channel.consume(queue.name, consumer_tag="example consumer")
    await consumer.start()
    complete = asyncio.Semaphore(0)

    async def work() -> None:
        printed.append("STARTING CONSUMER")
        async for delivery in consumer:
            delivery.ack()
            await consume_channel.test().force_reconnect()
            printed.append(f"DELIVERY {delivery.delivery_tag}: {delivery.body.decode()}")
            complete.release()
        printed.append("DELIVERIES EXHAUSTED")

    worker = asyncio.create_task(work())
    for i in range(10):
        await publish_channel.publish(f"message {i}".encode(), "", queue.name)
    async with asyncio.timeout(60):
        for _ in range(10):
            await complete.acquire()
    assert (await publish_channel.queue_declare(queue.name, passive=True)).message_count == 0
    await consume_channel.queue_delete(queue.name)
    await connection.close()
    # The queue was deleted under the consumer, or the connection closed first: either ends the iteration.
    await asyncio.gather(worker, return_exceptions=True)
    assert printed[:11] == ["STARTING CONSUMER", *(f"DELIVERY {i + 1}: message {i}" for i in range(10))]


async def test_deliveries_are_exhausted_once_the_connection_is_closed(broker_url: str, name: str) -> None:
    printed: list[str] = []
    connection = await harebell.connect(broker_url, recovery=FAST)
    channel = await connection.channel()
    await channel.queue_declare(name, auto_delete=True)
    consumer = channel.consume(name)
    await consumer.start()

    async def work() -> None:
        async for _ in consumer:
            pass
        printed.append("DELIVERIES EXHAUSTED")

    worker = asyncio.create_task(work())
    await connection.test().force_reconnect()
    await connection.close()
    await worker
    assert printed == ["DELIVERIES EXHAUSTED"]


async def test_delivery_tag_orphans(broker_url: str, name: str) -> None:
    printed: list[str] = []
    async with harebell.connect(broker_url, recovery=FAST) as connection, connection.channel() as channel:
        await channel.queue_declare(name, auto_delete=True)
        consumer = channel.consume(name, consumer_tag="example consumer")
        await consumer.start()
        await channel.publish(b"test message", "", name)
        delivery = await anext(consumer)
        printed.append(f"DELIVERY: {delivery.body.decode()}")
        await channel.test().force_reconnect()
        with pytest.raises(errors.AcknowledgeOrphans) as caught:
            delivery.ack()
        printed.append(f"ACK ERROR: {caught.value}")
        printed.append(f"FIRST ORPHAN TAG: {caught.value.first}")
        printed.append(f"LAST ORPHAN TAG : {caught.value.last}")
        await channel.queue_delete(name)
    assert printed == [
        "DELIVERY: test message",
        "ACK ERROR: 1 tags orphaned (1 - 1), 0 tags successfully acknowledged",
        "FIRST ORPHAN TAG: 1",
        "LAST ORPHAN TAG : 1",
    ]


async def test_publishing_tag_continuity(broker_url: str, name: str) -> None:
    printed: list[str] = []
    connection = await harebell.connect(broker_url, recovery=FAST)
    channel = await connection.channel()
    await channel.confirm_select()
    confirmations = channel.confirmations()
    received = asyncio.Semaphore(1)

    async def watch() -> None:
        async for confirmation in confirmations:
            printed.append(
                f"CONFIRMATION TAG {confirmation.publish_tag:02d}: ACK: {str(confirmation.acked).lower()} "
                f"ORPHAN: {str(confirmation.orphaned).lower()}"
            )
            received.release()

    watcher = asyncio.create_task(watch())
    await channel.queue_declare(name, auto_delete=True)
    for i in range(10):
        async with asyncio.timeout(60):
            await received.acquire()
        await channel.test().force_reconnect()
        await channel.send(f"message {i}".encode(), "", name)
    async with asyncio.timeout(60):
        await received.acquire()
    await channel.queue_delete(name)
    await connection.close()
    await watcher
    assert printed == [f"CONFIRMATION TAG {tag:02d}: ACK: true ORPHAN: false" for tag in range(1, 11)]


async def test_the_harness(broker_url: str) -> None:
    printed: list[str] = []
    async with harebell.connect(broker_url, recovery=FAST) as connection, connection.channel() as channel:
        harness = channel.test()
        await harness.force_reconnect(5)
        printed.append(f"RECONNECTION COUNT: {harness.reconnection_count}")
        assert connection.test().reconnection_count == 1  # the channel alone was lost
    assert printed == ["RECONNECTION COUNT: 2"]
