"""What `timeout` may be: every call takes `math.inf`, and refuses what is no number of seconds."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import harebell
from harebell import blocking, errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Publication
from harebell.client.sessions import connect as connect_session

NO_SECONDS = [math.nan, "5", b"5"]


class Place:
    """A connection and a channel with confirms, on which the calls are made; each queue is of one call."""

    def __init__(self, url: str, connection: Connection, channel: Channel, queue: str) -> None:
        self.url, self.connection, self.channel, self.queue = url, connection, channel, queue

    @property
    def some(self) -> list[Publication]:
        return [Publication(b"m", "", self.queue)]


async def producing(place: Place, timeout: Any) -> None:
    async with place.connection.producer(timeout=timeout) as producer:
        await producer.publish(b"m", place.queue)
        await producer.publish_many(place.some)
        await producer.publish_soon(b"m", place.queue)
        await producer.drain()


async def producing_by_call(place: Place, timeout: Any) -> None:
    async with place.connection.producer() as producer:
        await producer.publish(b"m", place.queue, timeout=timeout)
        await producer.publish_many(place.some, timeout=timeout)
        await producer.publish_soon(b"m", place.queue, timeout=timeout)
        await producer.drain(timeout=timeout)


async def asking(place: Place, timeout: Any) -> None:
    async with place.connection.serve(place.queue, bytes_of), place.connection.rpc(timeout=timeout) as rpc:
        assert (await rpc.call(b"m", place.queue)).body == b"m"


async def asking_by_call(place: Place, timeout: Any) -> None:
    async with place.connection.serve(place.queue, bytes_of), place.connection.rpc() as rpc:
        assert (await rpc.call(b"m", place.queue, timeout=timeout)).body == b"m"


def bytes_of(delivery: Delivery) -> bytes:
    return delivery.body


async def working(place: Place, **options: Any) -> None:
    async with place.connection.consume(place.queue, Delivery.ack, **options):
        pass


async def receiving(place: Place, timeout: Any) -> None:
    await place.channel.publish(b"m", "", place.queue)
    async with place.channel.consume(place.queue) as consumer:
        assert len(await consumer.receive(timeout=timeout)) == 1


async def consuming(place: Place, timeout: Any) -> None:
    async with place.channel.consume(place.queue, timeout=timeout):
        pass


async def reading(place: Place, timeout: Any) -> None:
    async with place.connection.deliveries(place.queue, timeout=timeout):
        pass


async def borrowing(place: Place, timeout: Any) -> None:
    async with place.connection.channel_pool(timeout=timeout) as pool, pool.acquire():
        pass


async def borrowing_by_call(place: Place, timeout: Any) -> None:
    async with place.connection.channel_pool() as pool, pool.acquire(timeout=timeout):
        pass


async def connecting(place: Place, **options: Any) -> None:
    async with harebell.connect(place.url, **options):
        pass


CALLS: dict[str, Callable[[Place, Any], Awaitable[object]]] = {
    "connect": lambda place, t: connecting(place, timeout=t),
    "dial_timeout": lambda place, t: connecting(place, dial_timeout=t),
    "channel": lambda place, t: place.connection.channel(timeout=t).__aenter__(),
    "queue_declare": lambda place, t: place.channel.queue_declare(place.queue, timeout=t),
    "qos": lambda place, t: place.channel.qos(prefetch_count=5, timeout=t),
    "confirm_select": lambda place, t: place.channel.confirm_select(timeout=t),
    "publish": lambda place, t: place.channel.publish(b"m", "", place.queue, timeout=t),
    "publish_many": lambda place, t: place.channel.publish_many(place.some, timeout=t),
    "get": lambda place, t: place.channel.get(place.queue, no_ack=True, timeout=t),
    "consume": consuming,
    "receive": receiving,
    "deliveries": reading,
    "producer": producing,
    "its calls": producing_by_call,
    "rpc": asking,
    "its call": asking_by_call,
    "workers": lambda place, t: working(place, timeout=t),
    "handler_timeout": lambda place, t: working(place, handler_timeout=t),
    "grace": lambda place, t: working(place, grace=t),
    "channel_pool": borrowing,
    "acquire": borrowing_by_call,
}


@pytest.fixture
async def place(broker_url: str, connection: Connection, channel: Channel, queue: str) -> Place:
    await channel.confirm_select()
    return Place(broker_url, connection, channel, queue)


@pytest.mark.parametrize("call", CALLS)
async def test_an_infinite_timeout_is_no_limit(place: Place, call: str) -> None:
    await CALLS[call](place, math.inf)


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_number_of_seconds_is_refused(place: Place, call: str) -> None:
    for given in NO_SECONDS:
        with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
            await CALLS[call](place, given)


@pytest.mark.parametrize("call", ["channel", "queue_declare", "qos", "publish", "publish_many", "get", "consume"])
async def test_a_time_that_is_over(place: Place, call: str) -> None:
    """Programs give what is left until a deadline. An answer may come before the loop looks at the time."""
    for given in (-1, -0.001, -math.inf, 0):
        with suppress(errors.DeadlineExceeded):
            await CALLS[call](place, given)


async def test_a_request_that_waits_longer_than_brokers_count_has_no_expiration(place: Place) -> None:
    seen: list[str | None] = []

    def answer(delivery: Delivery) -> bytes:
        seen.append(delivery.properties.expiration)
        return b""

    async with place.connection.serve(place.queue, answer), place.connection.rpc() as rpc:
        for seconds in (60, 1e12, math.inf):
            await rpc.call(b"", place.queue, timeout=seconds)
    assert seen == ["60000", None, None]


async def test_the_lease_of_a_relay_has_an_end(place: Place) -> None:
    with pytest.raises(errors.InvalidArgument, match="lease"):
        place.connection.relay(Any, timeout=math.inf)  # type: ignore[arg-type]


async def test_sessions_take_them_too(harebell_url: str, name: str) -> None:
    async with connect_session(harebell_url, timeout=math.inf) as connection, connection.session() as session:
        await session.queue_declare(name, timeout=math.inf)
        await session.publish(b"m", "", name, timeout=math.inf)
        for given in NO_SECONDS:
            with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                await session.queue_declare(name, timeout=given)  # type: ignore[arg-type]
        await session.queue_delete(name)


def test_blocking_waits_take_them_too(broker_url: str, name: str) -> None:
    with blocking.connect(broker_url, timeout=math.inf) as connection, connection.channel() as channel:
        channel.queue_declare(name, exclusive=True)
        channel.confirm_select(timeout=math.inf)
        channel.publish(b"m", "", name, timeout=math.inf)
        assert channel.publish_many([Publication(b"m", "", name)] * 2, timeout=math.inf) == 2
        with channel.consume(name) as consumer:
            assert consumer.receive(timeout=math.inf)
            for given in NO_SECONDS:
                with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                    consumer.receive(timeout=given)  # type: ignore[arg-type]
                with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                    channel.publish_many([Publication(b"m", "", name)], timeout=given)  # type: ignore[arg-type]
