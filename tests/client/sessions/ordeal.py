"""Consume, transform, publish over two durable queues, while connections are cut and stalled all the time.

    python -m tests.client.sessions.ordeal [--messages 200000] [--seed 1]

A session fills the first queue, another one moves each message to the second in transactions of fifty. A proxy cuts the
connection some ten times a second: at once, within a frame, or after a stall. In the end each message is in the
second queue once, in order, and nothing in the first.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from dataclasses import dataclass

import harebell
from harebell.broker import Broker
from harebell.client.sessions import Connection, connect
from harebell.testing import FaultProxy
from tests.client.sessions.kit import FAST, drained

__all__ = ["Figures", "endured"]

BATCH = 50  # messages of a transaction
CALL = 1000  # messages of a publish_many
WINDOW = 200
PAUSES = (0.01, 0.12)  # seconds between two faults
TIMEOUT = 120.0


@dataclass
class Figures:
    messages: int
    lost: int
    doubled: int
    in_order: bool
    left: int
    connections: int
    seconds: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.left) and self.in_order

    def __str__(self) -> str:
        return (
            f"{self.messages:,} messages, {self.connections - 2:,} connections lost, {self.seconds:.0f} s: "
            f"lost {self.lost}, doubled {self.doubled}, left {self.left}, {'' if self.in_order else 'NOT '}in order"
        )


async def endured(messages: int, seed: int) -> Figures:
    """What came of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with Broker(data=folder) as broker:
            assert broker.port is not None
            async with connect(broker.url, timeout=TIMEOUT) as quiet, quiet.session() as watcher:
                for queue in ("in", "out"):
                    await watcher.queue_declare(queue, durable=True)
                async with FaultProxy("127.0.0.1", broker.port) as proxy:
                    faults = asyncio.create_task(_faults(proxy, random.Random(seed)))
                    url = f"amqp://{proxy.host}:{proxy.port}"
                    async with connect(url, timeout=TIMEOUT, backoff=FAST) as connection:
                        await _fill(connection, messages)
                        await _move(connection, messages)
                        faults.cancel()
                    connections = proxy.accepted
                found = [int(body) for body in await drained(watcher, "out")]
                left = await watcher.message_count("in")
    numbers = set(found)
    return Figures(
        messages, messages - len(numbers), len(found) - len(numbers), found == sorted(found), left, connections,
        time.monotonic() - began,
    )  # fmt: skip


async def _fill(connection: Connection, messages: int) -> None:
    async with connection.session("filler") as session:
        for start in range(0, messages, CALL):
            numbers = range(start, min(start + CALL, messages))
            await session.publish_many(_publication(b"%d" % number, "in") for number in numbers)
            _progress(f"filled {numbers[-1] + 1:,}")


async def _move(connection: Connection, messages: int) -> None:
    async with connection.session("mover") as session, session.consume("in", window=WINDOW) as consumer:
        for start in range(0, messages, BATCH):
            async with session.transaction():
                batch = [await anext(consumer) for _ in range(min(BATCH, messages - start))]
                await session.publish_many(_publication(each.body, "out") for each in batch)
                for delivery in batch:
                    delivery.accept()
            _progress(f"moved {start + len(batch):,}")


def _publication(body: bytes, queue: str) -> harebell.Publication:
    return harebell.Publication(harebell.Message(body, delivery_mode=2), "", queue)


async def _faults(proxy: FaultProxy, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(*PAUSES))
        match chance.randrange(3):
            case 0:
                proxy.cut(reset=chance.random() < 0.5)
            case 1:
                proxy.cut_after(chance.randrange(5000), chance.choice(("to_server", "to_client")))
            case _:
                with proxy.stalled(chance.choice(("to_server", "to_client"))):
                    await asyncio.sleep(chance.uniform(0, 0.1))


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("harebell").setLevel(logging.ERROR)  # a line for each lost connection is too much
    figures = asyncio.run(endured(arguments.messages, arguments.seed))
    print(f"exactly once: {figures} (seed {arguments.seed})")
    return not figures.good


if __name__ == "__main__":
    sys.exit(main())
