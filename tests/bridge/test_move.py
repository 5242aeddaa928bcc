"""Moving house as docs/how-to/move-to-rabbitmq.md has it, while a publisher publishes: nothing lost, nothing twice.

The commands are the guide's, run as processes against a live RabbitMQ, in both directions.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import harebell
from harebell.broker import Broker
from harebell.errors import ServerUnavailable
from harebell.testing import RabbitMQ
from tests.bridge.kit import PATIENCE, until
from tests.cli.command import environment

pytestmark = pytest.mark.rabbitmq

QUEUES = ("orders.a", "orders.b")
BACKLOG = 300  # messages in each queue at the start

Got = dict[str, list[int]]


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitMQ]:
    try:
        with RabbitMQ() as server:
            yield server
    except ServerUnavailable as error:
        pytest.skip(str(error))


class Publisher:
    """Publishes numbers, even ones to orders.a and odd ones to orders.b, each confirmed, until it is told to stop."""

    def __init__(self) -> None:
        self.number = 0
        self._stop = asyncio.Event()

    async def run(self, url: str, count: int | None = None) -> None:
        self._stop.clear()
        until = None if count is None else self.number + count
        async with harebell.connect(url) as connection, connection.channel() as channel:
            await channel.confirm_select()
            while not self._stop.is_set() and self.number != until:
                key = "ab"[self.number % 2]
                await channel.publish(b"%d" % self.number, "sales", f"order.{key}", mandatory=True)
                self.number += 1

    def stop(self) -> None:
        self._stop.set()


async def consume(url: str, queue: str, got: Got) -> None:
    """Work off the queue until cancelled."""
    async with harebell.connect(url) as connection, connection.channel() as channel:
        async for delivery in channel.consume(queue, prefetch=20):
            got[queue].append(int(delivery.body))
            delivery.ack()


async def end_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def topology(url: str) -> None:
    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.exchange_declare("sales", "topic", durable=True)
        for queue in QUEUES:
            await channel.queue_declare(queue, durable=True)
            await channel.queue_bind(queue, "sales", f"order.{queue[-1]}")


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "harebell", *arguments,
        env=environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> str:
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["to RabbitMQ", "to Harebell"])
@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "at once"])
async def test_moving(server: RabbitMQ, tmp_path: Path, direction: str, in_order: bool) -> None:
    got: Got = {queue: [] for queue in QUEUES}
    publisher, file = Publisher(), tmp_path / "definitions.json"
    async with Broker() as broker, AsyncExitStack() as stack:
        old, new = (broker.url, server.url) if direction == "to RabbitMQ" else (server.url, broker.url)
        stack.push_async_callback(clean, server.url)
        await topology(old)
        await publisher.run(old, 2 * BACKLOG)
        publishing = asyncio.create_task(publisher.run(old))
        consumers = [asyncio.create_task(consume(old, queue, got)) for queue in QUEUES]
        await until(lambda: len(got["orders.a"]) > 20)

        # 1. the new broker gets the definitions
        if direction == "to RabbitMQ":
            file.write_text(json.dumps(broker.export_definitions()))
            await asyncio.to_thread(server.ctl, "import_definitions", str(file))
        else:
            await asyncio.to_thread(server.ctl, "export_definitions", str(file))
            broker.import_definitions(file)
        # 2. consumers switch over
        await end_all(consumers)
        consumers = [asyncio.create_task(consume(new, queue, got)) for queue in QUEUES]
        # 3. the shovel runs
        shovel = await command("shovel", old, new, "--all", "--definitions", str(file))
        now = len(got["orders.a"])
        await until(lambda: len(got["orders.a"]) > now + BACKLOG)
        # 4. publishers switch over
        publisher.stop()
        await publishing
        switched = publisher.number
        if not in_order:
            publishing = asyncio.create_task(publisher.run(new))
        # 5. the rest follows
        shovel.send_signal(signal.SIGINT)
        assert "messages moved" in await ended(shovel)
        await ended(await command("shovel", old, new, "--all", "--definitions", str(file), "--until-empty"))
        if in_order:
            publishing = asyncio.create_task(publisher.run(new))
        await until(lambda: publisher.number > switched + 100)
        publisher.stop()
        await publishing
        await until(lambda: sum(map(len, got.values())) >= publisher.number)
        await end_all(consumers)
    wanted = {queue: list(range(number, publisher.number, 2)) for number, queue in enumerate(QUEUES)}
    if in_order:
        assert got == wanted
    else:
        assert {queue: sorted(numbers) for queue, numbers in got.items()} == wanted
        for numbers in got.values():
            for part in ([n for n in numbers if n < switched], [n for n in numbers if n >= switched]):
                assert part == sorted(part)


async def clean(url: str) -> None:
    async with harebell.connect(url) as connection, connection.channel() as channel:
        await channel.exchange_delete("sales")
        for queue in QUEUES:
            await channel.queue_delete(queue)
