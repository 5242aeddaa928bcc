"""What the broker sent before it noticed that a channel is closed costs the client nothing but that channel."""

from __future__ import annotations

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel

pytestmark = pytest.mark.asyncio


async def test_deliveries_behind_a_close(broker_url: str, channel: Channel, queue: str) -> None:
    """The queue delivers while an error closes the channel; RabbitMQ goes on with it for a while."""
    await channel.confirm_select()
    await channel.publish_many([harebell.Publication(b"x" * 100, "", queue) for _ in range(10_000)])
    async with harebell.connect(broker_url, recovery=None) as connection, connection.channel() as neighbour:
        for _ in range(10):
            async with connection.channel() as dying:
                consumer = dying.consume(queue, prefetch=0)
                await anext(aiter(consumer))
                with pytest.raises(errors.NotFound):
                    await dying.queue_declare(f"{queue} is not there", passive=True)
            await neighbour.queue_declare(queue, passive=True)
        assert connection.is_open
