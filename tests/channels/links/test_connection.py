"""Lost connections: nobody who waits notices, and what arrives arrives once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.links import connection as connection_module
from harebell.channels.names import Names
from harebell.client.channel import Channel
from harebell.testing import FaultProxy

HELLO = {"type": "hello"}


async def test_a_waiting_receive_and_groups_live_on(
    broker_url: str, proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    other = ChannelLayer(broker_url, prefix=prefix, timeout=60)
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    for turn in range(3):
        waiting = asyncio.create_task(layer.receive(channel))
        shared = asyncio.create_task(layer.receive("work"))
        await asyncio.sleep(0)
        proxy.cut()
        await other.group_send("g", {"type": "x", "n": turn})
        await other.send("work", {"type": "y", "n": turn})
        assert (await asyncio.wait_for(waiting, 60))["n"] == turn
        assert (await asyncio.wait_for(shared, 60))["n"] == turn
    await layer.close()
    await other.close()


async def test_each_message_arrives_once_while_connections_are_cut(
    proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    url = proxied_url
    layers = [ChannelLayer(url, prefix=prefix, timeout=60, capacity=5000) for _ in range(2)]
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


async def test_a_send_without_a_broker_fails_in_time(
    broker_url: str, proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    await layer.send("work", HELLO)
    connection = layer.runtime.connection
    connection.settings = replace(connection.settings, timeout=0.5)
    proxy.refuse()
    proxy.cut()
    with pytest.raises((errors.DeadlineExceeded, errors.PublishOrphaned)):
        await layer.send("work", HELLO)
    await layer.close()


@pytest.mark.parametrize(
    "user, vhost, error",
    [("guest:wrong", "", errors.AccessRefused), ("guest:guest", "there.is.none", errors.NotAllowed)],
)
async def test_a_login_that_cannot_succeed_is_told_at_once(
    broker_url: str, prefix: str, user: str, vhost: str, error: type[errors.HarebellError]
) -> None:
    address = urlsplit(broker_url)
    layer = ChannelLayer(f"amqp://{user}@{address.hostname}:{address.port}/{vhost}", prefix=prefix, timeout=60)
    for call in (layer.send, layer.group_send):
        with pytest.raises(error):
            async with asyncio.timeout(60):
                await call("work", HELLO)
    for receive in (layer.receive("work"), layer.new_channel()):
        with pytest.raises(error):
            async with asyncio.timeout(60):
                await receive
    await layer.close()


async def test_names_that_another_program_uses_are_told(
    broker_url: str, prefix: str, amqp: Channel, names: Names
) -> None:
    await amqp.exchange_declare(names.groups, "topic", durable=True)
    layer = ChannelLayer(broker_url, prefix=prefix, timeout=60)
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match=f"exchange '{names.groups}' was declared by a process with"):
            await layer.send("work", HELLO)
    await amqp.exchange_delete(names.groups)
    await layer.send("work", HELLO)  # no restart is needed
    await layer.close()


async def test_a_broker_that_comes_later(
    proxied_url: str, prefix: str, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.refuse()
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    sending = asyncio.create_task(layer.send("work", HELLO))
    receiving = asyncio.create_task(layer.receive("work"))
    async with asyncio.timeout(60):
        while "the channel layer has no broker" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    proxy.accept()
    await sending
    assert await receiving == HELLO
    await layer.close()


async def test_a_layer_closed_while_it_connects_leaves_no_connection(
    proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    for frames in range(1, 12, 2):  # in the middle of each step of connecting
        proxy.no_cut()
        layer = ChannelLayer(proxied_url, prefix=f"{prefix}.{frames}", timeout=60)
        proxy.stall("to_client")
        sending = asyncio.create_task(layer.send("work", HELLO))
        await proxy.wait_connections(1)
        closing = asyncio.create_task(layer.close())
        with pytest.raises(errors.ChannelClosed):
            await asyncio.wait_for(sending, 60)
        await closing
        proxy.resume()
        await asyncio.wait_for(proxy.wait_connections(0), 60)


async def test_a_closed_connection_stays_closed(layer: ChannelLayer) -> None:
    await layer.send("work", HELLO)
    runtime = layer.runtime
    for _ in range(2):
        await runtime.call(runtime.connection.close)
    assert runtime.connection.link is None
    with pytest.raises(errors.ChannelClosed, match="the channel layer is closed"):
        await runtime.call(runtime.connection.ready)


async def test_duplicates_are_recognised_per_place_and_forgotten_in_their_order(
    layer: ChannelLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REMEMBERED", 3)
    connection = layer.runtime.connection
    assert [connection.is_new(sent, "a") for sent in (1, 2, 1, None, None, 2)] == [True, True, False, True, True, False]
    assert connection.is_new(1, "b")
    assert connection.was_seen(1, "a")
    assert connection.is_new(3, "a")  # a fourth: the first one is forgotten
    assert not connection.was_seen(1, "a")
    assert connection.was_seen(2, "a")
    assert not connection.was_seen(None, "a")
