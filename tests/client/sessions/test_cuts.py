"""A cut after every octet of a dialogue, in either direction: nothing is lost, nothing doubled, the order stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from harebell.broker import Broker
from harebell.client.messages import Publication
from harebell.client.sessions import Session, connect
from harebell.testing import FaultProxy
from tests.client.sessions.kit import FAST, drained

Direction = Literal["to_server", "to_client"]
Dialogue = Callable[[Session], Awaitable[object]]

WANTED = [b"0", b"1", b"2"]


async def publish(session: Session) -> None:
    await session.queue_declare("in")
    for body in WANTED:
        await session.publish(body, "", "in")


async def publish_many(session: Session) -> None:
    await session.queue_declare("in")
    await session.publish_many([Publication(body, "", "in") for body in WANTED], window=2)


async def consume(session: Session) -> None:
    """Move what is in the first queue to the second, each message by itself."""
    await session.queue_declare("out")
    async with session.consume("start", window=2) as consumer:
        for _ in WANTED:
            delivery = await anext(consumer)
            await session.publish(delivery.body, "", "out")
            delivery.accept()
        await session.sync()


async def transactions(session: Session) -> None:
    """The same, with a transaction for each message."""
    await session.queue_declare("out")
    async with session.consume("start", window=2) as consumer:
        for _ in WANTED:
            delivery = await anext(consumer)
            async with session.transaction():
                await session.publish(delivery.body, "", "out")
                delivery.accept()


async def pull(session: Session) -> None:
    await session.queue_declare("out")
    for _ in WANTED:
        delivery = await session.get("start")
        assert delivery is not None
        await session.publish(delivery.body, "", "out")
        delivery.accept()
    await session.sync()


DIALOGUES: dict[str, tuple[Dialogue, str]] = {
    "publish": (publish, "in"),
    "publish_many": (publish_many, "in"),
    "consume": (consume, "out"),
    "transactions": (transactions, "out"),
    "pull": (pull, "out"),
}
STRIDE = 13  # octets between two cuts; 1 takes four minutes, and finds nothing more


async def run(dialogue: Dialogue, queue: str, after: int | None, direction: Direction) -> tuple[int, list[bytes], int]:
    """Octets in that direction, what came of the dialogue, and how often the client has dialled."""
    async with Broker() as broker:
        assert broker.port is not None
        async with connect(broker.url, timeout=60) as quiet, quiet.session("quiet") as watcher:
            await watcher.queue_declare("start")
            await watcher.publish_many([Publication(body, "", "start") for body in WANTED])
            async with FaultProxy("127.0.0.1", broker.port) as proxy:
                url = f"amqp://{proxy.host}:{proxy.port}"
                async with connect(url, timeout=60, backoff=FAST) as connection:
                    before = proxy.forwarded(direction)
                    if after is not None:
                        proxy.cut_after(after, direction)
                    async with connection.session("mover") as session:
                        await dialogue(session)
                    octets = proxy.forwarded(direction) - before
                    proxy.no_cut()
                dialled = proxy.accepted
            left = [] if queue == "in" else await drained(watcher, "start")
            assert left == []
            return octets, await drained(watcher, queue), dialled


@pytest.mark.repeats
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
@pytest.mark.parametrize("name", DIALOGUES)
async def test_a_cut_after_any_octet_changes_nothing(name: str, direction: Direction) -> None:
    dialogue, queue = DIALOGUES[name]
    octets, found, dialled = await run(dialogue, queue, None, direction)
    assert (found, dialled) == (WANTED, 1)
    places, cuts = range(0, octets, STRIDE), 0
    for at in range(0, len(places), 4):
        runs = [run(dialogue, queue, after, direction) for after in places[at : at + 4]]
        for _, found, dialled in await asyncio.gather(*runs):
            assert found == WANTED
            cuts += dialled - 1
    assert cuts > len(places) // 2  # how many octets there are depends on what is coalesced
