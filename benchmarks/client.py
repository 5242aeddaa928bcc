"""Clients side by side against one broker, in turn: publish with confirms, consume with acknowledgements.

    python benchmarks/client.py [--rounds 3] [--count 20000] [--url amqp://...]

Each run is a process of its own, and its CPU (user and system) is the client's cost: the ratio to count on. Messages
per second are often the broker's limit rather than the client's. Every client gets its best documented way: a batch
where it has one (Warren's publish_many), many at once where it has not (aio-pika: 500 in flight), one by one where it
can do no other (pika's BlockingConnection). Each delivery is acknowledged on its own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from warren.testing import RabbitMQ

QUEUE = "benchmark.client"
SIZE = 100  # bytes of a body
IN_FLIGHT = 500
PREFETCH = 500
TIMEOUT = 300.0  # seconds for one run


@dataclass(frozen=True)
class Result:
    """Messages per second, and CPU microseconds of the client per message."""

    per_second: float
    cpu_us: float


class Clock:
    """Wall and CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def result(self, count: int) -> Result:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Result(count / wall, cpu / count * 1e6)


def warren_publish(url: str, count: int) -> Result:
    import warren

    async def main() -> Result:
        async with warren.connect(url) as connection, connection.channel() as channel:
            await channel.confirm_select()
            clock = Clock()
            messages = (warren.Publication(b"x" * SIZE, "", QUEUE) for _ in range(count))
            await channel.publish_many(messages, timeout=TIMEOUT)
            return clock.result(count)

    return asyncio.run(main())


def warren_gather(url: str, count: int) -> Result:
    import warren

    async def main() -> Result:
        async with warren.connect(url) as connection, connection.channel() as channel:
            await channel.confirm_select()
            clock = Clock()
            for _ in range(count // IN_FLIGHT):
                await asyncio.gather(*[channel.publish(b"x" * SIZE, "", QUEUE) for _ in range(IN_FLIGHT)])
            return clock.result(count)

    return asyncio.run(main())


def warren_consume(url: str, count: int) -> Result:
    import warren

    async def main() -> Result:
        async with warren.connect(url) as connection, connection.channel() as channel:
            clock, seen = Clock(), 0
            async for delivery in channel.consume(QUEUE, prefetch=PREFETCH):
                assert len(delivery.body) == SIZE
                delivery.ack()
                seen += 1
                if seen == count:
                    break
            return clock.result(count)

    return asyncio.run(main())


def sync_publish(url: str, count: int) -> Result:
    from warren import Publication, blocking

    with blocking.connect(url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        clock = Clock()
        channel.publish_many((Publication(b"x" * SIZE, "", QUEUE) for _ in range(count)), timeout=TIMEOUT)
        return clock.result(count)


def sync_consume(url: str, count: int) -> Result:
    from warren import blocking

    with blocking.connect(url) as connection:
        channel = connection.channel()
        clock = Clock()
        for seen, delivery in enumerate(channel.consume(QUEUE, prefetch=PREFETCH), 1):
            assert len(delivery.body) == SIZE
            delivery.ack()
            if seen == count:
                break
        return clock.result(count)


def aio_pika_publish(url: str, count: int) -> Result:
    import aio_pika

    async def main() -> Result:
        connection = await aio_pika.connect(url)
        async with connection:
            channel = await connection.channel()
            publish = channel.default_exchange.publish
            clock = Clock()
            for _ in range(count // IN_FLIGHT):
                await asyncio.gather(
                    *[publish(aio_pika.Message(b"x" * SIZE), routing_key=QUEUE) for _ in range(IN_FLIGHT)]
                )
            return clock.result(count)

    return asyncio.run(main())


def aio_pika_consume(url: str, count: int) -> Result:
    import aio_pika

    async def main() -> Result:
        connection = await aio_pika.connect(url)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue(QUEUE)
            clock, seen = Clock(), 0
            async with queue.iterator() as messages:
                async for message in messages:
                    assert len(message.body) == SIZE
                    await message.ack()
                    seen += 1
                    if seen == count:
                        break
            return clock.result(count)

    return asyncio.run(main())


def pika_publish(url: str, count: int) -> Result:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    clock = Clock()
    for _ in range(count):
        channel.basic_publish("", QUEUE, b"x" * SIZE)
    result = clock.result(count)
    connection.close()
    return result


def pika_consume(url: str, count: int) -> Result:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    clock = Clock()
    for seen, (method, _, body) in enumerate(channel.consume(QUEUE), 1):
        assert len(body) == SIZE
        channel.basic_ack(method.delivery_tag)
        if seen == count:
            break
    result = clock.result(count)
    connection.close()
    return result


Client = Callable[[str, int], Result]
CLIENTS: dict[str, dict[str, Client]] = {
    "publish, confirmed": {
        "warren publish_many": warren_publish,
        "warren gather": warren_gather,
        "warren.blocking": sync_publish,
        "aio-pika": aio_pika_publish,
        "pika": pika_publish,
    },
    "consume, each acknowledged": {
        "warren": warren_consume,
        "warren.blocking": sync_consume,
        "aio-pika": aio_pika_consume,
        "pika": pika_consume,
    },
}


def measure(client: Client, url: str, count: int) -> Result:
    """One run in a fresh process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(client, url, count, theirs))
    process.start()
    try:
        if not ours.poll(TIMEOUT):
            raise TimeoutError(f"{client.__name__} did not end within {TIMEOUT:g} s")
        result: Result = ours.recv()
        return result
    finally:
        process.join(5)
        process.kill()


def child(client: Client, url: str, count: int, answer: Connection) -> None:
    answer.send(client(url, count))


def prepare(url: str, fill: int) -> None:
    """The queue, with just that many messages in it."""
    from warren import Publication, blocking

    with blocking.connect(url) as connection:
        channel = connection.channel()
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE)
        channel.confirm_select()
        channel.publish_many((Publication(b"x" * SIZE, "", QUEUE) for _ in range(fill)), timeout=TIMEOUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=20_000, help="messages per run, a multiple of 500")
    parser.add_argument("--url", help="a broker to use; without it a RabbitMQ is started")
    options = parser.parse_args()
    if options.url:
        compare(options.url, options.rounds, options.count)
    else:
        with RabbitMQ() as rabbit:
            compare(rabbit.url, options.rounds, options.count)


def compare(url: str, rounds: int, count: int) -> None:
    results: dict[tuple[str, str], list[Result]] = {}
    for number in range(rounds):
        for load, clients in CLIENTS.items():
            for name, client in clients.items():
                if sys.stderr.isatty():
                    print(f"\r[round {number + 1} of {rounds}] {load}: {name}{'':20}", end="", file=sys.stderr)
                prepare(url, count if load.startswith("consume") else 0)
                results.setdefault((load, name), []).append(measure(client, url, count))
    if sys.stderr.isatty():
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    show(results, rounds, count)


def show(results: dict[tuple[str, str], list[Result]], rounds: int, count: int) -> None:
    from importlib.metadata import version

    peers = ", ".join(f"{name} {version(name)}" for name in ("aio-pika", "pika"))
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {peers}; "
          f"medians of {rounds} rounds of {count:,} messages of {SIZE} bytes")  # fmt: skip
    print(f"{'':28}{'':22}{'CPU x':>8}{'rate x':>8} | {'CPU us/msg':>11}{'msg/s':>10}")
    for load, clients in CLIENTS.items():
        first = next(iter(clients))
        cost = {name: statistics.median(r.cpu_us for r in results[load, name]) for name in clients}
        rate = {name: statistics.median(r.per_second for r in results[load, name]) for name in clients}
        for name in clients:
            print(f"{load if name == first else '':28}{name:22}{cost[name] / cost[first]:>7.1f}x"
                  f"{rate[first] / rate[name]:>7.1f}x | {cost[name]:>11.2f}{rate[name]:>10,.0f}")  # fmt: skip
    print("CPU x: how many times Warren's CPU per message; rate x: Warren's messages per second over this client's")


if __name__ == "__main__":
    main()
