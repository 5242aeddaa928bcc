"""The broker, the test kit and a channel pool."""

from __future__ import annotations

from typing import assert_type

import harebell
from harebell.broker import Broker
from harebell.testing import EmbeddedBroker, FaultProxy


async def serve() -> None:
    async with Broker() as broker:
        assert_type(broker, Broker)
        assert_type(broker.url, str)
        async with harebell.connect(broker.url) as connection:
            async with connection.channel_pool(max_size=5) as pool, pool.acquire() as channel:
                assert_type(channel, harebell.Channel)
            connection.channel_pool(max_size="5")  # type: ignore[arg-type]


async def test_kit() -> None:
    with EmbeddedBroker() as broker:
        assert_type(broker.url, str)
    async with FaultProxy("127.0.0.1", 5672) as proxy:
        assert_type(proxy, FaultProxy)
    EmbeddedBroker("amqp://localhost/")  # type: ignore[arg-type]
