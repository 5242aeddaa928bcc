"""The asyncio face's channel, against both brokers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

import harebell
from harebell import blocking, errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication, QueueInfo, Returned
from harebell.client.recovery.policy import Recovery
from harebell.client.sessions import connect as connect_session
from harebell.testing import RabbitMQ


async def test_the_backlog_is_asked_for_each_time(channel: Channel, other: Channel, queue: str, name: str) -> None:
    await channel.confirm_select()
    for n in range(3):
        assert await channel.message_count(queue) == n
        await channel.publish(b"m", "", queue)
    await other.queue_purge(queue)
    assert await channel.message_count(queue) == 0
    with pytest.raises(errors.NotFound):
        await channel.message_count(f"{name}.missing")


async def test_declare_bind_publish_get(channel: Channel, queue: str, name: str) -> None:
    exchange = f"{name}.x"
    await channel.exchange_declare(exchange, "topic", auto_delete=True)
    await channel.exchange_declare(exchange, passive=True)
    await channel.queue_bind(queue, exchange, "EWR.#")
    await channel.confirm_select()
    message = Message(b"body", message_id="1", headers={"k": [1, None, "x"]})
    confirmation = await channel.publish(message, exchange, "EWR.UA.IAH", mandatory=True)
    assert confirmation is not None
    assert (confirmation.publish_tag, confirmation.acked) == (1, True)
    assert await channel.queue_declare(queue, passive=True) == QueueInfo(queue, 1, 0)
    delivery = await channel.get(queue)
    assert delivery is not None
    assert (delivery.body, delivery.exchange, delivery.routing_key) == (b"body", exchange, "EWR.UA.IAH")
    assert delivery.properties == message.properties
    delivery.ack()
    assert await channel.get(queue) is None
    await channel.queue_unbind(queue, exchange, "EWR.#")
    await channel.exchange_delete(exchange)


async def test_the_broker_names_a_queue(channel: Channel) -> None:
    info = await channel.queue_declare(exclusive=True)
    assert info.name.startswith("amq.gen")
    assert await channel.queue_delete(info.name) == 0


async def test_an_error_closes_this_channel_only(broker_url: str, name: str) -> None:
    recovery = Recovery(reopen_channels=False)
    async with (
        harebell.connect(broker_url, recovery=recovery) as connection,
        connection.channel() as channel,
        connection.channel() as other,
    ):
        with pytest.raises(errors.NotFound, match=name):
            await channel.queue_declare(name, passive=True)
        assert isinstance(channel.closed_reason, errors.NotFound)
        with pytest.raises(errors.ChannelClosed, match=f"channel {channel.number} is closed: 404") as caught:
            await channel.queue_declare(name)
        assert isinstance(caught.value.__cause__, errors.NotFound)
        with pytest.raises(errors.ChannelClosed):
            channel.ack(1)
        await other.queue_declare(name, exclusive=True)
        assert connection.is_open


async def test_everything_that_waits_on_a_dying_channel_gets_the_reason(frail: Channel, queue: str) -> None:
    async with frail.consume(queue) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        calls = [asyncio.ensure_future(frail.queue_declare("", passive=True)) for _ in range(3)]
        await frail.publish(b"", f"{queue}.missing")  # has no answer of its own
        results = await asyncio.gather(waiting, *calls, return_exceptions=True)
    assert all(isinstance(result, errors.AmqpError) for result in results)
    assert len({id(result) for result in results}) == 4


async def test_publishes_without_confirms(channel: Channel, queue: str) -> None:
    for n in range(2000):
        assert await channel.publish(str(n).encode(), "", queue) is None
    await channel.drain()
    seen = 0
    async for delivery in channel.consume(queue, no_ack=True):
        assert delivery.body == str(seen).encode()
        seen += 1
        if seen == 2000:
            break


@pytest.mark.parametrize("given", [b"m", Message(b"m"), "m", None, ("m", "", "q")], ids=repr)
async def test_what_is_no_publication_is_refused(
    connection: Connection, channel: Channel, harebell_url: str, queue: str, given: Any
) -> None:
    many: list[Any] = [Publication(Message(b"first"), "", queue), given]
    await channel.confirm_select()
    refused = functools.partial(pytest.raises, errors.InvalidArgument, match="a publication is a harebell.Publication")
    with refused() as found:
        await channel.publish_many(many)
    assert found.value.sent == 1
    async with connection.producer() as producer, connection.producer(codec=harebell.JSON()) as coding:
        for each in (producer, coding):
            with refused():
                await each.publish_many(many)
    async with connect_session(harebell_url) as sessions, sessions.session() as session:
        with refused():
            await session.publish_many([given])

    def in_a_thread() -> None:
        with blocking.connect(harebell_url) as other, other.channel() as plain:
            with refused():
                plain.publish_many([given])
            with other.producer() as producer, other.producer(codec=harebell.JSON()) as coding:
                for each in (producer, coding):
                    with refused():
                        each.publish_many([given])

    await asyncio.to_thread(in_a_thread)


async def test_publish_many_from_any_source(channel: Channel, queue: str) -> None:
    async def source() -> AsyncIterator[Publication]:
        for n in range(700):
            if n % 100 == 0:
                await asyncio.sleep(0)
            yield Publication(b"a", "", queue)

    await channel.confirm_select()
    assert await channel.publish_many([Publication(b"l", "", queue)] * 700, window=64) == 700
    assert await channel.publish_many((Publication(b"g", "", queue) for _ in range(700)), window=1) == 700
    assert await channel.publish_many(source(), window=300) == 700
    assert await channel.publish_many([]) == 0
    assert (await channel.queue_declare(queue, passive=True)).message_count == 2100
    with pytest.raises(errors.InvalidArgument, match="window"):
        await channel.publish_many([], window=0)


async def test_concurrent_publishers_share_a_channel(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    results = await asyncio.gather(
        *[channel.publish(b"m", "", queue) for _ in range(300)],
        channel.publish_many([Publication(b"m", "", queue)] * 300),
        channel.publish_many([Publication(b"m", "", queue)] * 300, window=7),
    )
    assert results[300:] == [300, 300]
    tags = [result.publish_tag for result in results[:300] if isinstance(result, harebell.Confirmation)]
    assert len(set(tags)) == 300
    assert (await channel.queue_declare(queue, passive=True)).message_count == 900


async def test_returns_are_tied_to_their_publication(channel: Channel, queue: str, name: str) -> None:
    """Equal message ids and bodies in flight: each gets its own answer."""
    await channel.confirm_select()
    message = Message(b"same", message_id="same")
    targets = [queue, f"{name}.a", queue, f"{name}.b", f"{name}.a", queue]
    results = await asyncio.gather(
        *[channel.publish(message, "", target, mandatory=True) for target in targets], return_exceptions=True
    )
    for target, result in zip(targets, results, strict=True):
        if target == queue:
            assert isinstance(result, harebell.Confirmation)
        else:
            assert isinstance(result, errors.Unroutable)
            assert isinstance(result.returned, Returned)
            assert result.returned.routing_key == target
            assert target in str(result)
    assert channel.is_open


async def test_the_same_address_routable_by_headers_only(channel: Channel, queue: str, name: str) -> None:
    exchange = f"{name}.h"
    await channel.exchange_declare(exchange, "headers", auto_delete=True)
    await channel.queue_bind(queue, exchange, arguments={"x-match": "all", "to": "here"})
    await channel.confirm_select()
    results = await asyncio.gather(
        *[
            channel.publish(Message(b"same", headers={"to": to}), exchange, "k", mandatory=True)
            for to in ("here", "there", "here", "there")
        ],
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["Confirmation", "Unroutable"] * 2


async def test_returns_without_confirms(channel: Channel, name: str) -> None:
    returned: list[Returned] = []
    channel.on_return = returned.append
    await channel.publish(b"lost", "", name, mandatory=True)
    await channel.queue_delete(name)  # its reply comes after the return
    assert [r.body for r in returned] == [b"lost"]


async def test_one_unroutable_of_many(channel: Channel, queue: str, name: str) -> None:
    await channel.confirm_select()
    batch = [Publication(b"m", "", queue, True)] * 50
    batch[20:20] = [Publication(b"lost", "", name + ".none", True)] * 2
    with pytest.raises(errors.Unroutable, match="2 of 52"):
        await channel.publish_many(batch)
    assert (await channel.queue_declare(queue, passive=True)).message_count == 50


async def test_get_nack_reject_recover(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    await channel.publish(b"m", "", queue)
    first = await channel.get(queue)
    assert first is not None
    first.nack()
    second = await channel.get(queue)
    assert second is not None
    assert second.redelivered
    await channel.recover(requeue=True)
    third = await channel.get(queue)
    assert third is not None
    third.reject()
    assert await channel.get(queue) is None


async def test_qos_limits_what_is_under_way(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    await channel.publish_many([Publication(b"m", "", queue)] * 30)
    await channel.qos(prefetch_count=10)
    async with channel.consume(queue) as consumer:
        tags = [(await anext(consumer)).delivery_tag for _ in range(10)]
        assert consumer.buffered == 0
        assert (await channel.queue_declare(queue, passive=True)).message_count == 20
        channel.ack(tags[-1], multiple=True)
        assert (await anext(consumer)).delivery_tag == tags[-1] + 1


async def test_closing_twice_and_after_the_connection(broker_url: str) -> None:
    connection = await harebell.connect(broker_url)
    channel = await connection.channel()
    other = await connection.channel()
    await channel.close()
    await channel.close()
    await connection.close()
    await connection.close()
    await other.close()
    with pytest.raises(errors.ChannelClosed, match="closed by this client"):
        await other.queue_declare("q")
    with pytest.raises(errors.ChannelClosed, match="closed by this client"):
        await connection.channel()
    assert isinstance(await connection.wait_closed(), errors.ChannelClosed)


async def test_channel_numbers_are_used_again(connection: Connection) -> None:
    numbers = set()
    for _ in range(5):
        async with connection.channel() as channel:
            numbers.add(channel.number)
    assert numbers == {1}


async def test_a_refused_login(broker_url: str) -> None:
    with pytest.raises(errors.AccessRefused, match="ACCESS_REFUSED"):
        await harebell.connect(broker_url.replace("guest:guest", "guest:wrong"))


async def test_nobody_there() -> None:
    with pytest.raises(errors.ConnectionLost, match="localhost:1"):
        await harebell.connect("amqp://localhost:1/", timeout=5)


async def test_amqplain(any_rabbitmq: RabbitMQ) -> None:
    async with harebell.connect(f"{any_rabbitmq.url}?auth_mechanism=AMQPLAIN") as connection:
        assert connection.is_open


async def test_a_short_heartbeat_keeps_an_idle_connection(broker_url: str) -> None:
    async with harebell.connect(broker_url, heartbeat=1) as connection:
        with pytest.raises(TimeoutError):  # it lives for as long as we care to wait
            await asyncio.wait_for(connection.wait_closed(), 2.6)
        async with connection.channel():
            pass


async def test_transactions(any_rabbitmq: RabbitMQ, name: str) -> None:
    async with harebell.connect(any_rabbitmq.url) as connection, connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        await channel.tx_select()
        await channel.publish(b"undone", "", name)
        await channel.tx_rollback()
        await channel.publish(b"done", "", name)
        await channel.tx_commit()
        delivery = await channel.get(name)
        assert delivery is not None
        assert delivery.body == b"done"


async def test_update_secret(any_rabbitmq: RabbitMQ) -> None:
    async with harebell.connect(any_rabbitmq.url) as connection:
        await connection.update_secret("new", "test")
        async with connection.channel():
            pass


async def test_a_refused_publication(any_rabbitmq: RabbitMQ, name: str) -> None:
    async with harebell.connect(any_rabbitmq.url) as connection, connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        await channel.confirm_select()
        for _ in range(2):
            await channel.publish(b"m", "", name)
        with pytest.raises(errors.Nacked, match="publication 3") as caught:
            await channel.publish(b"m", "", name)
        assert caught.value.publish_tags == (3,)
        with pytest.raises(errors.Nacked, match="5 of 5") as many:
            await channel.publish_many([Publication(b"m", "", name)] * 5)
        assert many.value.publish_tags == (4, 5, 6, 7, 8)


# -- a window of one's own -------------------------------------------------------------------------------------------


class Waiter:
    """Notes what it hears of its publications."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, object]] = []
        self.settled = asyncio.Event()

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.heard.append(("settle", publish_tag, acked))
        self.settled.set()

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.heard.append(("returned", publish_tag, returned.reply_code))

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.heard.append(("refused", publish_tag, type(error)))
        self.settled.set()

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.heard.append(("orphaned", publish_tag, type(reason)))
        self.settled.set()


async def test_publish_nowait_tells_its_waiter(channel: Channel, queue: str) -> None:
    waiter = Waiter()
    await channel.confirm_select()
    await channel.wait_publish()
    assert channel.may_publish
    assert channel.publish_nowait(b"1", "", queue, mandatory=True, waiter=waiter) == 1
    await waiter.settled.wait()
    waiter.settled.clear()
    channel.publish_nowait(b"2", "", "no." + queue, mandatory=True, waiter=waiter)
    await waiter.settled.wait()
    waiter.settled.clear()
    channel.publish_nowait(b"3", "no.such.exchange", "", waiter=waiter)
    await waiter.settled.wait()
    assert waiter.heard == [
        ("settle", 1, True), ("returned", 2, 312), ("settle", 2, True), ("refused", 3, errors.NotFound),
    ]  # fmt: skip


async def test_publish_nowait_with_properties_as_they_came(channel: Channel, queue: str) -> None:
    table = b"\x01ff\x3f\xc0\0\0"  # a float, which a table made in Python would have as a double
    raw = b"\x20\0" + len(table).to_bytes(4, "big") + table
    assert channel.publish_nowait(b"1", "", queue, raw_properties=raw) == 0
    while (delivery := await channel.get(queue, no_ack=True)) is None:
        pass
    assert delivery.raw_properties == raw
