"""Properties and arguments that fit no frame: the caller hears of it, and nobody else on the connection does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import harebell
from harebell import Message, Publication, errors
from harebell.client.blocking import connect
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.protocol.v091 import Engine, Properties

LONG = {"x": "y" * 4096}
MESSAGE = Message(b"long", headers=LONG)
PUBLICATION = Publication(MESSAGE, "", "nowhere")
SHORT = Publication(b"short", "", "nowhere")
RAW = Properties(headers=LONG).encode()
TEXT = r"takes a frame of 41\d\d bytes, the negotiated frame_max is 4096: shorten its"

pytestmark = pytest.mark.asyncio


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  counts of another task, which has no event
            await asyncio.sleep(0)


def short_frames(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}frame_max=4096"


@asynccontextmanager
async def somebody_else(connection: Connection, queue: str) -> AsyncIterator[None]:
    """Another task publishes on the same connection all the while; each of its publications is confirmed."""
    ended, count = False, 0

    async def publish() -> None:
        nonlocal count
        async with connection.channel() as channel:
            await channel.confirm_select()
            await channel.queue_declare(queue, exclusive=True)
            while not ended:
                await channel.publish(b"fine", "", queue, mandatory=True)
                count += 1

    task = asyncio.create_task(publish())
    await until(lambda: count > 0 or task.done())
    yield
    seen = count
    await until(lambda: count > seen + 3 or task.done())
    ended = True
    await task
    assert connection.is_open


async def publish(channel: Channel, connection: Connection) -> object:
    return await channel.publish(MESSAGE, "", "nowhere")


async def send(channel: Channel, connection: Connection) -> object:
    channel.confirmations()
    return await channel.send(MESSAGE, "", "nowhere")


async def publish_nowait(channel: Channel, connection: Connection) -> object:
    return channel.publish_nowait(MESSAGE, "", "nowhere")


async def raw_properties(channel: Channel, connection: Connection) -> object:
    return channel.publish_nowait(b"", "", "nowhere", raw_properties=RAW)


async def publish_many(channel: Channel, connection: Connection) -> object:
    return await channel.publish_many([SHORT, PUBLICATION, SHORT])


async def publish_many_slowly(channel: Channel, connection: Connection) -> object:
    async def source() -> AsyncIterator[Publication]:
        for publication in (SHORT, PUBLICATION, SHORT):
            yield publication

    return await channel.publish_many(source())


async def publish_bulk(channel: Channel, connection: Connection) -> object:
    return await channel.publish_bulk([b"", b"long"], [b"\0\0", RAW], "", "nowhere")


async def publish_bulk_watched(channel: Channel, connection: Connection) -> object:
    channel.notify_publish(lambda confirmation: None)
    return await publish_bulk(channel, connection)


async def producer_publish(channel: Channel, connection: Connection) -> object:
    async with connection.producer(mandatory=False) as producer:
        return await producer.publish(MESSAGE, "nowhere")


async def publish_soon(channel: Channel, connection: Connection) -> object:
    async with connection.producer(mandatory=False) as producer:
        return await producer.publish_soon(MESSAGE, "nowhere")


async def producer_publish_many(channel: Channel, connection: Connection) -> object:
    async with connection.producer(mandatory=False) as producer:
        return await producer.publish_many([SHORT, PUBLICATION, SHORT])


async def rpc(channel: Channel, connection: Connection) -> object:
    async with connection.rpc() as caller:
        return await caller.call(MESSAGE, "nowhere")


async def declare(channel: Channel, connection: Connection) -> object:
    return await channel.queue_declare("q", arguments=LONG)


async def bind(channel: Channel, connection: Connection) -> None:
    await channel.queue_bind("q", "amq.headers", arguments=LONG)


async def consume(channel: Channel, connection: Connection) -> None:
    await channel.consume("q", arguments=LONG).start()


WAYS: list[Callable[[Channel, Connection], Awaitable[object]]] = [
    publish, send, publish_nowait, raw_properties, publish_many, publish_many_slowly, publish_bulk,
    publish_bulk_watched, producer_publish, publish_soon, producer_publish_many, rpc, declare, bind, consume,
]  # fmt: skip


CASES = [(way, confirm) for way in WAYS for confirm in (True, False) if confirm or way is not send]


@pytest.mark.parametrize(
    "way, confirm", CASES, ids=[f"{way.__name__}-{'confirms' if confirm else 'plain'}" for way, confirm in CASES]
)
async def test_one_is_refused_and_the_others_go_on(
    harebell_url: str, way: Callable[[Channel, Connection], Awaitable[object]], confirm: bool, name: str
) -> None:
    async with (
        harebell.connect(short_frames(harebell_url), timeout=60, recovery=None) as connection,
        somebody_else(connection, name),
        connection.channel() as channel,
    ):
        if confirm:
            await channel.confirm_select()
        for _ in range(2):
            with pytest.raises(errors.LocalProtocolError, match=TEXT):
                await way(channel, connection)
        if confirm:
            with pytest.raises(errors.Unroutable):  # its numbering holds
                await channel.publish(b"", "", "nowhere", mandatory=True)
        await channel.queue_declare(exclusive=True)


async def test_a_producer_goes_on_behind_one_that_the_next_broker_cannot_take(harebell_url: str) -> None:
    """Orphaned under on_orphan="retry"; the broker that the connection comes back to has shorter frames."""
    async with harebell.connect(harebell_url, timeout=60) as connection:
        async with connection.producer(on_orphan="retry", mandatory=False) as producer:
            long, fine = (
                await producer.publish_soon(MESSAGE, "nowhere"),
                await producer.publish_soon(b"fine", "nowhere"),
            )
            core = connection.recovery.availability.transport
            core.engine.data_to_send()
            send_message = Engine.send_message

            def with_short_frames(engine: Engine, *args: Any) -> None:
                engine.frame_max = 4096
                send_message(engine, *args)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Engine, "send_message", with_short_frames)
                core.abort()
                with pytest.raises(errors.PublishOrphaned, match=TEXT) as caught:  # the first attempt may have arrived
                    await long
                assert isinstance(caught.value.__cause__, errors.LocalProtocolError)
                await fine


def blocking_ways() -> list[Callable[[Any], object]]:
    def bulk(channel: Any) -> object:
        return channel.publish_bulk([b"", b"long"], [b"\0\0", RAW], "", "nowhere")

    def many(channel: Any) -> object:
        return channel.publish_many([SHORT, PUBLICATION, SHORT])

    def sent(channel: Any) -> object:
        channel.confirmations()
        return channel.send(MESSAGE, "", "nowhere")

    def soon(channel: Any) -> object:
        return channel.publish_nowait(MESSAGE, "", "nowhere")

    def one(channel: Any) -> object:
        return channel.publish(MESSAGE, "", "nowhere")

    def declared(channel: Any) -> object:
        return channel.queue_declare("q", arguments=LONG)

    return [bulk, many, sent, soon, one, declared]


@pytest.mark.parametrize("way", blocking_ways(), ids=lambda way: way.__name__)
async def test_a_blocking_channel(harebell_url: str, way: Callable[[Any], object], name: str) -> None:
    def run() -> None:
        with connect(short_frames(harebell_url), timeout=60, recovery=None) as connection:
            channel, other = connection.channel(), connection.channel()
            for each in (channel, other):
                each.confirm_select()
            other.queue_declare(name, exclusive=True)
            for _ in range(2):
                with pytest.raises(errors.LocalProtocolError, match=TEXT):
                    way(channel)
                other.publish(b"fine", "", name, mandatory=True)
            channel.publish(b"fine", "", name, mandatory=True)
            assert connection.is_open

    await asyncio.to_thread(run)
