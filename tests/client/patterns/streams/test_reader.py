"""Readers of streams that continue where they were; against both brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.patterns.streams.offsets import FileOffsets
from harebell.client.recovery.stream_position import Resume
from tests.client.test_consumer import fill


@pytest.fixture
async def stream(other: Channel, name: str) -> AsyncIterator[str]:
    """A stream queue with 40 messages."""
    await other.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    await fill(other, name, 40)
    yield name
    await other.queue_delete(name)


class Memory:
    """Positions in memory."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.stored: list[int] = []
        self.failing = False
        self.changed = asyncio.Event()

    async def load(self, queue: str, name: str) -> int | None:
        return self.at

    async def store(self, queue: str, name: str, offset: int) -> None:
        if self.failing:
            raise OSError("the disk is full")
        self.at = offset
        self.stored.append(offset)
        self.changed.set()


async def test_it_continues_where_it_was(connection: Connection, stream: str, tmp_path: Path) -> None:
    offsets, seen = FileOffsets(tmp_path), []
    for count in (7, 1, 12):
        async with connection.stream(stream, offset="first", name="r", offsets=offsets) as reader:
            async with asyncio.timeout(60):
                for _ in range(count):
                    delivery = await anext(reader)
                    seen.append(delivery.stream_offset)
                    delivery.ack()
        assert reader.position == len(seen) - 1
    assert seen == list(range(20))
    async with connection.stream(stream, offset="first", name="another", offsets=offsets) as reader:
        assert (await anext(reader)).stream_offset == 0
    assert await offsets.load(stream, "another") is None  # nothing was settled


async def test_what_is_stored_is_what_is_settled_with_all_before_it(connection: Connection, stream: str) -> None:
    offsets = Memory()
    async with connection.stream(stream, offset="first", name="r", offsets=offsets, store_every=10_000) as reader:
        taken = [await anext(reader) for _ in range(6)]
        assert await reader.store() is None
        for n in (0, 1, 3, 4):
            taken[n].ack()
        assert await reader.store() == reader.position == 1
        taken[2].ack()
        assert await reader.store() == 4
        assert await reader.store() == 4
    assert offsets.stored == [1, 4]


@pytest.mark.parametrize("resume, again", [("handed_out", 6), ("settled", 2)])
async def test_over_an_outage(connection: Connection, stream: str, resume: Resume, again: int) -> None:
    offsets = Memory()
    async with connection.stream(
        stream, offset="first", name="r", offsets=offsets, resume=resume, store_every=10_000
    ) as reader:
        taken = [await anext(reader) for _ in range(6)]
        taken[0].ack()
        taken[1].ack()
        await connection.test().force_reconnect()
        async with asyncio.timeout(60):
            delivery = await anext(reader)
        assert delivery.stream_offset == again
        delivery.ack()
        assert reader.position == (1 if resume == "handed_out" else 2)  # not what nobody has dealt with
        if resume == "handed_out":
            for left in taken[2:]:
                left.ack()
            assert reader.position == 6
        else:
            with pytest.raises(errors.AcknowledgeOrphans):
                taken[2].ack()


async def test_it_is_stored_as_often_as_is_asked_for(
    connection: Connection, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = Memory()
    reader = connection.stream(stream, offset=0, name="r", offsets=offsets, store_every=5, store_seconds=1000)
    async with reader, asyncio.timeout(60):
        for n in range(5):
            offsets.failing = n < 4
            (await anext(reader)).ack()
        await offsets.changed.wait()
        assert offsets.at in (3, 4)  # the fifth was handed out, and perhaps settled
    offsets.changed.clear()
    reader = connection.stream(stream, name="r", offsets=offsets, store_every=1000, store_seconds=0.01)
    async with asyncio.timeout(60):
        batch = await reader.receive(3)
        assert batch[0].stream_offset == 5
        offsets.failing = True
        batch[-1].ack(multiple=True)
        while "cannot be stored: the disk is full" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        offsets.failing = False
        (await anext(reader)).ack()
        await offsets.changed.wait()
        await reader.close()
    assert offsets.at == batch[-1].stream_offset + 1  # type: ignore[operator]
    assert await reader.receive() == []


async def test_who_is_cancelled_stores_too(
    connection: Connection, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = Memory()

    async def run() -> None:
        async with connection.stream(stream, offset="first", name="r", offsets=offsets) as reader:
            async for delivery in reader:
                delivery.ack()
                if delivery.stream_offset == 9:
                    inside.set()
                    await asyncio.Event().wait()

    for failing in (False, True):
        inside = asyncio.Event()
        offsets.at = None
        task = asyncio.ensure_future(run())
        await asyncio.wait_for(inside.wait(), 60)
        offsets.failing = failing
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert offsets.at == (None if failing else 9)
    assert "is not stored: the disk is full" in caplog.text


async def test_without_a_name_nothing_is_stored(connection: Connection, stream: str) -> None:
    reader = connection.stream(stream, offset=38)
    assert reader.position is None
    with pytest.raises(errors.LocalProtocolError, match="has not begun"):
        _ = reader.consumer
    assert [delivery.stream_offset for delivery in [await anext(reader), await anext(reader)]] == [38, 39]
    with pytest.raises(errors.LocalProtocolError, match="has no offsets"):
        await reader.store()
    with pytest.raises(KeyError):
        async with reader:
            raise KeyError
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_a_deleted_stream_ends_it(connection: Connection, other: Channel, name: str) -> None:
    await other.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    async with connection.stream(name) as reader:
        await other.queue_delete(name)
        with pytest.raises(errors.ConsumerCancelled):
            await asyncio.wait_for(anext(reader), 60)


async def test_bad_arguments(connection: Connection, name: str) -> None:
    stream: Any = connection.stream
    for options, text in (
        ({"resume": "never"}, "resume='never'"),
        ({"name": "r"}, "needs both"),
        ({"name": "r", "offsets": FileOffsets}, "offsets is .*FileOffsets'>: give an object with load"),
        ({"name": "r", "offsets": "/var/lib/billing"}, "offsets is '/var/lib/billing': give an object"),
        ({"name": "r", "offsets": 5}, "offsets is 5"),
        ({"name": "r", "offsets": {}}, "offsets is {}"),
        ({"name": "r", "offsets": SimpleNamespace(load=5, store=5)}, "load of the offsets 5 cannot be called"),
        ({"name": "r", "offsets": SimpleNamespace(load=max, store=lambda: 5)}, r"with \(queue, name, offset\)"),
        ({"offsets": Memory()}, "needs both"),
        ({"store_every": 0}, "store_every"),
        ({"store_seconds": 0}, "store_every"),
        ({"prefetch": 0}, "prefetch is 0: a whole number from 1 to 65535 is needed; a limit is needed here"),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            stream(name, **options)
    with pytest.raises(errors.NotFound):
        await harebell.Connection.stream(connection, name).start()
