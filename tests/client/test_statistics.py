"""Counters of channels and connections, against what was done."""

from __future__ import annotations

import asyncio

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.statistics import ChannelStatistics, ConnectionStatistics
from tests.client.outages import FAST, eventually


async def test_a_fresh_one_is_empty(connection: Connection, channel: Channel) -> None:
    assert channel.statistics() == ChannelStatistics()
    assert connection.statistics() == ConnectionStatistics(channels=1)


async def test_publications_without_confirms(channel: Channel, queue: str) -> None:
    for _ in range(300):  # more than are sent in one turn
        await channel.publish(b"m", "", queue)
    await channel.publish_many([harebell.Publication(b"m", "", queue)] * 7)
    channel.publish_nowait(b"m", "", queue)
    counted = channel.statistics()
    assert (counted.published, counted.confirmed, counted.unconfirmed) == (308, 0, 0)


async def test_publications_with_confirms(channel: Channel, queue: str) -> None:
    await channel.publish(b"m", "", queue)
    await channel.confirm_select()
    channel.confirmations()
    await channel.publish(b"m", "", queue)
    await channel.publish_many([harebell.Publication(b"m", "", queue)] * 7)
    with pytest.raises(errors.Unroutable):
        await channel.publish(b"m", "", "nowhere", mandatory=True)
    await channel.send(b"m", "", queue)
    counted = channel.statistics()
    assert counted.published == 11
    assert counted.unconfirmed == 1
    assert counted.confirmed == 9
    assert counted.returned == 1


async def test_refused_publications(channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await channel.confirm_select()
    await channel.publish(b"m", "", name)
    with pytest.raises(errors.Nacked):
        await channel.publish_many([harebell.Publication(b"m", "", name)] * 3)
    counted = channel.statistics()
    assert (counted.published, counted.confirmed, counted.nacked) == (4, 1, 3)


async def test_deliveries(connection: Connection, channel: Channel, queue: str, other: Channel) -> None:
    await other.confirm_select()
    await other.publish_many([harebell.Publication(b"m", "", queue)] * 5)
    async with channel.consume(queue) as consumer:

        async def all_came() -> bool:
            await channel.queue_inspect(queue)
            return channel.statistics().delivered == 5

        await eventually(all_came)
        first, second = await anext(consumer), await anext(consumer)
        first.ack()
        second.nack(requeue=False)
        third = await anext(consumer)
        assert channel.statistics() == ChannelStatistics(delivered=5, settled=2, unacked=3, buffered=2, consumers=1)
        await connection.test().force_reconnect()
        with pytest.raises(errors.AcknowledgeOrphans):
            third.ack()
        for _ in range(3):
            (await anext(consumer)).ack()
        # What lay in the buffer and was not handed out is counted once.
        assert channel.statistics() == ChannelStatistics(delivered=6, settled=5, lost=1, consumers=1, reopened=1)
    statistics = connection.statistics()
    assert (statistics.delivered, statistics.settled, statistics.lost, statistics.reconnects) == (6, 5, 1, 1)


async def test_what_a_loss_orphans(channel: Channel, queue: str) -> None:
    await channel.confirm_select(on_orphan="park")
    waiting = asyncio.ensure_future(channel.publish(b"m", "", queue))
    await asyncio.sleep(0)
    channel.test().disconnect_transport()
    confirmation = await waiting
    assert confirmation is not None
    assert confirmation.orphaned
    counted = channel.statistics()
    assert (counted.published, counted.orphaned, counted.parked, counted.unconfirmed) == (1, 1, 1, 0)


async def test_closed_channels_stay_counted(connection: Connection, queue: str) -> None:
    for _ in range(3):
        async with connection.channel() as channel:
            await channel.confirm_select()
            await channel.publish(b"m", "", queue)
            assert await channel.get(queue) is not None
            closed = channel
    counted = connection.statistics()
    assert (counted.published, counted.confirmed, counted.delivered, counted.lost) == (3, 3, 3, 3)
    assert (counted.channels, counted.unacked) == (1, 0)  # the fixture's
    assert closed.statistics().lost == 1


async def test_parked_calls(broker_url: str, name: str) -> None:
    async with harebell.connect(broker_url, recovery=FAST) as connection, connection.channel() as channel:
        with connection.test().reconnect_blocked():
            waiting = asyncio.ensure_future(channel.queue_declare(name, exclusive=True))
            await asyncio.sleep(0)
            assert connection.statistics().parked_calls == 1
        await waiting
        assert connection.statistics().parked_calls == 0
        assert connection.statistics().reconnects == 1
