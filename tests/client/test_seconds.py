"""What `timeout` may be: every call takes `math.inf`, and refuses what is no number of seconds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import harebell
from harebell import blocking, errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Publication
from harebell.client.seconds import check_seconds, seconds_of, setting_of
from harebell.client.sessions import connect as connect_session

NO_SECONDS: list[Any] = [math.nan, "5", b"5", Decimal(5), timedelta(seconds=5), True, [5]]


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


def each_ack(batch: list[Delivery]) -> None:
    for delivery in batch:
        delivery.ack()


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
                await session.queue_declare(name, timeout=given)
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
                    consumer.receive(timeout=given)
                with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                    channel.publish_many([Publication(b"m", "", name)], timeout=given)


def test_any_real_number_is_one_of_seconds() -> None:
    for given in (5, 5.0, Fraction(5), 10**400):
        for checked in (check_seconds(given), seconds_of(given, 1), setting_of(given, 1)):  # type: ignore[arg-type]
            assert type(checked) is float
            assert checked == (math.inf if given == 10**400 else 5)
    assert seconds_of(-(10**400), 1) == 0


SETTINGS: dict[str, Callable[[Place, Any], object]] = {
    "producer": lambda place, t: place.connection.producer(timeout=t),
    "rpc": lambda place, t: place.connection.rpc(timeout=t),
    "serve": lambda place, t: place.connection.serve(place.queue, bytes_of, timeout=t),
    "serve, handler_timeout": lambda place, t: place.connection.serve(place.queue, bytes_of, handler_timeout=t),
    "consume": lambda place, t: place.connection.consume(place.queue, Delivery.ack, timeout=t),
    "consume, handler_timeout": lambda place, t: place.connection.consume(place.queue, Delivery.ack, handler_timeout=t),
    "consume, grace": lambda place, t: place.connection.consume(place.queue, Delivery.ack, grace=t),
    "consume, within": lambda place, t: place.connection.consume(place.queue, each_ack, batch=5, within=t),
    "deliveries": lambda place, t: place.connection.deliveries(place.queue, timeout=t),
    "dead_letters": lambda place, t: place.connection.dead_letters(place.queue, timeout=t),
    "stream": lambda place, t: place.connection.stream(place.queue, timeout=t),
    "stream, store_seconds": lambda place, t: place.connection.stream(place.queue, store_seconds=t),
    "super_stream": lambda place, t: place.connection.super_stream(place.queue, 2).read(timeout=t),
    "relay": lambda place, t: place.connection.relay(Any, timeout=t),  # type: ignore[arg-type]
    "relay, interval": lambda place, t: place.connection.relay(Any, interval=t),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", SETTINGS)
async def test_a_setting_is_checked_where_it_is_given(place: Place, call: str) -> None:
    """Nothing was awaited yet. A setting below 0 is no time that is over: no call could keep it."""
    for given in (*NO_SECONDS, -1, -0.001, -math.inf):
        with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
            SETTINGS[call](place, given)


# An argument of each name that a call needs beside its timeout.
NEEDED: dict[str, Any] = {
    "active": True,
    "binding_key": "k",
    "bodies": [],
    "body": b"m",
    "consumer_tag": "tag",
    "deliveries": [],
    "destination": "amq.direct",
    "exchange": "amq.direct",
    "message": b"m",
    "name": "amq.direct",
    "publications": [],
    "queue": "amq.no.such",
    "raw_properties": [],
    "routing_key": "k",
    "secret": "guest",
    "source": "amq.fanout",
    "xid": harebell.sessions.Xid(b"g", b"b"),
    "seconds": 5,
}


def timed_calls(cls: type) -> list[tuple[str, dict[str, Any]]]:
    """The methods of a class that are awaited and take a timeout, with what else they need."""
    found = []
    for name, function in inspect.getmembers(cls, inspect.iscoroutinefunction):
        parameters = inspect.signature(function).parameters
        if not name.startswith("_") and "timeout" in parameters:
            needed = [each.name for each in list(parameters.values())[1:] if each.default is each.empty]
            found.append((name, {each: NEEDED[each] for each in needed}))
    return found


async def check_calls(target: object, *leaving: str) -> None:
    """Each call of it refuses what is no number before it does anything: it is as usable as before."""
    calls = timed_calls(type(target))
    assert calls
    for name, needed in calls:
        if name in leaving:
            continue
        for given in NO_SECONDS:
            with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                await getattr(target, name)(**needed, timeout=given)


async def test_every_call_refuses_what_is_no_number_of_seconds(place: Place) -> None:
    place.channel.confirmations()
    await check_calls(place.channel, "cancel")
    await check_calls(place.connection)
    async with place.channel.consume(place.queue) as consumer:
        await check_calls(consumer)
        for given in NO_SECONDS:
            with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                await place.channel.cancel(consumer.tag, timeout=given)
            with pytest.raises(errors.InvalidArgument, match="a number of seconds"):
                await consumer.receive(within=given)
        await place.channel.publish(b"m", "", place.queue)
        assert (await anext(consumer)).body == b"m"
    async with place.connection.producer() as producer, place.connection.rpc() as rpc:
        await check_calls(producer)
        await check_calls(rpc)
    async with place.connection.deliveries(place.queue) as reader:
        await check_calls(reader)
    bulk = await place.channel.publish_bulk([], [])
    await check_calls(bulk)
    assert place.channel.is_open
    assert place.connection.is_open


async def test_every_call_of_a_session_does_so(harebell_url: str, name: str) -> None:
    async with connect_session(harebell_url) as connection, connection.session() as session:
        await check_calls(session)
        await check_calls(connection)
        await session.queue_declare(name, exclusive=True)
        async with session.consume(name) as consumer:
            await check_calls(consumer)
        assert connection.is_open
