"""aio-pika, as it is, against the broker."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest

from harebell.broker import Broker


async def test_publish_consume_ack_reject() -> None:
    async with Broker() as broker, await aio_pika.connect_robust(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=3)
        exchange = await channel.declare_exchange("x", aio_pika.ExchangeType.TOPIC)
        dead = await channel.declare_queue("dead")
        queue = await channel.declare_queue(
            "q", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        )
        await queue.bind(exchange, "a.#")
        for number in range(10):
            await exchange.publish(aio_pika.Message(b"%d" % number, headers={"n": number}), "a.b")
        got = []
        async with queue.iterator(timeout=10) as messages:
            async for message in messages:
                got.append(message.body)
                if message.headers["n"] == 4:
                    await message.reject(requeue=False)
                else:
                    await message.ack()
                if len(got) == 10:
                    break
        assert got == [b"%d" % number for number in range(10)]
        letter = await dead.get(timeout=10)
        assert letter.body == b"4"
        await letter.ack()


async def test_mandatory_is_returned() -> None:
    async with Broker() as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "nope", mandatory=True)


async def test_passive_get_empty_and_errors() -> None:
    async with Broker() as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("q", auto_delete=True)
        assert await queue.get(fail=False, timeout=60) is None
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue("nope", passive=True)


async def test_a_stream() -> None:
    async with Broker() as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=5)
        stream = await channel.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
        for number in range(10):
            await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "s")
        got: asyncio.Queue[tuple[object, bytes]] = asyncio.Queue()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            await got.put((message.headers["x-stream-offset"], message.body))
            await message.ack()

        await stream.consume(take, arguments={"x-stream-offset": "first"})
        async with asyncio.timeout(60):
            assert [await got.get() for _ in range(10)] == [(number, b"%d" % number) for number in range(10)]
