"""Messages routed per second by `harebell spark simulate`, with 1,000 topic bindings; beside it what Spark costs alone.

    python benchmarks/simulate.py [--rows 1000000] [--rounds 3] [--without-spark]

The first table is the counting alone: Arrow batches of messages in, sums out, in this process. The second is the whole
job in local[2]: read Parquet, add up, route, sum; beside it a plain read of the same files that only sums the bodies'
bytes, which is the limit. "Distinct" is how many different routing keys the messages have. "JVM", "Python" and "all"
are microseconds of processor time a message, user and system: they hold on a machine that others use, a rate does not.
They also show what two cores could do. The first round is the first such job of a session (the very first starts the
Python workers, too); of the later ones it is the median.
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from routing import made_keys, made_patterns

from harebell.routing import Definitions, Router
from harebell.routing.definitions import BindingDefinition, QueueDefinition
from harebell.routing.topology import Topology, topology
from harebell.spark.jobs.simulate.counting import Counting

DISTINCT = (1_000, 236_000)


@dataclass(frozen=True)
class Spent:
    """CPU seconds of the JVM, and of all Python processes."""

    java: float
    python: float

    @property
    def whole(self) -> float:
        return self.java + self.python


def made_topology(bindings: int, queues: int, chance: random.Random) -> Topology:
    patterns = made_patterns(bindings, queues, chance)
    names = dict.fromkeys(queue for _, queue in patterns)
    return topology(
        Definitions(
            queues=tuple(QueueDefinition("/", name) for name in names),
            bindings=tuple(BindingDefinition("/", "amq.topic", queue, "queue", key) for key, queue in patterns),
        )
    )


def made_messages(rows: int, distinct: int, chance: random.Random) -> pa.Table:
    """Messages of 100 bytes within four minutes, every key as often as the others."""
    keys = pa.array(made_keys(distinct, chance))
    picked = np.random.default_rng(1).integers(0, distinct, rows)
    seconds = np.arange(rows) * 240 // rows
    return pa.table(
        {
            "exchange": pa.repeat(pa.scalar("amq.topic"), rows),
            "routing_key": keys.take(pa.array(picked)),
            "timestamp": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC")),
            "body": pa.repeat(pa.scalar(bytes(100)), rows),
        }
    )


def counted(messages: pa.Table) -> list[pa.RecordBatch]:
    """The same messages, in the form that the counting takes."""
    rows = messages.num_rows
    table = messages.select(["exchange", "routing_key"])
    table = table.append_column("at", pa.array(np.arange(rows) * 4 // rows))
    table = table.append_column("messages", pa.array(np.ones(rows, np.int64)))
    table = table.append_column("bytes", pa.array(np.full(rows, 100)))
    return list(table.to_batches(max_chunksize=10_000))


def own_cpu() -> Spent:
    return Spent(0.0, process_time())


def processes_cpu() -> Spent:
    """The CPU seconds of this process and all its descendants, including those that have ended."""
    java = python = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.Error:
            continue
        spent = times.user + times.system
        if name == "java":
            java += spent
            python += times.children_user + times.children_system
        else:
            python += spent + times.children_user + times.children_system
    return Spent(java, python)


def measured(work: Callable[[], object], clock: Callable[[], Spent], rounds: int) -> list[tuple[float, Spent]]:
    """Seconds and CPU seconds of the first round, and of as many as asked for after it."""
    figures = []
    for _ in range(rounds + 1):
        before, started = clock(), perf_counter()
        work()
        seconds, after = perf_counter() - started, clock()
        figures.append((seconds, Spent(after.java - before.java, after.python - before.python)))
    return figures


def line(what: str, distinct: int, rows: int, figures: list[tuple[float, Spent]]) -> None:
    """The first round, then the middle one of the others by its CPU."""
    later = sorted(figures[1:], key=lambda each: each[1].whole)[len(figures[1:]) // 2]
    for when, (seconds, cpu) in (("first", figures[0]), ("later", later)):
        each = [f"{spent / rows * 1e6:>6.2f}" for spent in (cpu.java, cpu.python, cpu.whole)]
        print(
            f"| {what:<33} | {distinct:>9,} | {when} | {' | '.join(each)} "
            f"| {2 * rows / cpu.whole:>19,.0f} | {rows / seconds:>12,.0f} |"
        )


def heading() -> None:
    columns = (
        f"{'what':<33}", " distinct", "round", "   JVM", "Python", "   all", "messages/s, 2 cores", "messages / s"
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |")
    print(f"|{'|'.join('-' * (len(column) + 2) for column in columns)}|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bindings", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=300)
    parser.add_argument("--without-spark", action="store_true")
    options = parser.parse_args()
    chance = random.Random(1)
    topic = made_topology(options.bindings, options.queues, chance)
    rows = options.rows
    print(f"{options.bindings:,} topic bindings, {rows:,} messages of 100 bytes; {platform.machine()}, "
          f"Python {platform.python_version()}")  # fmt: skip
    tables = {distinct: made_messages(rows, distinct, chance) for distinct in DISTINCT}
    check(topic.router, tables[DISTINCT[0]])
    heading()
    for distinct, table in tables.items():
        batches = counted(table)

        def count(batches: list[pa.RecordBatch] = batches) -> None:
            list(Counting(uuid.uuid4().hex, [topic.router], ("exchange", "routing_key"))(batches))

        line("counting alone, one core", distinct, rows, measured(count, own_cpu, options.rounds))
    if not options.without_spark:
        with tempfile.TemporaryDirectory() as folder:
            in_spark(topic, tables, Path(folder), options.rounds)


def check(router: Router, table: pa.Table) -> None:
    """The sums are those of routing every message, before anything is timed."""
    some = table.slice(0, 20_000)
    expected: dict[str, int] = {}
    for key in some.column("routing_key").to_pylist():
        for queue in router.route("amq.topic", key).queues:
            expected[queue] = expected.get(queue, 0) + 1
    found: dict[str, int] = {}
    for batch in Counting("check", [router], ("exchange", "routing_key"))(counted(some)):
        for row in batch.to_pylist():
            if row["kind"] == "queue":
                found[row["name"]] = found.get(row["name"], 0) + row["messages"]
    assert found == expected


def in_spark(topic: Topology, tables: dict[int, pa.Table], folder: Path, rounds: int) -> None:
    from harebell.spark import session
    from harebell.spark.jobs.simulate.simulation import simulate

    spark = session("benchmark of simulate")
    try:
        for distinct, table in tables.items():
            path = folder / str(distinct)
            path.mkdir()
            half = table.num_rows // 2
            for number, part in enumerate((table.slice(0, half), table.slice(half))):
                pq.write_table(part, path / f"{number}.parquet")
            frame = spark.read.parquet(str(path))
            everything = frame.selectExpr("sum(length(body))", "max(routing_key)")
            limit = measured(everything.collect, processes_cpu, rounds)
            line("Spark: read the files, no routing", distinct, table.num_rows, limit)
            whole = measured(partial(simulate, frame, topic), processes_cpu, rounds)
            line("Spark: simulate, windows of 60 s", distinct, table.num_rows, whole)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
