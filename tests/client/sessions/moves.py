"""Move messages from queue to queue while the broker is killed again and again, and count what comes.

    python -m tests.client.sessions.moves [--plain] [--kills 100] [--messages 0] [--seed 1]

A session publishes numbers to a durable queue. Another one moves them to a second queue, some at a time, each time in a
branch of a distributed transaction: it prepares, decides, and commits; after a loss it asks what is in doubt, commits
what it had decided, and rolls the rest back. With `--plain` it is `session.transaction()`; after a loss it begins again
and knows which commits were done. The process is killed (SIGKILL) after random times and started again. In the
end each number is in the second queue once, in order, and none is in the first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import harebell
from harebell import errors
from harebell.client.sessions import Connection, Consumer, Delivery, Session, Xid, connect
from tests.client.sessions.kills import PAUSES, TIMEOUT, Figures, kept, progress
from tests.client.sessions.kit import FAST
from tests.torture.server import Server

__all__ = ["endured"]

FROM, TO = "from", "to"
MOST = 50  # messages of a branch
MOST_PLAIN = 500  # ... of a transaction of the session
IDLE = 0.2  # seconds without a message, after which it is asked whether all have been moved


async def endured(kills: int, seed: int, *, plain: bool = False, least: int = 0) -> Figures:
    """What came of it.

    plain  transactions of the class tx
    least  so many messages are published, at least
    """
    began, chance = time.monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "data")
        await server.start()
        url = f"amqp://127.0.0.1:{server.port}"
        async with connect(url, timeout=TIMEOUT, backoff=FAST) as connection:
            async with connection.session() as session:
                for queue in (FROM, TO):
                    await session.queue_declare(queue, durable=True)
            enough = asyncio.Event()
            publishing = asyncio.create_task(_publish(connection, enough, least, MOST_PLAIN if plain else MOST // 2))
            moving: asyncio.Task[int] | asyncio.Task[None]
            if plain:
                moving = asyncio.create_task(_move_plainly(connection, publishing, random.Random(seed)))
            else:
                moving = asyncio.create_task(_move(connection, publishing, random.Random(seed)))
            for number in range(kills):
                await asyncio.sleep(chance.uniform(*PAUSES))
                if publishing.done() or moving.done():
                    break
                await server.kill()
                await server.start()
                progress(f"killed {number + 1} times")
            enough.set()
            messages = await publishing
            async with asyncio.timeout(TIMEOUT):
                moved = await moving
            async with connection.session() as session:
                assert not await session.message_count(FROM)
            found = await kept(url, TO)
        await server.stop()
    assert moved in (None, messages), f"{messages} were moved, {moved} by the count of the commits that returned"
    lost, doubled = len(set(range(messages)) - set(found)), len(found) - len(set(found))
    return Figures(kills, messages, lost, doubled, found == sorted(found), time.monotonic() - began)


async def _publish(connection: Connection, enough: asyncio.Event, least: int, some: int) -> int:
    """Publish numbers, some at a time, until it is enough. Returns how many."""
    numbers = itertools.count()
    published = 0
    async with connection.session("publisher", timeout=int(TIMEOUT)) as session:
        while not enough.is_set() or published < least:
            await session.publish_many([_publication(next(numbers), FROM) for _ in range(some)])
            published += some
            while (published < least or not enough.is_set()) and await session.message_count(FROM) >= 20 * some:
                pass
    return published


async def _move(connection: Connection, publishing: asyncio.Task[int], chance: random.Random) -> None:
    """Move what comes, until nothing comes any more."""
    decided: set[Xid] = set()
    async with connection.session("mover", timeout=int(TIMEOUT)) as session:
        for number in itertools.count():
            last = publishing.done()
            xid = Xid(b"move %d" % number)
            try:
                moved = await _move_some(session, xid, chance.randrange(1, MOST + 1), decided)
            except errors.SessionStateLost:
                await _resolve(session, decided)
                continue
            if last and not moved:
                return


async def _move_plainly(connection: Connection, publishing: asyncio.Task[int], chance: random.Random) -> int:
    """As `_move`, in transactions of the session. Returns how many it knows to be moved."""
    moved = 0
    async with connection.session("mover", timeout=int(TIMEOUT)) as session:
        consumer: Consumer | None = None
        while True:
            try:
                if consumer is None:
                    consumer = session.consume(FROM, window=4 * MOST_PLAIN)
                    await consumer.start()  # a wait that gives up here would give back what comes, behind what follows
                some = await _move_what_is_there(session, consumer, chance.randrange(1, MOST_PLAIN + 1))
                moved += some
                if not some and publishing.done() and await session.message_count(TO) >= publishing.result():
                    return moved
            except errors.SessionStateLost:
                await _resolve(session, set())
                consumer = None


async def _move_what_is_there(session: Session, consumer: Consumer, most: int) -> int:
    """Move up to `most` messages in a transaction. Returns how many, if its commit was done."""
    try:
        async with asyncio.timeout(IDLE):
            taken = [await anext(consumer)]
    except TimeoutError:
        return 0
    async with session.transaction():
        while len(taken) < most and consumer.buffered:
            taken.append(await anext(consumer))
        await session.publish_many([_publication(int(delivery.body), TO) for delivery in taken])
        for delivery in taken:
            delivery.accept()
    return len(taken)


async def _move_some(session: Session, xid: Xid, most: int, decided: set[Xid]) -> int:
    """Move up to `most` messages in a branch. Returns how many."""
    async with session.branch(xid):
        taken: list[Delivery] = []
        while len(taken) < most and (delivery := await session.get(FROM)) is not None:
            taken.append(delivery)
        await session.publish_many([_publication(int(delivery.body), TO) for delivery in taken])
        for delivery in taken:
            delivery.accept()
    await session.prepare(xid)
    decided.add(xid)  # a program would write it down
    await session.commit(xid)
    return len(taken)


async def _resolve(session: Session, decided: set[Xid]) -> None:
    """After the broker was killed: bring to an end what is in doubt."""
    while True:
        with contextlib.suppress(errors.SessionStateLost):
            await session.start_over()
            for xid in await session.in_doubt():
                await (session.commit(xid) if xid in decided else session.rollback(xid))
            return


def _publication(number: int, queue: str) -> harebell.Publication:
    return harebell.Publication(harebell.Message(b"%d" % number, delivery_mode=2), "", queue)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plain", action="store_true", help="session.transaction() in place of branches")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--messages", type=int, default=0, help="at least so many")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("harebell").setLevel(logging.CRITICAL)  # a line for each lost connection is too much
    figures = asyncio.run(endured(arguments.kills, arguments.seed, plain=arguments.plain, least=arguments.messages))
    print(f"moved exactly once: {figures} (seed {arguments.seed})")
    return not figures.good


if __name__ == "__main__":
    sys.exit(main())
