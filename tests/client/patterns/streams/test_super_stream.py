"""Super streams: the hash that RabbitMQ's clients share, and several queues as one stream; against both brokers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.patterns.streams.super_stream import murmur3
from tests.client.patterns.streams.test_reader import Memory

# What other implementations give: (data, seed, hash).
KNOWN = [
    (b"", 0, 0), (b"", 1, 0x514E28B7), (b"\xff\xff\xff\xff", 0, 0x76293B50), (b"!Ce\x87", 0, 0xF55B516B),
    (b"!Ce\x87", 0x5082EDEE, 0x2362F9DE), (b"!Ce", 0, 0x7E4A8634), (b"!C", 0, 0xA0F7B07A), (b"!", 0, 0x72661CF4),
    (b"aaaa", 0x9747B28C, 0x5A97808A), (b"Hello, world!", 0x9747B28C, 0x24884CBA),
]  # fmt: skip


@pytest.mark.parametrize("data, seed, wanted", KNOWN)
def test_the_hash(data: bytes, seed: int, wanted: int) -> None:
    assert murmur3(data, seed) == wanted


def test_keys_go_where_rabbitmqs_clients_put_them(connection: Connection) -> None:
    invoices = connection.super_stream("invoices", ["01", "02", "03"])
    placed = {f"hello{n}": invoices.routing_key(f"hello{n}") for n in range(1, 11)}
    wanted = ["02", "01", "02", "03", "01", "03", "01", "02", "01", "03"]
    assert placed == {f"hello{n}": key for n, key in enumerate(wanted, 1)}
    assert invoices.routing_key(b"hello4") == "03"
    assert invoices.queues == ["invoices-01", "invoices-02", "invoices-03"]
    assert connection.super_stream("s", 2).keys == ["0", "1"]


async def test_publish_and_read(connection: Connection, other: Channel, name: str) -> None:
    events = connection.super_stream(name, 3)
    await events.declare(arguments={"x-max-length-bytes": 1_000_000_000})
    await events.declare(arguments={"x-max-length-bytes": 1_000_000_000})
    offsets, seen = {queue: Memory() for queue in events.queues}, defaultdict(list)

    class Each:
        async def load(self, queue: str, name: str) -> int | None:
            return await offsets[queue].load(queue, name)

        async def store(self, queue: str, name: str, offset: int) -> None:
            await offsets[queue].store(queue, name, offset)

    async with connection.producer(events.name) as producer:
        for n in range(60):
            key = f"customer {n % 7}"
            await producer.publish(f"{key}/{n}".encode(), events.routing_key(key), mandatory=True)
    for _ in range(2):
        async with events.read(offset="first", name="r", offsets=Each()) as stream, asyncio.timeout(60):
            for _ in range(30):
                delivery = await anext(stream)
                key, _, number = delivery.body.decode().partition("/")
                assert delivery.routing_key == events.routing_key(key)
                seen[key].append(int(number))
                delivery.ack()
            stored = await stream.store()
        assert sum(1 + (at if at is not None else -1) for at in stored.values()) == sum(map(len, seen.values()))
    assert sum(map(len, seen.values())) == 60
    assert all(numbers == sorted(numbers) for numbers in seen.values())  # each customer's in their order

    reading = events.read()
    waiting = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await reading.start()
    waiting = asyncio.ensure_future(anext(reading))
    await other.publish(b"m", events.name, "1")
    async with asyncio.timeout(60):
        assert (await waiting).body == b"m"
    waiting = asyncio.ensure_future(anext(reading))
    await events.delete()
    with pytest.raises(errors.ConsumerCancelled):
        await asyncio.wait_for(waiting, 60)
    await reading.close()
    with pytest.raises(StopAsyncIteration):
        await anext(reading)


async def test_bad_arguments(connection: Connection, name: str) -> None:
    for partitions in (0, -1, [], (), ["a", "a"]):
        with pytest.raises(errors.InvalidArgument, match="their number, or different keys"):
            connection.super_stream(name, partitions)
    wrong: list[Any] = [
        {"a", "b"}, frozenset("ab"), "ab", b"ab", {"a": 1}, (key for key in "ab"), None, True, 1.5, [1, 2], ["a", b"b"],
        ["a", None], ["a", ""], [""], [["a"]], object(), str,
    ]  # fmt: skip
    for partitions in wrong:
        with pytest.raises(errors.InvalidArgument, match="partitions="):
            connection.super_stream(name, partitions)
        if partitions is not None:
            with pytest.raises(errors.InvalidArgument, match="partitions="):
                connection.super_stream(name, ["a", "b"]).read(partitions=partitions)
    for called in (None, "", 5, b"name"):
        with pytest.raises(errors.InvalidArgument, match="the name of a super stream"):
            connection.super_stream(called, 2)  # type: ignore[arg-type]
    assert connection.super_stream(name, ("b", "a")).keys == ["b", "a"]
    events = connection.super_stream(name, 2)
    for chosen in ([], ["2"]):
        with pytest.raises(errors.InvalidArgument, match=r"has the partitions \['0', '1'\]"):
            events.read(partitions=chosen)
    with pytest.raises(errors.NotFound):
        async with events.read(partitions=["1"]):
            raise AssertionError
