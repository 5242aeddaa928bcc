"""Lost connections: nobody who waits notices, and what arrives arrives once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.testing import FaultProxy

HELLO = {"type": "hello"}


@pytest.fixture
async def proxy(broker_url: str) -> AsyncIterator[FaultProxy]:
    address = urlsplit(broker_url)
    async with FaultProxy(address.hostname or "127.0.0.1", address.port or 5672) as proxy:
        yield proxy


def through(proxy: FaultProxy, broker_url: str) -> str:
    address = urlsplit(broker_url)
    return f"amqp://{address.username or 'guest'}:{address.password or 'guest'}@127.0.0.1:{proxy.port}/"


async def test_a_waiting_receive_and_groups_live_on(broker_url: str, prefix: str, proxy: FaultProxy) -> None:
    layer = ChannelLayer(through(proxy, broker_url), prefix=prefix, timeout=15)
    other = ChannelLayer(broker_url, prefix=prefix, timeout=15)
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    for turn in range(3):
        waiting = asyncio.create_task(layer.receive(channel))
        shared = asyncio.create_task(layer.receive("work"))
        await asyncio.sleep(0)
        proxy.cut()
        await other.group_send("g", {"type": "x", "n": turn})
        await other.send("work", {"type": "y", "n": turn})
        assert (await asyncio.wait_for(waiting, 15))["n"] == turn
        assert (await asyncio.wait_for(shared, 15))["n"] == turn
    await layer.close()
    await other.close()


async def test_each_message_arrives_once_while_connections_are_cut(
    broker_url: str, prefix: str, proxy: FaultProxy
) -> None:
    url = through(proxy, broker_url)
    layers = [ChannelLayer(url, prefix=prefix, timeout=30, capacity=5000) for _ in range(2)]
    channels = [await layer.new_channel() for layer in layers]
    for layer, channel in zip(layers, channels, strict=True):
        await layer.group_add("g", channel)
    count: int
    got: tuple[list[int], list[int]]
    count, got = 300, ([], [])

    async def read(layer: ChannelLayer, channel: str, into: list[int]) -> None:
        while len(set(into)) < count:
            into.append((await layer.receive(channel))["n"])

    async def send() -> None:
        for number in range(count):
            await layers[number % 2].group_send("g", {"type": "x", "n": number})

    async def cut() -> None:
        for _ in range(8):
            await asyncio.sleep(0.12)
            proxy.cut()

    async with asyncio.timeout(60):
        await asyncio.gather(*map(read, layers, channels, got), send(), cut())
    for numbers in got:
        assert sorted(numbers) == list(range(count))
    for layer in layers:
        await layer.close()


async def test_a_send_without_a_broker_fails_in_time(broker_url: str, prefix: str, proxy: FaultProxy) -> None:
    layer = ChannelLayer(through(proxy, broker_url), prefix=prefix, timeout=0.5)
    await layer.send("work", HELLO)
    proxy.refuse()
    proxy.cut()
    with pytest.raises((errors.DeadlineExceeded, errors.PublishOrphaned)):
        await layer.send("work", HELLO)
    await layer.close()
