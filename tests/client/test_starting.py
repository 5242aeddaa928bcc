"""A wait for the first message that is given up: the subscription goes on starting, in every kind of consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.sessions import connect
from harebell.client.starting import start_by_waiting, stop_starting
from harebell.testing import FaultProxy
from tests.client.outages import eventually

SLOW = 0.03  # seconds that the broker's bytes take
POLL = 0.005  # seconds of a wait, which is over before the broker has answered
Take = Callable[[Any], Any]


async def one(consumer: Any) -> bytes | None:
    try:
        return bytes((await asyncio.wait_for(anext(consumer), POLL)).body)
    except TimeoutError:
        return None


async def batch(consumer: Any) -> bytes | None:
    try:
        found = await asyncio.wait_for(consumer.receive(timeout=60), POLL)
    except TimeoutError:
        return None
    return bytes(found[0].body)


@pytest.mark.parametrize(("kind", "take"), [("channel", one), ("channel", batch), ("session", one)])
async def test_waits_that_are_shorter_than_the_round_trip_get_the_message(kind: str, take: Take) -> None:
    async with Broker() as broker, FaultProxy("127.0.0.1", broker.port or 0) as proxy:
        async with harebell.connect(broker.url) as other, other.channel() as channel:
            await channel.confirm_select()
            await channel.queue_declare("q")
            await channel.publish(b"1", "", "q")
            made: Any = harebell.connect if kind == "channel" else connect
            async with made(f"amqp://127.0.0.1:{proxy.port}", timeout=60) as connection:
                async with getattr(connection, kind)() as end:
                    consumer = end.consume("q")
                    proxy.delay(SLOW, "to_client")
                    polls, found = 0, None
                    while found is None:
                        found, polls = await take(consumer), polls + 1
                    assert (found, polls > 1) == (b"1", True)
                    proxy.delay(0.0)
                    assert (await channel.queue_declare("q", passive=True)).consumer_count == 1
                    await consumer.cancel()

            async def nobody() -> bool:
                return (await channel.queue_declare("q", passive=True)).consumer_count == 0

            await eventually(nobody)


@pytest.mark.parametrize("kind", ["channel", "session"])
@pytest.mark.parametrize("way", ["cancel", "drop"])
async def test_a_consumer_that_is_ended_while_it_starts_leaves_no_subscription(kind: str, way: str) -> None:
    async with Broker() as broker, FaultProxy("127.0.0.1", broker.port or 0) as proxy:
        async with harebell.connect(broker.url) as other, other.channel() as channel:
            await channel.queue_declare("q")
            made: Any = harebell.connect if kind == "channel" else connect
            async with made(f"amqp://127.0.0.1:{proxy.port}", timeout=60) as connection:
                async with getattr(connection, kind)() as end:
                    consumer = end.consume("q")
                    with proxy.stalled("to_client"):
                        assert await one(consumer) is None
                        ending = asyncio.create_task(consumer.cancel()) if way == "cancel" else None
                        del consumer
                        await asyncio.sleep(0)
                    if ending is not None:
                        await ending

                    async def nobody() -> bool:
                        return (await channel.queue_declare("q", passive=True)).consumer_count == 0

                    await eventually(nobody)


async def test_the_next_wait_is_told_why_the_start_failed() -> None:
    async with Broker() as broker, FaultProxy("127.0.0.1", broker.port or 0) as proxy:
        url = f"amqp://127.0.0.1:{proxy.port}"
        async with harebell.connect(url, timeout=60) as connection, connection.channel() as channel:
            consumer = channel.consume("none")
            with proxy.stalled("to_client"):
                assert await one(consumer) is None
            with pytest.raises(errors.NotFound):
                await anext(consumer)


class Scripted:
    """A consumer whose starts end as the test says."""

    def __init__(self) -> None:
        self.first: asyncio.Task[None] | None = None
        self.answers: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


async def given_up(consumer: Scripted) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start_by_waiting(consumer), 0.001)


async def test_one_start_for_all_waits() -> None:
    consumer = Scripted()
    await given_up(consumer)
    await given_up(consumer)
    waiting = [asyncio.create_task(start_by_waiting(consumer)) for _ in range(2)]
    await asyncio.sleep(0)
    (answer,) = consumer.answers
    answer.set_result(None)
    await asyncio.gather(*waiting)
    assert consumer.first is None


async def test_an_error_is_raised_once_and_the_next_wait_starts_again() -> None:
    consumer = Scripted()
    await given_up(consumer)
    consumer.answers[0].set_exception(errors.NotFound("no queue"))
    await asyncio.sleep(0.001)
    with pytest.raises(errors.NotFound):
        await start_by_waiting(consumer)
    await given_up(consumer)
    assert len(consumer.answers) == 2
    await stop_starting(consumer)
    assert consumer.answers[1].cancelled()
    await stop_starting(consumer)
