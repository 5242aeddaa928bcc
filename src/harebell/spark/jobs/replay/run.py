"""Publishes a selection of an archive's messages again: in order, at a pace, exactly as many as were chosen.

Rules: `preview` publishes nothing. A replay is planned first: the rows and their order are fixed, and written down
under its name, so that `resume` continues with the same ones. The order is the queue's own within each queue, and the
original time between queues; with several connections, each keeps that order for its share of the queues.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.jobs.archive.reading import read
from harebell.spark.jobs.archive.selection import Selection, chosen, message_time, moment
from harebell.spark.jobs.archive.table import find_writable_table
from harebell.spark.jobs.failures import unwrapped_errors
from harebell.spark.jobs.replay.publish import DUE, TASK, Maker, Pacer, publish_rows, user_of
from harebell.spark.jobs.replay.state import Pace, QueuePlan, ReplayPlan, State, Target
from harebell.spark.options import sink_options
from harebell.spark.runtime.queries import POLL_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Pace", "Preview", "Replayed", "Route", "Selection", "Target", "preview", "replay", "resume", "select"]

ROUTES: Final = 1000  # of a preview


@dataclass(frozen=True, slots=True)
class Route:
    """The number of messages for one exchange and key."""

    exchange: str
    routing_key: str
    messages: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The messages that a replay would publish. `routes` are the commonest, `other_routes` the number of others.

    `first` and `last` are the times of the oldest and the newest message (UTC); None when there is none.
    """

    messages: int
    bytes: int
    first: datetime | None
    last: datetime | None
    routes: tuple[Route, ...]
    other_routes: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that is complete: all of `selected` are confirmed, `published` of them in this call.

    `repeated` were published a second time after a connection was lost, with the same content.
    """

    name: str
    selected: int
    published: int
    repeated: int


def select(spark: SparkSession, path: str | os.PathLike[str], selection: Selection) -> DataFrame:
    """The archive's rows that are selected, with the column `due`: the time of their turn.

    That is the latest time among the message and those before it in its queue. Raises InvalidArgument when there is
    no archive, or `where` is no condition.
    """
    return _ordered(chosen(read(spark, path), selection), selection.limit)


def preview(
    spark: SparkSession,
    path: str | os.PathLike[str],
    selection: Selection = Selection(),  # noqa: B008  # frozen
    target: Target = Target(),  # noqa: B008
) -> Preview:
    """Counts what a replay would publish, and where to."""
    from pyspark.sql import functions as f

    rows = chosen(read(spark, path), selection)
    if selection.limit is not None:
        rows = _ordered(rows, selection.limit)
    exchange = f.col("exchange") if target.exchange is None else f.lit(target.exchange)
    key = f.col("routing_key") if target.routing_key is None else f.lit(target.routing_key)
    at = f.unix_micros(message_time())
    with unwrapped_errors():
        grouped = (
            rows.groupBy(exchange.alias("exchange"), key.alias("key"))
            .agg(
                f.count("*").alias("messages"),
                f.sum(f.length("body")).alias("bytes"),
                f.min(at).alias("first"),
                f.max(at).alias("last"),
            )
            .persist()
        )
        try:
            sums = (f.count("*"), f.sum("messages"), f.sum("bytes"), f.min("first"), f.max("last"))
            routes, messages, size, first, last = grouped.agg(*sums).collect()[0]
            top = grouped.orderBy(f.desc("messages"), "exchange", "key").limit(ROUTES).collect()
        finally:
            grouped.unpersist()
    return Preview(
        messages or 0,
        size or 0,
        None if first is None else moment(first),
        None if last is None else moment(last),
        tuple(Route(row.exchange, row.key, row.messages) for row in top),
        routes - len(top),
    )


def replay(
    spark: SparkSession,
    url: str,
    path: str | os.PathLike[str],
    *,
    selection: Selection = Selection(),  # noqa: B008
    target: Target = Target(),  # noqa: B008
    pace: Pace = Pace(),  # noqa: B008
    connections: int = 1,
    name: str | None = None,
    planned: Callable[[str, int], None] = lambda name, rows: None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Replayed:
    """Publishes the selected messages of the archive with confirms; returns when all are confirmed.

    `connections`: the queues are shared among so many tasks, each with a connection; not more than Spark has cores.
    `name` (else one is made) is what `resume` wants; `planned` gets it, and the number of messages, before the
    first is published. `progress` gets the number confirmed so far.

    Raises InvalidArgument for what cannot be asked, Unroutable (unless target.mandatory is false), and what the broker
    refuses. What was confirmed until then is stored: `resume` continues after it, and publishes at most a chunk (1,000
    messages) of each connection again.
    """
    if connections < 1:
        raise InvalidArgument(f"connections is {connections}, and must be at least 1")
    root = find_writable_table(path).root
    named = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    state = State(root, named)
    if state.folder.exists():
        raise InvalidArgument(f"there is a replay '{named}' already; resume it, or give another name")
    with unwrapped_errors():
        queues = _counted(select(spark, path, selection), connections)
    tasks = max((queue.task for queue in queues.values()), default=0) + 1
    plan = ReplayPlan(root.name, selection, target, pace, tasks, queues)
    state.create(plan)
    with state.held():
        planned(named, plan.rows)
        return _publish(spark, url, root, state, plan, progress, resumed=False)


def resume(
    spark: SparkSession,
    url: str,
    path: str | os.PathLike[str],
    name: str,
    *,
    planned: Callable[[str, int], None] = lambda name, rows: None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Replayed:
    """Continues an unfinished replay after the last confirmed message; does nothing for a finished one.

    Raises InvalidArgument when there is none of that name or another process runs it, DataLoss when the archive has
    lost rows since; else as `replay`.
    """
    root = find_writable_table(path).root
    state = State(root, name)
    plan = state.plan()
    with state.held():
        planned(name, plan.rows)
        return _publish(spark, url, root, state, plan, progress, resumed=True)


def _publish(
    spark: SparkSession,
    url: str,
    root: Path,
    state: State,
    plan: ReplayPlan,
    progress: Callable[[int], None],
    *,
    resumed: bool,
) -> Replayed:
    from pyspark.sql import functions as f

    before = state.confirmed(plan.tasks)
    progress(before)
    if before < plan.rows:
        rows = _planned(read(spark, root), plan)
        if resumed:
            # Missing rows would shift the others: confirmed messages are known by their number.
            with unwrapped_errors():
                found = _counted(rows, plan.tasks)
            if {queue: each.rows for queue, each in found.items()} != {q: e.rows for q, e in plan.queues.items()}:
                raise DataLoss(f"the archive {root} has not the rows any more that replay '{state.name}' began with")
        tasks = f.create_map(*(f.lit(part) for queue, each in plan.queues.items() for part in (queue, each.task)))
        rows = rows.withColumn(TASK, tasks[f.col("queue")])
        rows = rows.repartition(1) if plan.tasks == 1 else rows.repartitionById(plan.tasks, f.col(TASK))
        rows = rows.sortWithinPartitions(DUE, *_place())
        with unwrapped_errors(), _watched(lambda: state.confirmed(plan.tasks), progress):
            rows.mapInArrow(_work(url, state, plan), "published bigint").collect()
    ledgers = state.ledgers(plan.tasks)
    confirmed = sum(ledger.confirmed for ledger in ledgers)
    progress(confirmed)
    if confirmed != plan.rows:
        raise DataLoss(
            f"replay '{state.name}' was planned with {plan.rows:,} messages and {confirmed:,} are confirmed: please "
            "report this"
        )
    return Replayed(state.name, plan.rows, confirmed - before, sum(ledger.repeated for ledger in ledgers))


def _work(url: str, state: State, plan: ReplayPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task; holds plain values only."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        task = first.column(TASK)[0].as_py()
        with state.ledger(task) as ledger:
            published = publish_rows(
                _of_one_task(first, rows, task),
                sink_options({"url": url}),
                Maker(plan.archive, plan.target, user_of(url)),
                ledger,
                Pacer(plan.pace, plan.rows_of(task) / plan.rows),
            )
        yield pa.RecordBatch.from_pydict({"published": [published]})

    return work


def _of_one_task(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in rest:
        if batch.column(TASK)[batch.num_rows - 1].as_py() != task:
            raise RuntimeError("Spark gave one task the rows of two")
        yield batch


def _ordered(rows: DataFrame, limit: int | None) -> DataFrame:
    from pyspark.sql import Window, functions as f

    before = Window.partitionBy("queue").orderBy(*_place()[1:]).rowsBetween(Window.unboundedPreceding, 0)
    rows = rows.withColumn(DUE, f.max(message_time()).over(before))
    return rows if limit is None else rows.orderBy(DUE, *_place()).limit(limit)


def _planned(rows: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The rows of the plan: those of the selection that the archive had when it was planned."""
    from pyspark.sql import functions as f

    until = f.create_map(*(f.lit(part) for queue, each in plan.queues.items() for part in (queue, each.until)))
    known = chosen(rows, plan.selection).where(f.unix_micros("archived_at") <= until[f.col("queue")])
    return _ordered(known, plan.selection.limit)


def _counted(rows: DataFrame, tasks: int) -> dict[str, QueuePlan]:
    """Each queue's rows and the last arrival among them; the largest queues first, each with the least busy task.

    A queue's batches reach the archive one after the other, whole, so "until that arrival" is the same set for ever.
    """
    from pyspark.sql import functions as f

    grouped = rows.groupBy("queue").agg(f.count("*"), f.max(f.unix_micros("archived_at"))).collect()
    load = [0] * tasks
    queues = {}
    for queue, count, until in sorted(grouped, key=lambda row: (-row[1], row[0])):
        task = load.index(min(load))
        load[task] += count
        queues[queue] = QueuePlan(count, until, task)
    return queues


def _place() -> tuple[str, ...]:
    """The columns that order rows of the same time: the queue, and the place in it."""
    return "queue", "offset", "archived_at", "archived_row"


@contextmanager
def _watched(number: Callable[[], int], progress: Callable[[int], None]) -> Iterator[None]:
    """Calls `progress` with the number periodically, from a thread, until the block ends."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            progress(number())

    thread = threading.Thread(target=watch, name="replay progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
