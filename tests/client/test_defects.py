"""What other robust clients were seen to get wrong on a reconnect, on both brokers.

Only what no other test shows: docs/reference/clients.md has the whole list, each row with its tests.
"""

from __future__ import annotations

import asyncio

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.recovery.policy import Backoff, Recovery
from tests.client.outages import bodies


async def test_a6_01_an_ack_after_a_reconnect_names_the_delivery_on_the_wire(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    """Public tag 2 is wire tag 1: an ack that said 2 would cost the channel, and deliver the message again for ever."""
    await channel.queue_declare(name)
    consumer = channel.consume(name)
    for n in range(1, 6):
        await other.publish(b"m", "", name)
        async with asyncio.timeout(60):
            delivery = await anext(consumer)
        assert (delivery.delivery_tag, delivery.redelivered) == (n, False)
        delivery.ack()
        await channel.queue_declare(name, passive=True)  # the ack is there
        await connection.test().force_reconnect()
    assert channel.test().reconnection_count == 6  # by the test alone
    await consumer.cancel()
    assert await channel.queue_delete(name) == 0


async def test_a6_04_unbinding_an_exchange_and_deleting_one_forget_their_own_bindings_only(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    source, middle, last, queue = (f"{name}.{part}" for part in ("source", "middle", "last", "q"))
    for exchange in (source, middle, last):
        await channel.exchange_declare(exchange, "direct")
    await channel.queue_declare(queue)
    for key in ("a", "b"):
        await channel.exchange_bind(middle, source, key)
        await channel.queue_bind(queue, middle, key)
    await channel.exchange_bind(last, source, "a")
    await channel.queue_bind(queue, last, "a")
    await channel.exchange_unbind(middle, source, "a")
    await channel.exchange_delete(last)
    with connection.test().reconnect_blocked():
        await other.queue_delete(queue)
        for exchange in (source, middle):
            await other.exchange_delete(exchange)
    await channel.confirm_select()
    with pytest.raises(errors.Unroutable):
        await channel.publish(b"a by the source", source, "a", mandatory=True)
    ways = [(source, "b"), (middle, "a"), (middle, "b")]
    for exchange, key in ways:
        await channel.publish(f"{key} by {exchange}".encode(), exchange, key, mandatory=True)
    assert await bodies(channel, queue) == [f"{key} by {exchange}".encode() for exchange, key in ways]
    with pytest.raises(errors.NotFound):
        await other.exchange_declare(last, passive=True)
    await channel.queue_delete(queue)
    for exchange in (source, middle):
        await channel.exchange_delete(exchange)


async def test_a6_11_publish_tags_are_right_however_late_somebody_asks_for_them(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await channel.confirm_select()
    for _ in range(3):
        await channel.publish(b"m", "", queue)
    await connection.test().force_reconnect()
    confirmations = channel.confirmations()
    assert await channel.send(b"m", "", queue) == 4
    async with asyncio.timeout(60):
        confirmation = await anext(confirmations)
    assert (confirmation.publish_tag, confirmation.acked) == (4, True)


async def test_a6_12_close_does_not_wait_for_the_next_attempt(broker_url: str) -> None:
    recovery = Recovery(backoff=Backoff(1e6, 1e6))  # the next attempt is days away
    connection = await harebell.connect(broker_url, recovery=recovery)
    channel = await connection.channel()
    connection.test().disconnect_transport()
    parked = asyncio.ensure_future(channel.queue_declare("q", timeout=1e6))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await connection.close()
        with pytest.raises(errors.ChannelClosed):
            await parked
    assert not connection.recovery.tasks
