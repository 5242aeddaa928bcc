"""Super streams: one logical stream in several queues, as RabbitMQ's stream clients have them.

    invoices = connection.super_stream("invoices", partitions=3)
    await invoices.declare()
    await producer.publish(b"...", invoices.routing_key("customer 7"), exchange=invoices.name)
    async with invoices.read(offset="first") as stream:
        async for delivery in stream: ...

A super stream is a durable direct exchange with the argument x-super-stream, and for each partition a stream queue
"NAME-KEY" bound with the key: "0", "1", ... where only their number is given. A publication's key decides about its
partition, by the hash that RabbitMQ's clients use (MurmurHash3, 32 bits, seed 104729, modulo the number of partitions),
so that several clients agree, and messages of one key keep their order.

A stream that several programs share by "single active consumer" is a feature of RabbitMQ's stream protocol, which AMQP
does not have: here each program says which partitions it reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from harebell import errors
from harebell.client.messages import Delivery
from harebell.client.patterns.source import ChannelSource
from harebell.client.patterns.streams.offsets import Offsets
from harebell.client.patterns.streams.reader import Offset, StreamReader
from harebell.client.recovery.stream_position import Resume
from harebell.client.starting import abandon_starting, start_by_waiting, stop_starting
from harebell.protocol.v091 import Table, TableLike

__all__ = ["SuperStream", "SuperStreamReader", "murmur3"]

SEED: Final = 104729
_MASK: Final = 0xFFFFFFFF


class SuperStream:
    """One super stream, made by `connection.super_stream`.

    name  its own, which is that of its exchange
    keys  the keys of its partitions, in their order
    """

    def __init__(self, connection: ChannelSource, name: str, partitions: int | Sequence[str]) -> None:
        if not isinstance(name, str) or not name:
            raise errors.InvalidArgument(f"name={name!r}: the name of a super stream is needed")
        if isinstance(partitions, int) and not isinstance(partitions, bool):
            keys = [str(n) for n in range(partitions)]
        else:
            keys = _keys(partitions)
        if not keys or len(set(keys)) < len(keys):
            raise errors.InvalidArgument(f"partitions={partitions!r}: their number, or different keys, is needed")
        self._connection = connection
        self.name = name
        self.keys = keys

    @property
    def queues(self) -> list[str]:
        """The queues of its partitions, in their order."""
        return [f"{self.name}-{key}" for key in self.keys]

    async def declare(self, *, arguments: TableLike | None = None, timeout: float | None = None) -> None:
        """Declare the exchange, the queues and their bindings.

        arguments  of the queues: {"x-max-age": "7D"}

        PreconditionFailed where something of that name exists and differs.
        """
        async with self._connection.channel(timeout=timeout) as channel:
            marked: Table = {"x-super-stream": True}
            await channel.exchange_declare(self.name, "direct", durable=True, arguments=marked, timeout=timeout)
            for order, (key, queue) in enumerate(zip(self.keys, self.queues, strict=True)):
                of_queue = {**(arguments or {}), "x-queue-type": "stream"}
                await channel.queue_declare(queue, durable=True, arguments=of_queue, timeout=timeout)
                place: Table = {"x-stream-partition-order": order}
                await channel.queue_bind(queue, self.name, key, arguments=place, timeout=timeout)

    async def delete(self, *, timeout: float | None = None) -> None:
        """Delete the queues and the exchange, with all messages."""
        async with self._connection.channel(timeout=timeout) as channel:
            for queue in self.queues:
                await channel.queue_delete(queue, timeout=timeout)
            await channel.exchange_delete(self.name, timeout=timeout)

    def routing_key(self, key: str | bytes) -> str:
        """The routing key for a message with this key, in publishing to the exchange `name`: that of its partition."""
        raw = key.encode() if isinstance(key, str) else key
        return self.keys[murmur3(raw, SEED) % len(self.keys)]

    def read(
        self,
        *,
        partitions: Sequence[str] | None = None,
        offset: Offset = "next",
        name: str = "",
        offsets: Offsets | None = None,
        resume: Resume = "handed_out",
        store_every: int = 1000,
        store_seconds: float = 5.0,
        prefetch: int = 1000,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> SuperStreamReader:
        """A reader of all partitions, or of those with these keys. The rest is as for `connection.stream`.

        A position is stored for each partition. `prefetch` is that of each.
        """
        chosen = self.keys if partitions is None else _keys(partitions)
        unknown = [key for key in chosen if key not in self.keys]
        if unknown or not chosen:
            raise errors.InvalidArgument(f"super stream {self.name!r} has the partitions {self.keys}: {chosen}?")
        return SuperStreamReader(
            [
                StreamReader(
                    self._connection, f"{self.name}-{key}", offset=offset, name=name, offsets=offsets, resume=resume,
                    store_every=store_every, store_seconds=store_seconds, prefetch=prefetch, arguments=arguments,
                    timeout=timeout,
                )
                for key in chosen
            ]
        )  # fmt: skip


class SuperStreamReader:
    """An asynchronous iterator of Delivery over several partitions, made by `SuperStream.read`.

    parts  the reader of each partition

    The messages of one partition keep their order. Which partition a delivery comes from says its `routing_key`. What
    ends the reader of one partition ends this one, and is raised here.
    """

    def __init__(self, parts: list[StreamReader]) -> None:
        self.first: asyncio.Task[object] | None = None
        self.parts = parts
        self._next = 0
        self._started = self._ended = False

    async def start(self) -> Self:
        """Subscribe to all partitions, unless that is done. NotFound when one is missing, AccessRefused."""
        if not self._started and not self._ended:
            for part in self.parts:
                await part.start()
            self._started = True
        return self

    async def store(self) -> dict[str, int | None]:
        """Store the positions now; what they are, by queue. LocalProtocolError without `offsets`."""
        return {part.queue: await part.store() for part in self.parts}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._started:
            await start_by_waiting(self)
        loop = asyncio.get_running_loop()
        while not self._ended:
            for _ in self.parts:  # each in its turn
                self._next = (self._next + 1) % len(self.parts)
                delivery = self.parts[self._next].take()
                if delivery is not None:
                    return delivery
            ended = next((part for part in self.parts if part.consumer.subscription.finished), None)
            if ended is not None:
                return await anext(ended)
            if any(part.consumer.subscription.buffer for part in self.parts):
                await asyncio.sleep(0)  # other tasks get their turn
                continue
            await self._arrived(loop.create_future())
        raise StopAsyncIteration

    async def _arrived(self, waiter: asyncio.Future[None]) -> None:
        """Wait until a delivery comes from some partition, or one ends."""
        subscriptions = [part.consumer.subscription for part in self.parts]
        for subscription in subscriptions:
            subscription.waiters.append(waiter)
        try:
            await waiter
        finally:
            for subscription in subscriptions:
                if waiter in subscription.waiters:
                    subscription.waiters.remove(waiter)

    async def close(self) -> None:
        """Store the positions, and close the channels."""
        self._ended = True
        await stop_starting(self)
        failed: BaseException | None = None
        for part in self.parts:
            try:
                await part.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            self._ended = True
            for part in self.parts:
                part.abandon()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        abandon_starting(self)
        failed: BaseException | None = None
        for part in self.parts:
            try:
                await part.__aexit__(kind, error, traceback)
            except Exception as again:
                failed = failed or again
        if failed is not None and error is None:
            raise failed


def _keys(partitions: object) -> list[str]:
    """The keys, in their order: a publication's key decides by its place among them, so a set will not do."""
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Sequence):
        raise errors.InvalidArgument(
            f"partitions={partitions!r}: a list of keys is needed, in the order of the partitions, or their number"
        )
    wrong = [key for key in partitions if not isinstance(key, str) or not key]
    if wrong:
        raise errors.InvalidArgument(f"partitions={partitions!r}: {wrong[0]!r} is no key; texts are needed")
    return list(partitions)


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3 (x86, 32 bits) of the data."""
    state = seed
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = _rotated(state, 13) * 5 + 0xE6546B64 & _MASK
    state ^= _mixed(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _MASK
