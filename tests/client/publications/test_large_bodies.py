"""Bodies of all sizes through each way to publish, over both brokers: those that are written at once, and those that
are gathered, stay whole and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

import harebell
from harebell.client.blocking import connect
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.transport.wire import LARGE_BODY

SIZES = (0, 10, 10, 10, LARGE_BODY - 1, LARGE_BODY, 4 * LARGE_BODY, 200_000)
BODIES = [b"%4d" % number + bytes(Random(number).choice(SIZES)) for number in range(60)]


async def publish(connection: Connection, channel: Channel, queue: str) -> None:
    for body in BODIES:
        await channel.publish(body, "", queue)


async def publish_confirmed(connection: Connection, channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    await asyncio.gather(*(channel.publish(body, "", queue) for body in BODIES))


async def send(connection: Connection, channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    confirmations = channel.confirmations()
    for body in BODIES:
        await channel.send(body, "", queue)
    assert all([(await anext(confirmations)).acked for _ in BODIES])


async def publish_nowait(connection: Connection, channel: Channel, queue: str) -> None:
    for body in BODIES:
        channel.publish_nowait(body, "", queue)


async def publish_many(connection: Connection, channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    assert await channel.publish_many(harebell.Publication(body, "", queue) for body in BODIES) == len(BODIES)


async def publish_many_in_a_small_window(connection: Connection, channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    publications = (harebell.Publication(body, "", queue) for body in BODIES)
    assert await channel.publish_many(publications, window=7) == len(BODIES)


async def producer(connection: Connection, channel: Channel, queue: str) -> None:
    async with connection.producer(window=20) as producer:
        for body in BODIES:
            await producer.publish_soon(body, queue)


def blocking_publish(url: str, queue: str) -> None:
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        for body in BODIES[:30]:
            channel.publish(body, "", queue)
        channel.confirm_select()
        for body in BODIES[30:]:
            channel.publish(body, "", queue)


def blocking_publish_nowait(url: str, queue: str) -> None:
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        for body in BODIES:
            channel.publish_nowait(body, "", queue)


def blocking_publish_many(url: str, queue: str) -> None:
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        channel.confirm_select()
        assert channel.publish_many(harebell.Publication(body, "", queue) for body in BODIES) == len(BODIES)


def blocking_producer(url: str, queue: str) -> None:
    with connect(url, timeout=60) as connection, connection.producer(window=20) as producer:
        for body in BODIES:
            producer.publish_soon(body, queue)


async def came(channel: Channel, queue: str) -> list[bytes]:
    async with asyncio.timeout(60):
        async with channel.consume(queue, no_ack=True) as deliveries:
            return [(await anext(deliveries)).body for _ in BODIES]


@pytest.mark.parametrize(
    "way", [publish, publish_confirmed, send, publish_nowait, publish_many, publish_many_in_a_small_window, producer]
)
async def test_bodies_of_all_sizes_come_whole_and_in_order(
    connection: Connection,
    channel: Channel,
    other: Channel,
    queue: str,
    way: Callable[[Connection, Channel, str], Awaitable[None]],
) -> None:
    await way(connection, channel, queue)
    assert await came(other, queue) == BODIES


@pytest.mark.parametrize("way", [blocking_publish, blocking_publish_nowait, blocking_publish_many, blocking_producer])
async def test_so_they_do_from_a_thread(
    broker_url: str, other: Channel, queue: str, way: Callable[[str, str], None]
) -> None:
    await asyncio.to_thread(way, broker_url, queue)
    assert await came(other, queue) == BODIES
