"""The outbox in PostgreSQL, with all that can be killed killed at random.

Writers commit and roll back transactions of random lengths; relays of other processes are killed, and so is the server.
A table beside the outbox, written in the same transactions, says what was committed: the queue has that, each once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import harebell
from tests.client.outages import bodies, eventually
from tests.fixtures.postgres import PostgresServer

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'harebell[postgres]'")

TRANSACTIONS = 60  # of each of the writers
WRITERS = 3
RELAYS = 2

# A lease is over soon after its relay was killed. What two relays then publish at the same time the queue takes once.
RELAY = """
import asyncio, sys
import harebell
from harebell.client.patterns import outbox
outbox.SPARE = 0.1

async def main(url, conninfo):
    async with harebell.connect(url) as connection:
        await connection.relay(harebell.PostgresOutbox(conninfo), interval=0.02, timeout=1).run()

asyncio.run(main(*sys.argv[1:]))
"""


def write(conninfo: str, queue: str, name: int, seed: int) -> None:
    """Transactions one after the other; what the server's end has cut off is not tried again."""
    chance = random.Random(seed)
    outbox = None
    for turn in range(TRANSACTIONS):
        try:
            outbox = outbox or harebell.PostgresOutbox(conninfo)
            with psycopg.connect(conninfo) as db:
                for n in range(chance.randint(1, 4)):
                    what = f"{name}-{turn}-{n}"
                    db.execute("INSERT INTO written VALUES (%s)", (what,))
                    outbox.put(db, what.encode(), queue)
                    time.sleep(chance.choice((0, 0, 0.005, 0.03)))
                if chance.random() < 0.3:
                    raise psycopg.Rollback
        except psycopg.Rollback:
            pass
        except psycopg.Error:
            time.sleep(0.05)
    if outbox is not None:
        outbox.close()


async def test_each_that_was_committed_arrives_once(
    postgres: PostgresServer, postgres_database: str, harebell_url: str, name: str
) -> None:
    seed = random.SystemRandom().randrange(2**16)
    chance = random.Random(seed)
    print(f"seed {seed}")  # shown when it fails
    with psycopg.connect(postgres_database) as db:
        db.execute("CREATE TABLE written (what text)")
    outbox = harebell.PostgresOutbox(postgres_database)

    def relay() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", RELAY, harebell_url, postgres_database]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    writers = [
        threading.Thread(target=write, args=(postgres_database, name, n, seed + n), daemon=True) for n in range(WRITERS)
    ]
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        await channel.queue_declare(name, arguments={"x-message-deduplication": True, "x-cache-size": 10_000})
        relays = [relay() for _ in range(RELAYS)]
        try:
            for writer in writers:
                writer.start()
            for turn in range(3):
                before = await channel.message_count(name)

                async def have_come(before: int = before) -> bool:
                    return await channel.message_count(name) > before or not any(
                        map(threading.Thread.is_alive, writers)
                    )

                await eventually(have_come)  # so that a kill finds one at work
                victim = chance.randrange(RELAYS)
                relays[victim].kill()
                relays[victim].wait()
                if turn:
                    how = chance.choice((signal.SIGINT, signal.SIGQUIT))
                    await asyncio.to_thread(postgres.stop, how)
                    await asyncio.to_thread(postgres.start)
                relays[victim] = relay()
            for writer in writers:
                await asyncio.to_thread(writer.join)

            async def is_empty() -> bool:
                for n, process in enumerate(relays):  # one that started while the server was away has ended
                    if process.poll() is not None:
                        relays[n] = relay()
                with contextlib.suppress(psycopg.OperationalError):
                    return not await asyncio.to_thread(outbox.waiting)
                return False

            await eventually(is_empty)
        finally:
            for process in relays:
                process.kill()
                process.wait()
            outbox.close()
        with psycopg.connect(postgres_database) as db:
            committed = Counter(what.encode() for (what,) in db.execute("SELECT what FROM written"))
        assert outbox.refusals() == []
        outbox.close()
        assert committed
        assert Counter(await bodies(channel, name)) == committed
        await channel.queue_delete(name)
