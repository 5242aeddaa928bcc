"""When output is written: gathered in a turn of the loop, at once where somebody waits for one answer."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest

import harebell
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.transport.wire import Wire
from harebell.protocol.v091 import Content, methods as m
from tests.client.scripted import Peer, scripted


class Writes:
    """Counts what goes to the transport of a connection."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        transport = connection.recovery.availability.transport._transport
        assert transport is not None
        write = transport.write

        def counted(data: bytes) -> None:
            self.count += 1
            write(data)

        class Counting:
            def __getattr__(self, name: str) -> object:
                return counted if name == "write" else getattr(transport, name)

        monkeypatch.setattr(connection.recovery.availability.transport, "_transport", Counting())


@pytest.fixture
async def confirming(connection: Connection) -> AsyncIterator[Channel]:
    async with connection.channel() as channel:
        await channel.confirm_select()
        yield channel


async def test_one_publication_is_written_within_its_turn(
    connection: Connection, confirming: Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(connection, monkeypatch)
    for done in range(1, 4):
        publish = asyncio.ensure_future(confirming.publish(b"m", "", queue))
        await asyncio.sleep(0)
        assert writes.count == done
        await publish


async def test_many_at_once_are_gathered(
    connection: Connection, confirming: Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(connection, monkeypatch)
    confirmations = await asyncio.gather(*[confirming.publish(b"m", "", queue) for _ in range(200)])
    assert [confirmation.publish_tag for confirmation in confirmations if confirmation] == list(range(1, 201))
    assert writes.count == 2  # the first one, and the rest


async def test_what_is_gathered_keeps_its_order(
    connection: Connection, confirming: Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack waits for the end of the turn, and so does what is asked after it."""
    await confirming.publish(b"first", "", queue)
    delivery = await confirming.get(queue)
    assert delivery is not None
    writes = Writes(connection, monkeypatch)
    delivery.nack()
    await confirming.publish(b"second", "", queue)
    assert writes.count == 1
    bodies = [taken.body for _ in range(2) if (taken := await confirming.get(queue, no_ack=True)) is not None]
    assert sorted(bodies) == [b"first", b"second"]


async def test_a_read_larger_than_the_buffer(confirming: Channel, queue: str) -> None:
    body = bytes(range(256)) * 4096
    await confirming.publish(body, "", queue)
    for _ in range(3):
        await confirming.publish(b"small", "", queue)
    bodies = [taken.body for _ in range(4) if (taken := await confirming.get(queue, no_ack=True)) is not None]
    assert bodies == [body, b"small", b"small", b"small"]


@pytest.mark.parametrize("together", [1, 2, 3])
async def test_confirms_alone_and_together(together: int) -> None:
    """Confirms that come one a read, and several in one: single, multiple, refused."""

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        tags: list[int] = []
        for tag in range(1, 7):
            await peer.expect(Content)
            tags.append(tag)
            if len(tags) == together:
                for each in tags[:-1]:
                    peer.send(number, m.BasicAck(each))
                peer.send(number, m.BasicAck(tags[-1], multiple=True))
                tags.clear()
                await peer.writer.drain()
        await peer.expect(Content)
        peer.send(number, m.BasicNack(7))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        for _ in range(6 // together):
            confirmations = await asyncio.gather(*[channel.publish(b"m", "", "q") for _ in range(together)])
            assert all(confirmation is not None and confirmation.acked for confirmation in confirmations)
        with pytest.raises(harebell.errors.Nacked):
            await channel.publish(b"m", "", "q")


async def test_connections_of_a_loop_share_what_they_read_into(broker_url: str) -> None:
    """That is 256 KiB, and would be most of what a connection takes."""
    bodies = [bytes([number]) * 300_000 for number in range(4)]
    connections = [await harebell.connect(broker_url, timeout=60) for _ in bodies]
    wires = [connection.recovery.availability.transport for connection in connections]
    assert len({id(wire.get_buffer(-1)) for wire in wires}) == 1
    channels = [await connection.channel() for connection in connections]
    queues = [(await channel.queue_declare("", exclusive=True)).name for channel in channels]
    for channel, queue, body in zip(channels, queues, bodies, strict=True):
        await channel.confirm_select()
        await channel.publish(body, "", queue)
    taken = await asyncio.gather(
        *[channel.get(queue, no_ack=True) for channel, queue in zip(channels, queues, strict=True)]
    )
    assert [None if delivery is None else delivery.body for delivery in taken] == bodies
    other = asyncio.new_event_loop()
    assert Wire(other).get_buffer(-1) is not wires[0].get_buffer(-1)
    other.close()
    for connection in connections:
        await connection.close()


async def test_a_connection_takes_little_memory(broker_url: str) -> None:
    async def opened() -> list[tuple[Connection, Channel]]:
        connections = [await harebell.connect(broker_url, timeout=60) for _ in range(5)]
        return [(connection, await connection.channel()) for connection in connections]

    first = await opened()  # what is loaded and made once
    tracemalloc.start()
    try:
        channels = await opened()
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/harebell/client/*")])
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in taken.traces) / len(channels) < 40_000  # the broker may be in this process, too
    for connection, _ in [*first, *channels]:
        await connection.close()
