"""What each client does in `client.py`: one function for a client and a row, written as its documentation advises.

A function connects, processes `count` messages of QUEUE, checks them, and returns a Result that leaves out the
connecting. Publishing without confirms ends with the answer to a queue.declare: then all messages were written. A
coroutine function runs on whichever event loop it is started on. To add a client, write its functions and name them in
CASES. As a program, this runs one of them and prints its Result as JSON:

    python benchmarks/clients.py "publish_many" "harebell" asyncio amqp://... 20000
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

QUEUE = "benchmark.client"
BODY = b"x" * 100  # of every row but those of `body_of`
WINDOW = 500  # publications without a confirmation
PREFETCH = 500
BATCH = 100  # messages that are acknowledged together
TIMEOUT = 300.0  # seconds for one run


@dataclass(frozen=True)
class Result:
    """How many messages; how many a second; CPU microseconds (user and system, all threads) of the client for each."""

    count: int
    per_second: float
    cpu_us: float


def body_of(row: str) -> bytes:
    """The body of the row's messages."""
    return b"x" * 65_536 if "64 KiB" in row else b"x" * 100


def count_of(row: str, count: int) -> int:
    """How many messages of this row, or connections, make one run, where the others have `count`."""
    return min(count, 2000) if "64 KiB" in row or row.startswith(("open", "consume by get")) else count


class Clock:
    """Wall and CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def result(self, count: int) -> Result:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Result(count, count / wall, cpu / count * 1e6)


async def harebell_unconfirmed(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        clock = Clock()
        for _ in range(count):
            await channel.publish(BODY, "", QUEUE)
        await channel.queue_declare(QUEUE, passive=True)
        return clock.result(count)


async def harebell_one_by_one(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        clock = Clock()
        for _ in range(count):
            await channel.publish(BODY, "", QUEUE)
        return clock.result(count)


async def harebell_window(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        confirmations = channel.confirmations()
        clock = Clock()
        for number in range(count):
            if number >= WINDOW:
                assert (await anext(confirmations)).acked
            await channel.send(BODY, "", QUEUE)
        for _ in range(WINDOW):
            assert (await anext(confirmations)).acked
        return clock.result(count)


async def harebell_gather(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        clock = Clock()
        for _ in range(count // WINDOW):
            await asyncio.gather(*[channel.publish(BODY, "", QUEUE) for _ in range(WINDOW)])
        return clock.result(count)


async def harebell_producer(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.producer(window=WINDOW) as producer:
        clock = Clock()
        sent = [await producer.publish_soon(BODY, QUEUE) for _ in range(count)]
        for pending in sent:
            assert (await pending).acked
        return clock.result(count)


async def harebell_producer_one_by_one(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.producer() as producer:
        clock = Clock()
        for _ in range(count):
            await producer.publish(BODY, QUEUE)
        return clock.result(count)


async def harebell_publish_many(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        clock = Clock()
        publications = (harebell.Publication(BODY, "", QUEUE) for _ in range(count))
        await channel.publish_many(publications, timeout=TIMEOUT)
        return clock.result(count)


async def harebell_callback(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        seen, done = 0, asyncio.Event()

        def handle(delivery: harebell.Delivery) -> None:
            nonlocal seen
            assert len(delivery.body) == len(BODY)
            delivery.ack()
            seen += 1
            if seen == count:
                done.set()

        clock = Clock()
        consuming = asyncio.ensure_future(channel.consume(QUEUE, prefetch=PREFETCH).each(handle))
        await done.wait()
        result = clock.result(count)
        consuming.cancel()
        return result


async def harebell_handler(url: str, count: int) -> Result:
    import harebell
    import harebell.client.patterns.outcomes
    import harebell.client.patterns.workers  # else loading it is counted

    async with harebell.connect(url) as connection:
        seen, done = 0, asyncio.Event()

        async def handle(delivery: harebell.Delivery) -> None:
            nonlocal seen
            assert len(delivery.body) == len(BODY)
            seen += 1
            if seen == count:
                done.set()

        clock = Clock()
        async with connection.consume(QUEUE, handle, prefetch=PREFETCH) as workers:
            await done.wait()
            result = clock.result(count)
            await workers.stop()
        return result


async def harebell_batches(url: str, count: int) -> Result:
    import harebell
    import harebell.client.patterns.batches
    import harebell.client.patterns.outcomes
    import harebell.client.patterns.workers  # else loading it is counted

    async with harebell.connect(url) as connection:
        seen, done = 0, asyncio.Event()

        async def handle(deliveries: list[harebell.Delivery]) -> None:
            nonlocal seen
            assert all(len(delivery.body) == len(BODY) for delivery in deliveries)
            seen += len(deliveries)
            if seen == count:
                done.set()

        clock = Clock()
        async with connection.consume(QUEUE, handle, prefetch=PREFETCH, batch=BATCH) as workers:
            await done.wait()
            result = clock.result(count)
            await workers.stop()
        return result


async def harebell_receive(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        clock, seen = Clock(), 0
        async with channel.consume(QUEUE, prefetch=PREFETCH) as consumer:
            while seen < count:
                batch = await consumer.receive(BATCH)
                assert all(len(delivery.body) == len(BODY) for delivery in batch)
                channel.ack(batch[-1].delivery_tag, multiple=True)
                seen += len(batch)
            return clock.result(count)


async def harebell_get(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        clock = Clock()
        for _ in range(count):
            delivery = await channel.get(QUEUE)
            assert delivery is not None
            assert len(delivery.body) == len(BODY)
            delivery.ack()
        return clock.result(count)


async def harebell_open(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url):
        clock = Clock()
        for _ in range(count):
            async with harebell.connect(url) as connection, connection.channel():
                pass
        return clock.result(count)


async def harebell_iterator(url: str, count: int) -> Result:
    import harebell

    async with harebell.connect(url) as connection, connection.channel() as channel:
        clock, seen = Clock(), 0
        async for delivery in channel.consume(QUEUE, prefetch=PREFETCH):
            assert len(delivery.body) == len(BODY)
            delivery.ack()
            seen += 1
            if seen == count:
                break
        return clock.result(count)


def blocking_unconfirmed(url: str, count: int) -> Result:
    from harebell import blocking

    with blocking.connect(url) as connection, connection.channel() as channel:
        clock = Clock()
        for _ in range(count):
            channel.publish(BODY, "", QUEUE)
        channel.queue_declare(QUEUE, passive=True)
        return clock.result(count)


def blocking_one_by_one(url: str, count: int) -> Result:
    from harebell import blocking

    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.confirm_select()
        clock = Clock()
        for _ in range(count):
            channel.publish(BODY, "", QUEUE)
        return clock.result(count)


def blocking_publish_many(url: str, count: int) -> Result:
    import harebell

    with harebell.blocking.connect(url) as connection, connection.channel() as channel:
        channel.confirm_select()
        clock = Clock()
        channel.publish_many((harebell.Publication(BODY, "", QUEUE) for _ in range(count)), timeout=TIMEOUT)
        return clock.result(count)


def blocking_receive(url: str, count: int) -> Result:
    from harebell import blocking

    with blocking.connect(url) as connection, connection.channel() as channel:
        clock, seen = Clock(), 0
        with channel.consume(QUEUE, prefetch=PREFETCH) as consumer:
            while seen < count:
                batch = consumer.receive(BATCH)
                assert all(len(delivery.body) == len(BODY) for delivery in batch)
                channel.ack(batch[-1].delivery_tag, multiple=True)
                seen += len(batch)
            return clock.result(count)


def blocking_iterator(url: str, count: int) -> Result:
    from harebell import blocking

    with blocking.connect(url) as connection, connection.channel() as channel:
        clock = Clock()
        for seen, delivery in enumerate(channel.consume(QUEUE, prefetch=PREFETCH), 1):
            assert len(delivery.body) == len(BODY)
            delivery.ack()
            if seen == count:
                break
        channel.drain()
        return clock.result(count)


async def aio_pika_unconfirmed(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        publish = channel.default_exchange.publish
        clock = Clock()
        for _ in range(count):
            await publish(aio_pika.Message(BODY), routing_key=QUEUE)
        await channel.declare_queue(QUEUE, passive=True)
        return clock.result(count)


async def aio_pika_one_by_one(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        publish = channel.default_exchange.publish
        clock = Clock()
        for _ in range(count):
            await publish(aio_pika.Message(BODY), routing_key=QUEUE)
        return clock.result(count)


async def aio_pika_gather(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        publish = channel.default_exchange.publish
        clock = Clock()
        for _ in range(count // WINDOW):
            await asyncio.gather(*[publish(aio_pika.Message(BODY), routing_key=QUEUE) for _ in range(WINDOW)])
        return clock.result(count)


async def aio_pika_callback(url: str, count: int) -> Result:
    import aio_pika
    from aio_pika.abc import AbstractIncomingMessage

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(QUEUE)
        seen, done = 0, asyncio.Event()

        async def handle(message: AbstractIncomingMessage) -> None:
            nonlocal seen
            assert len(message.body) == len(BODY)
            await message.ack()
            seen += 1
            if seen == count:
                done.set()

        clock = Clock()
        await queue.consume(handle)
        await done.wait()
        return clock.result(count)


async def aio_pika_iterator(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(QUEUE)
        clock, seen = Clock(), 0
        async with queue.iterator() as messages:
            async for message in messages:
                assert len(message.body) == len(BODY)
                await message.ack()
                seen += 1
                if seen == count:
                    break
        return clock.result(count)


async def aio_pika_batches(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(QUEUE)
        clock, seen = Clock(), 0
        async with queue.iterator() as messages:
            async for message in messages:
                assert len(message.body) == len(BODY)
                seen += 1
                if seen % BATCH == 0:
                    await message.ack(multiple=True)
                if seen == count:
                    break
        return clock.result(count)


async def aio_pika_get(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue(QUEUE)
        clock = Clock()
        for _ in range(count):
            message = await queue.get()
            assert message is not None
            assert len(message.body) == len(BODY)
            await message.ack()
        return clock.result(count)


async def aio_pika_open(url: str, count: int) -> Result:
    import aio_pika

    async with await aio_pika.connect(url):
        clock = Clock()
        for _ in range(count):
            async with await aio_pika.connect(url) as connection:
                await connection.channel()
        return clock.result(count)


def pika_unconfirmed(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        clock = Clock()
        for _ in range(count):
            channel.basic_publish("", QUEUE, BODY)
        channel.queue_declare(QUEUE, passive=True)
        return clock.result(count)


def pika_one_by_one(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        clock = Clock()
        for _ in range(count):
            channel.basic_publish("", QUEUE, BODY)
        return clock.result(count)


def pika_callback(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        seen = 0

        def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal seen
            assert len(body) == len(BODY)
            channel.basic_ack(method.delivery_tag)
            seen += 1
            if seen == count:
                channel.stop_consuming()

        clock = Clock()
        channel.basic_consume(QUEUE, handle)
        channel.start_consuming()
        return clock.result(count)


def pika_iterator(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        clock = Clock()
        for seen, (method, _, body) in enumerate(channel.consume(QUEUE), 1):
            assert len(body) == len(BODY)
            channel.basic_ack(method.delivery_tag)
            if seen == count:
                break
        return clock.result(count)


def pika_batches(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        clock = Clock()
        for seen, (method, _, body) in enumerate(channel.consume(QUEUE), 1):
            assert len(body) == len(BODY)
            if seen % BATCH == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if seen == count:
                break
        return clock.result(count)


def pika_get(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        clock = Clock()
        for _ in range(count):
            method, _, body = channel.basic_get(QUEUE)
            assert len(body) == len(BODY)
            channel.basic_ack(method.delivery_tag)
        return clock.result(count)


def pika_open(url: str, count: int) -> Result:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)):
        clock = Clock()
        for _ in range(count):
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                connection.channel()
        return clock.result(count)


async def _pika_asyncio(url: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
    """The result of `work`, given a channel of pika's asyncio adapter."""
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.get_running_loop()
    opened, closed = loop.create_future(), loop.create_future()
    connection = AsyncioConnection(
        pika.URLParameters(url),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened.set_result),
        on_close_callback=lambda connection, reason: closed.set_result(None),
        custom_ioloop=loop,
    )
    result = await work(await opened)
    connection.close()
    await closed
    return result


async def pika_asyncio_unconfirmed(url: str, count: int) -> Result:
    async def work(channel: Any) -> Result:
        answered = asyncio.get_running_loop().create_future()
        clock = Clock()
        for number in range(count):
            channel.basic_publish("", QUEUE, BODY)
            if not number % WINDOW:
                await asyncio.sleep(0)
        channel.queue_declare(QUEUE, passive=True, callback=answered.set_result)
        await answered
        return clock.result(count)

    return await _pika_asyncio(url, work)


async def pika_asyncio_window(url: str, count: int) -> Result:
    async def work(channel: Any) -> Result:
        loop = asyncio.get_running_loop()
        selected, done = loop.create_future(), loop.create_future()
        unconfirmed: set[int] = set()
        sent = settled = 0

        def publish() -> None:
            nonlocal sent
            while sent < count and len(unconfirmed) < WINDOW:
                channel.basic_publish("", QUEUE, BODY)
                sent += 1
                unconfirmed.add(sent)

        def confirmed(frame: Any) -> None:
            nonlocal settled
            tag = frame.method.delivery_tag
            for number in range(settled + 1, tag + 1) if frame.method.multiple else (tag,):
                unconfirmed.discard(number)
            if frame.method.multiple:
                settled = tag
            publish()
            if not unconfirmed and not done.done():
                done.set_result(None)

        channel.confirm_delivery(confirmed, callback=selected.set_result)
        await selected
        clock = Clock()
        publish()
        await done
        return clock.result(count)

    return await _pika_asyncio(url, work)


async def pika_asyncio_callback(url: str, count: int) -> Result:
    async def work(channel: Any) -> Result:
        loop = asyncio.get_running_loop()
        limited, done = loop.create_future(), loop.create_future()
        seen = 0

        def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal seen
            assert len(body) == len(BODY)
            channel.basic_ack(method.delivery_tag)
            seen += 1
            if seen == count:
                done.set_result(None)

        channel.basic_qos(prefetch_count=PREFETCH, callback=limited.set_result)
        await limited
        clock = Clock()
        channel.basic_consume(QUEUE, handle)
        await done
        return clock.result(count)

    return await _pika_asyncio(url, work)


def _amqp(url: str, **options: object) -> Any:
    import amqp

    parts = urlsplit(url)
    return amqp.Connection(f"{parts.hostname}:{parts.port}", userid=parts.username or "guest",
                           password=parts.password or "guest", **options)  # fmt: skip


def py_amqp_unconfirmed(url: str, count: int) -> Result:
    from amqp import Message

    with _amqp(url) as connection:
        channel = connection.channel()
        clock = Clock()
        for _ in range(count):
            channel.basic_publish(Message(BODY), "", QUEUE)
        channel.queue_declare(QUEUE, passive=True)
        return clock.result(count)


def py_amqp_one_by_one(url: str, count: int) -> Result:
    from amqp import Message

    with _amqp(url, confirm_publish=True) as connection:
        channel = connection.channel()
        clock = Clock()
        for _ in range(count):
            channel.basic_publish(Message(BODY), "", QUEUE)
        return clock.result(count)


def py_amqp_window(url: str, count: int) -> Result:
    from amqp import Message

    with _amqp(url) as connection:
        channel = connection.channel()
        unconfirmed: set[int] = set()
        settled = 0

        def confirmed(tag: int, multiple: bool) -> None:
            nonlocal settled
            unconfirmed.difference_update(range(settled + 1, tag + 1) if multiple else (tag,))
            if multiple:
                settled = tag

        channel.confirm_select()
        channel.events["basic_ack"].add(confirmed)
        clock = Clock()
        for number in range(1, count + 1):
            while len(unconfirmed) >= WINDOW:
                connection.drain_events()
            channel.basic_publish(Message(BODY), "", QUEUE)
            unconfirmed.add(number)
        while unconfirmed:
            connection.drain_events()
        return clock.result(count)


def py_amqp_callback(url: str, count: int) -> Result:
    with _amqp(url) as connection:
        channel = connection.channel()
        channel.basic_qos(0, PREFETCH, False)
        seen = 0

        def handle(message: Any) -> None:
            nonlocal seen
            assert len(message.body) == len(BODY)
            channel.basic_ack(message.delivery_tag)
            seen += 1

        clock = Clock()
        channel.basic_consume(QUEUE, callback=handle)
        while seen < count:
            connection.drain_events()
        return clock.result(count)


def py_amqp_batches(url: str, count: int) -> Result:
    with _amqp(url) as connection:
        channel = connection.channel()
        channel.basic_qos(0, PREFETCH, False)
        seen = 0

        def handle(message: Any) -> None:
            nonlocal seen
            assert len(message.body) == len(BODY)
            seen += 1
            if seen % BATCH == 0:
                channel.basic_ack(message.delivery_tag, multiple=True)

        clock = Clock()
        channel.basic_consume(QUEUE, callback=handle)
        while seen < count:
            connection.drain_events()
        return clock.result(count)


def py_amqp_get(url: str, count: int) -> Result:
    with _amqp(url) as connection:
        channel = connection.channel()
        clock = Clock()
        for _ in range(count):
            message = channel.basic_get(QUEUE)
            assert len(message.body) == len(BODY)
            channel.basic_ack(message.delivery_tag)
        return clock.result(count)


def py_amqp_open(url: str, count: int) -> Result:
    with _amqp(url):
        clock = Clock()
        for _ in range(count):
            with _amqp(url) as connection:
                connection.channel()
        return clock.result(count)


def _amqpstorm(url: str) -> Any:
    from amqpstorm.connection import Connection

    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Connection(parts.hostname, parts.username or "guest", parts.password or "guest", port=parts.port)


def amqpstorm_unconfirmed(url: str, count: int) -> Result:
    with _amqpstorm(url) as connection, connection.channel() as channel:
        clock = Clock()
        for _ in range(count):
            channel.basic.publish(BODY, QUEUE)
        channel.queue.declare(QUEUE, passive=True)
        return clock.result(count)


def amqpstorm_one_by_one(url: str, count: int) -> Result:
    count = min(count, 300)  # it looks for the confirm every 10 ms
    with _amqpstorm(url) as connection, connection.channel() as channel:
        channel.confirm_deliveries()
        clock = Clock()
        for _ in range(count):
            channel.basic.publish(BODY, QUEUE)
        return clock.result(count)


def amqpstorm_callback(url: str, count: int) -> Result:
    with _amqpstorm(url) as connection, connection.channel() as channel:
        channel.basic.qos(PREFETCH)
        seen = 0

        def handle(message: Any) -> None:
            nonlocal seen
            assert len(message._body) == len(BODY)
            message.ack()
            seen += 1
            if seen == count:
                channel.stop_consuming()

        clock = Clock()
        channel.basic.consume(handle, QUEUE)
        channel.start_consuming()
        return clock.result(count)


def amqpstorm_iterator(url: str, count: int) -> Result:
    with _amqpstorm(url) as connection, connection.channel() as channel:
        channel.basic.qos(PREFETCH)
        clock = Clock()
        channel.basic.consume(queue=QUEUE)
        for seen, message in enumerate(channel.build_inbound_messages(), 1):
            assert len(message._body) == len(BODY)
            message.ack()
            if seen == count:
                break
        return clock.result(count)


Work = Callable[[str, int], Result] | Callable[[str, int], Coroutine[Any, Any, Result]]

# By row, then by client. The first one of a row is what the others are compared with.
CASES: dict[str, dict[str, Work]] = {
    "publish, unconfirmed": {
        "harebell": harebell_unconfirmed,
        "harebell, blocking": blocking_unconfirmed,
        "aio-pika": aio_pika_unconfirmed,
        "pika": pika_unconfirmed,
        "pika's asyncio adapter": pika_asyncio_unconfirmed,
        "py-amqp": py_amqp_unconfirmed,
        "amqpstorm": amqpstorm_unconfirmed,
    },
    "publish, confirmed one by one": {
        "harebell": harebell_one_by_one,
        "harebell, blocking": blocking_one_by_one,
        "aio-pika": aio_pika_one_by_one,
        "pika": pika_one_by_one,
        "py-amqp": py_amqp_one_by_one,
        "amqpstorm": amqpstorm_one_by_one,
    },
    "publish, a window of 500": {
        "harebell, send": harebell_window,
        "harebell, producer": harebell_producer,
        "harebell, gather": harebell_gather,
        "aio-pika, gather": aio_pika_gather,
        "pika, one by one": pika_one_by_one,
        "pika's asyncio adapter": pika_asyncio_window,
        "py-amqp": py_amqp_window,
        "amqpstorm, one by one": amqpstorm_one_by_one,
    },
    "publish_many": {
        "harebell": harebell_publish_many,
        "harebell, blocking": blocking_publish_many,
        "aio-pika, gather": aio_pika_gather,
        "pika's asyncio adapter": pika_asyncio_window,
        "py-amqp, a window": py_amqp_window,
    },
    "consume by callback": {
        "harebell": harebell_callback,
        "aio-pika": aio_pika_callback,
        "pika": pika_callback,
        "pika's asyncio adapter": pika_asyncio_callback,
        "py-amqp": py_amqp_callback,
        "amqpstorm": amqpstorm_callback,
    },
    "consume by iterator": {
        "harebell": harebell_iterator,
        "harebell, blocking": blocking_iterator,
        "aio-pika": aio_pika_iterator,
        "pika": pika_iterator,
        "py-amqp, callback": py_amqp_callback,
        "amqpstorm": amqpstorm_iterator,
    },
    "consume with a handler that the client acknowledges for": {
        "harebell": harebell_handler,
        "aio-pika, callback": aio_pika_callback,
        "pika, callback": pika_callback,
        "pika's asyncio adapter, callback": pika_asyncio_callback,
        "py-amqp, callback": py_amqp_callback,
        "amqpstorm, callback": amqpstorm_callback,
    },
    "consume in batches of 100, acknowledged together": {
        "harebell, a handler": harebell_batches,
        "harebell, receive": harebell_receive,
        "harebell, blocking": blocking_receive,
        "aio-pika": aio_pika_batches,
        "pika": pika_batches,
        "py-amqp, callback": py_amqp_batches,
    },
    "publish 64 KiB bodies, unconfirmed": {
        "harebell": harebell_unconfirmed,
        "harebell, blocking": blocking_unconfirmed,
        "aio-pika": aio_pika_unconfirmed,
        "pika": pika_unconfirmed,
        "py-amqp": py_amqp_unconfirmed,
        "amqpstorm": amqpstorm_unconfirmed,
    },
    "consume 64 KiB bodies": {
        "harebell": harebell_iterator,
        "aio-pika": aio_pika_iterator,
        "pika": pika_iterator,
        "py-amqp, callback": py_amqp_callback,
        "amqpstorm": amqpstorm_iterator,
    },
    "consume by get": {
        "harebell": harebell_get,
        "aio-pika": aio_pika_get,
        "pika": pika_get,
        "py-amqp": py_amqp_get,
    },
    "open a connection and a channel, close them": {
        "harebell": harebell_open,
        "aio-pika": aio_pika_open,
        "pika": pika_open,
        "py-amqp": py_amqp_open,
    },
}


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def main() -> None:
    global BODY
    row, client, loop, url, count = sys.argv[1:]
    BODY = body_of(row)
    result = CASES[row][client](url, int(count))
    if not isinstance(result, Result):
        with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
            result = runner.run(result)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
