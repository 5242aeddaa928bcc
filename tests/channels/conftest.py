"""Layers on both brokers, each test under a prefix of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import harebell
from harebell.channels import AsgiChannelLayer, ChannelLayer
from harebell.channels.names import Names
from harebell.client.channel import Channel
from harebell.testing import FaultProxy
from tests.client.conftest import broker_url, harebell_url  # noqa: F401

Make = Callable[..., ChannelLayer]
MakeSync = Callable[..., AsgiChannelLayer]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Ask again until it is so."""
    async with asyncio.timeout(seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def make(broker_url: str, prefix: str) -> AsyncIterator[Make]:  # noqa: F811
    """Layers like those of several processes: the same prefix, another client."""
    made: list[ChannelLayer] = []

    def make_one(**settings: Any) -> ChannelLayer:
        layer = ChannelLayer(broker_url, **{"prefix": prefix, "expiry": 60, "timeout": 60, **settings})
        made.append(layer)
        return layer

    yield make_one
    for layer in made:
        await layer.close()


@pytest.fixture
def make_sync(broker_url: str, prefix: str) -> Iterator[MakeSync]:  # noqa: F811
    made: list[AsgiChannelLayer] = []

    def make_one(**settings: Any) -> AsgiChannelLayer:
        settings = {"prefix": prefix, "expiry": 60, "timeout": 60, "block_seconds": 10.0, **settings}
        layer = AsgiChannelLayer(broker_url, **settings)
        made.append(layer)
        return layer

    yield make_one
    for layer in made:
        layer.close()


@pytest.fixture
async def layer(make: Make) -> ChannelLayer:
    return make()


@pytest.fixture
async def amqp(broker_url: str) -> AsyncIterator[Channel]:  # noqa: F811
    """Somebody who looks at the broker."""
    async with harebell.connect(broker_url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        yield channel


@pytest.fixture
def names(prefix: str) -> Names:
    return Names(prefix)


@pytest.fixture
async def proxy(broker_url: str) -> AsyncIterator[FaultProxy]:  # noqa: F811
    address = urlsplit(broker_url)
    async with FaultProxy(address.hostname or "127.0.0.1", address.port or 5672) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(broker_url: str, proxy: FaultProxy) -> str:  # noqa: F811
    """The URL of the broker behind the proxy."""
    address = urlsplit(broker_url)
    return f"amqp://{address.username or 'guest'}:{address.password or 'guest'}@127.0.0.1:{proxy.port}/"
