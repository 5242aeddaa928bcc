"""Consume, transform, publish over two queues, while the connection is cut at random: each message exactly once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from harebell.client.messages import Publication
from harebell.client.sessions import Connection, Session
from harebell.testing import FaultProxy
from tests.client.sessions.kit import drained

COUNT = 400


class Cuts:
    """Cuts after a random number of octets, in a random direction; the next one is armed when the last has cut."""

    def __init__(self, proxy: FaultProxy, seed: int) -> None:
        self._proxy = proxy
        self._random = random.Random(seed)
        self._armed_at = 0

    def arm(self) -> None:
        if self._proxy.accepted != self._armed_at:
            self._armed_at = self._proxy.accepted
            self._proxy.cut_after(
                self._random.randrange(20, 1500), "to_server" if self._random.random() < 0.5 else "to_client"
            )


async def one_by_one(session: Session, cuts: Cuts) -> None:
    """Publish what is made of a message, then accept it: the session sends both again."""
    async with session.consume("in", window=20) as consumer:
        for _ in range(COUNT):
            cuts.arm()
            delivery = await anext(consumer)
            await session.publish(b"made of " + delivery.body, "", "out")
            delivery.accept()


async def in_batches(session: Session, cuts: Cuts) -> None:
    """The same in transactions of ten messages."""
    async with session.consume("in", window=20) as consumer:
        for _ in range(COUNT // 10):
            cuts.arm()
            async with session.transaction():
                batch = [await anext(consumer) for _ in range(10)]
                await session.publish_many([Publication(b"made of " + each.body, "", "out") for each in batch])
                for delivery in batch:
                    delivery.accept()


async def pulled(session: Session, cuts: Cuts) -> None:
    """The same, a message at a time asked for."""
    for _ in range(COUNT // 4):
        cuts.arm()
        delivery = await session.get("in")
        assert delivery is not None
        await session.publish(b"made of " + delivery.body, "", "out")
        delivery.accept()


Loop = Callable[[Session, Cuts], Awaitable[None]]


@pytest.mark.repeats
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("loop", "count"),
    [(one_by_one, COUNT), (in_batches, COUNT), (pulled, COUNT // 4)],
    ids=["one by one", "in batches", "pulled"],
)
async def test_each_message_once_and_in_order(
    connection: Connection, other: Session, proxy: FaultProxy, loop: Loop, count: int, seed: int
) -> None:
    for queue in ("in", "out"):
        await other.queue_declare(queue)
    await other.publish_many([Publication(b"%d" % number, "", "in") for number in range(count)])
    async with connection.session("mover") as session:
        await loop(session, Cuts(proxy, seed))
    assert await drained(other, "in") == []
    assert await drained(other, "out") == [b"made of %d" % number for number in range(count)]
    assert proxy.accepted > 10  # it was cut that often
