"""Client and broker in one process, joined by a socket pair instead of a port."""

from __future__ import annotations

import pytest

import harebell
from harebell.broker import Broker


async def test_a_broker_without_a_port() -> None:
    async with Broker(port=None) as broker:
        with pytest.raises(RuntimeError, match="no port"):
            _ = broker.url
        async with harebell.connect(sock=await broker.open_socket()) as connection, connection.channel() as channel:
            await channel.queue_declare("q")
            await channel.publish(b"hello", "", "q")
            delivery = await channel.get("q", no_ack=True)
            assert delivery is not None
            assert delivery.body == b"hello"
