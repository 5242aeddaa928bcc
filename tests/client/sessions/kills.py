"""Publish through a session while the broker is killed again and again, and count what comes.

    python -m tests.client.sessions.kills [--kills 100] [--seed 1]

A session publishes numbers to one durable queue and, by a fanout exchange, to two others, in calls of many and one by
one. A consumer of AMQP 0-9-1 takes them out of the first queue, so that the broker forgets them on disk. The process is
killed (SIGKILL) after random times and started again. In the end each number was delivered once as new, in order, and
is once in each of the other queues.
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
from dataclasses import dataclass
from pathlib import Path

import harebell
from harebell import errors
from harebell.client.sessions import Connection, Session, connect
from tests.client.outages import eventually
from tests.client.sessions.kit import FAST
from tests.torture.server import Server

__all__ = ["Figures", "endured", "kept", "progress"]

TIMEOUT = 300.0
PAUSES = (0.1, 1.0)  # seconds between a start and a kill
TAKEN, KEPT = "taken", ("kept one", "kept two")


@dataclass
class Figures:
    kills: int
    messages: int
    lost: int
    doubled: int
    in_order: bool
    seconds: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled) and self.in_order

    def __str__(self) -> str:
        return (
            f"{self.messages:,} messages, {self.kills} kills, {self.seconds:.0f} s: "
            f"lost {self.lost}, doubled {self.doubled}, {'' if self.in_order else 'NOT '}in order"
        )


async def endured(kills: int, seed: int) -> Figures:
    """What came of it."""
    began, chance = time.monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "data")
        await server.start()
        url = f"amqp://127.0.0.1:{server.port}"
        async with connect(url, timeout=TIMEOUT, backoff=FAST) as connection:
            await _declare(connection)
            taken: list[int] = []
            enough = asyncio.Event()
            taking = asyncio.create_task(_take(url, taken))
            publishing = asyncio.create_task(_publish(connection, enough, random.Random(seed)))
            for number in range(kills):
                await asyncio.sleep(chance.uniform(*PAUSES))
                if publishing.done():
                    break
                await server.kill()
                await server.start()
                progress(f"killed {number + 1} times, {len(taken):,} taken")
            enough.set()
            messages = await publishing
            async with connection.session() as watcher:
                with contextlib.suppress(TimeoutError):  # what does not come is counted
                    async with asyncio.timeout(TIMEOUT):
                        await eventually(lambda: _is_empty(watcher))
                        await eventually(lambda: _has_come(taken, messages))  # the last ones are under way
                taking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await taking
            found = [taken, *[await kept(url, queue) for queue in KEPT]]
        await server.stop()
    everything = set(range(messages))
    return Figures(
        kills,
        messages,
        sum(len(everything - set(each)) for each in found),
        sum(len(each) - len(set(each)) for each in found),
        all(each == sorted(each) for each in found),
        time.monotonic() - began,
    )


async def _declare(connection: Connection) -> None:
    async with connection.session() as session:
        await session.exchange_declare("all", "fanout", durable=True)
        for queue in (TAKEN, *KEPT):
            await session.queue_declare(queue, durable=True)
            await session.queue_bind(queue, "all")


async def _publish(connection: Connection, enough: asyncio.Event, chance: random.Random) -> int:
    """Publish numbers until it is enough. Returns how many."""
    numbers = itertools.count()
    async with connection.session("publisher", timeout=int(TIMEOUT)) as session:
        while not enough.is_set():
            count = chance.choice((1, 1, 1, 30, 500))
            batch = [_publication(next(numbers)) for _ in range(count)]
            if count == 1:
                await session.publish(batch[0].message, "all")
            else:
                await session.publish_many(batch)
    return next(numbers)


async def kept(url: str, queue: str) -> list[int]:
    """What the queue has."""
    async with await harebell.connect(url, timeout=TIMEOUT) as connection:
        channel = await connection.channel()
        found: list[int] = []
        left = (await channel.queue_declare(queue, passive=True)).message_count
        async with channel.consume(queue, no_ack=True) as consumer:
            while len(found) < left:
                found.append(int((await anext(consumer)).body))
        return found


async def _is_empty(watcher: Session) -> bool:
    return not await watcher.message_count(TAKEN)


async def _has_come(taken: list[int], messages: int) -> bool:
    await asyncio.sleep(0.01)
    return len(set(taken)) >= messages


def _publication(number: int) -> harebell.Publication:
    return harebell.Publication(harebell.Message(b"%d" % number, delivery_mode=2), "all", "")


async def _take(url: str, taken: list[int]) -> None:
    """Consume, and note what comes as new."""
    async with await harebell.connect(url, timeout=TIMEOUT) as connection:
        channel = await connection.channel()
        seen: set[int] = set()
        async for delivery in channel.consume(TAKEN, prefetch=200):
            number = int(delivery.body)
            if not delivery.redelivered or number not in seen:
                taken.append(number)
                seen.add(number)
            with contextlib.suppress(errors.HarebellError):
                delivery.ack()


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("harebell").setLevel(logging.CRITICAL)  # a line for each lost connection is too much
    figures = asyncio.run(endured(arguments.kills, arguments.seed))
    print(f"exactly once: {figures} (seed {arguments.seed})")
    return not figures.good


if __name__ == "__main__":
    sys.exit(main())
