"""Batches that are published exactly once while attempts die and the broker is killed, without Spark; counted.

    python -m tests.spark.sink.ordeal [--batches 300] [--kills 100] [--seed 1]

Each batch has a partition of up to 3,000 rows. An attempt gets them in their order, or in another one, and may die
after any row; the next one begins when it is dead, or, as with speculation, while it still runs. Meanwhile the process
of `harebell serve` is killed (SIGKILL) after random times and started again. In the end each row is in the queue once.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harebell import errors
from harebell.client.blocking import sessions
from harebell.spark.sink import session_publisher
from harebell.spark.sink.ledger import Place
from tests.spark.bad_days.brokers import HarebellServer
from tests.spark.sink.attempts import Died, attempt, batches, bodies_in, cut_short

__all__ = ["Figures", "endured"]

MOST_ROWS = 3000
PAUSES = (0.1, 1.0)  # seconds between a start and a kill
PATIENCE = 300.0


@dataclass
class Figures:
    batches: int
    rows: int
    attempts: int
    kills: int
    lost: int
    doubled: int
    seconds: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled)

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows of {self.batches} batches in {self.attempts} attempts, {self.kills} kills, "
            f"{self.seconds:.0f} s: lost {self.lost}, doubled {self.doubled}"
        )


def endured(count: int, kills: int, seed: int) -> Figures:
    """What came of it."""
    began, chance = time.monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        server = HarebellServer(Path(folder))
        server.start()
        with sessions.connect(server.url) as connection, connection.session() as session:
            session.queue_declare("rows", durable=True)
        work = Work(server.url, count, random.Random(seed + 1))
        thread = threading.Thread(target=work.run)
        thread.start()
        killed = 0
        while thread.is_alive():
            thread.join(chance.uniform(*PAUSES))
            if thread.is_alive() and killed < kills:
                server.kill()
                server.start()
                killed += 1
                progress(f"killed {killed} times, {work.done} batches done")
        if work.failure is not None:
            raise work.failure
        there = bodies_in(server.url, "rows")
        server.kill()
    wanted = {b"%d/%d" % (batch, row) for batch, rows in enumerate(work.rows) for row in range(rows)}
    return Figures(
        count, len(wanted), work.attempts, killed, len(wanted - set(there)), len(there) - len(set(there)),
        time.monotonic() - began,
    )  # fmt: skip


class Work:
    """One batch after the other, each in as many attempts as it takes."""

    def __init__(self, url: str, count: int, chance: random.Random) -> None:
        self.rows = [chance.randrange(1, MOST_ROWS) for _ in range(count)]
        self.attempts = self.done = 0
        self.failure: BaseException | None = None
        self._url = url
        self._chance = chance

    def run(self) -> None:
        try:
            for batch, rows in enumerate(self.rows):
                while not self._attempts(batch, rows):
                    pass
                self.done += 1
        except BaseException as error:
            self.failure = error

    def _attempts(self, batch: int, rows: int) -> bool:
        """One attempt, or two at the same time. Returns whether one was successful."""
        outcomes: list[bool | BaseException] = []
        plans = [self._plan(batch, rows) for _ in range(1 if self._chance.random() < 0.7 else 2)]
        threads = [threading.Thread(target=self._attempt, args=(batch, plan, outcomes)) for plan in plans]
        for thread in threads:
            thread.start()
            time.sleep(self._chance.uniform(0, 0.05))
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "an attempt hangs"
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return True in outcomes

    def _plan(self, batch: int, rows: int) -> Iterator[pa.RecordBatch]:
        bodies, chance = [b"%d/%d" % (batch, row) for row in range(rows)], self._chance
        if chance.random() < 0.5:
            chance.shuffle(bodies)
        found = batches(bodies, chance.choice((100, 700, 5000)))
        return cut_short(found, chance.randrange(1, rows + 1)) if chance.random() < 0.5 else found

    def _attempt(self, batch: int, rows: Iterator[pa.RecordBatch], outcomes: list[bool | BaseException]) -> None:
        self.attempts += 1
        try:
            attempt(self._url, "rows", Place("ordeal", batch, 0), rows, retryTimeout=str(PATIENCE))
            outcomes.append(True)
        except (Died, errors.SessionDetached):
            outcomes.append(False)
        except BaseException as error:
            outcomes.append(error)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("harebell").setLevel(logging.CRITICAL)  # a line for each lost connection is too much
    session_publisher.BLOCK_ROWS = 300  # type: ignore[misc]
    figures = endured(arguments.batches, arguments.kills, arguments.seed)
    print(f"exactly once: {figures} (seed {arguments.seed})")
    return not figures.good


if __name__ == "__main__":
    sys.exit(main())
