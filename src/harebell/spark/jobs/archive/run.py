"""One run of `archive`: queues and streams into an archive, every message once, counted.

Rules: this process is the one source of all queues: it plans their batches, hands them to Spark in jobs of about as
many messages as one batch may have, one job after the other, and commits each queue's part when its job is done. So
many queues cost no process each, none waits for the backlog of another, and one that fails ends no other. Each queue
has a checkpoint below the archive (`checkpoint`), so that queues come and go without touching each other's place.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from harebell.errors import ArchiveIncomplete, DataLoss, InvalidArgument
from harebell.spark.jobs.archive.layout import CatalogTable, Format, Table
from harebell.spark.jobs.archive.queue_run import Batch, QueueRun
from harebell.spark.jobs.archive.table import check_table, make_table
from harebell.spark.jobs.archive.tasks import run_tasks
from harebell.spark.jobs.failures import our_error
from harebell.spark.streams.bounds import BoundsReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Archived", "ArchivedQueue", "Prepared", "archive", "prepare"]

log = logging.getLogger("harebell.spark")

MESSAGES_PER_BATCH: Final = 200_000
KEY_WORDS: Final = 1
PLANNED_AT_ONCE: Final = 4  # queues that the broker is asked about at a time


@dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """The messages archived from one queue in this run.

    kind   whether it was read as a stream, or drained
    error  why not all that it had is archived; None when it is
    """

    queue: str
    kind: Literal["stream", "drained"]
    rows: int
    batches: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of a run of `archive`; `rows` and `files` are those of the whole archive after it."""

    queues: tuple[ArchivedQueue, ...]
    rows: int
    files: int

    @property
    def added(self) -> int:
        """The messages of this run."""
        return sum(each.rows for each in self.queues)


def archive(
    spark: SparkSession,
    url: str,
    queues: Sequence[str],
    path: str | os.PathLike[str],
    *,
    table: Format = "parquet",
    catalog_table: str | None = None,
    key_words: int = KEY_WORDS,
    every: float | None = None,
    stop: threading.Event | None = None,
    options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda rows: None,
    notice: Callable[[str], None] = log.warning,
) -> Archived:
    """Archives the messages of the queues at `path`, created if missing; continues where the last run ended.

    Stream queues are read and stay as they are; classic and quorum queues are drained, through a spool below the
    archive. `table`: plain Parquet files, or a Delta or an Iceberg table of them. `catalog_table` names an Iceberg
    table in a catalog of pyiceberg's configuration, catalog.namespace.table; else the archive has a catalog of its own.
    `key_words` words of the routing key name a folder. `every`: runs, with a batch every so many seconds, until `stop`
    is set; None ends with what was there at the start. `options` are further options of format("amqp"), such as
    maxMessagesPerTrigger (200,000 here), failOnDataLoss, or `spool`, which stream queues do not use.
    `progress` gets the number of messages so far, `notice` a line about a queue that fails, or is archived again.

    Raises InvalidArgument for faulty arguments, and the broker's refusals (NotFound, AccessRefused). An error of one
    queue later (DataLoss when messages of a stream are gone, a broker that stays away) does not end the others: when
    they have ended, it is raised as it is for the only queue, and in an ArchiveIncomplete for one of several.
    """
    prepared = prepare(
        url, queues, path, table=table, catalog_table=catalog_table, key_words=key_words, every=every, options=options
    )
    return prepared.run(spark, stop, progress, notice)


def prepare(
    url: str,
    queues: Sequence[str],
    path: str | os.PathLike[str],
    *,
    table: Format = "parquet",
    catalog_table: str | None = None,
    key_words: int = KEY_WORDS,
    every: float | None = None,
    options: Mapping[str, str] | None = None,
) -> Prepared:
    """What `archive` does before it needs Spark: checks arguments, folder and queues, and then makes the archive.

    Raises as `archive` does; then nothing is made.
    """
    if not queues:
        raise InvalidArgument("name at least one queue to archive")
    if twice := [queue for queue, count in Counter(queues).items() if count > 1]:
        raise InvalidArgument(f"queue '{twice[0]}' is named twice")
    if key_words < 0:
        raise InvalidArgument(f"key_words is {key_words}, and cannot be less than 0")
    if every is not None and every <= 0:
        raise InvalidArgument(f"every is {every:g} seconds, and must be more than nothing")
    name = None if catalog_table is None else CatalogTable.of(catalog_table)
    check_table(path, table, name)
    given = {"maxMessagesPerTrigger": str(MESSAGES_PER_BATCH), **(options or {}), "url": url}
    with ThreadPoolExecutor(PLANNED_AT_ONCE, "asking") as pool:
        runs = list(pool.map(lambda queue: QueueRun(queue, given), queues))
    made = make_table(path, table, name)
    _check_free(made, runs)
    return Prepared(made, key_words, every, runs)


class Prepared:
    """A run of `archive` that is checked, and can be started once."""

    def __init__(self, table: Table, key_words: int, every: float | None, runs: Sequence[QueueRun]) -> None:
        self._table, self._key_words, self._every, self._runs = table, key_words, every, runs

    def run(
        self,
        spark: SparkSession,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] = lambda rows: None,
        notice: Callable[[str], None] = log.warning,
    ) -> Archived:
        """Archives; as `archive` says."""
        runs, every, table = self._runs, self._every, self._table
        with ExitStack() as stack:
            bounds = BoundsReader(runs[0].options)
            stack.callback(bounds.close)
            for run in runs:
                try:
                    stack.enter_context(run.opened(table, bounds, notice, endless=every is not None))
                except (DataLoss, InvalidArgument) as error:
                    run.fail(error)  # the others go on
            _Rounds(spark, table, self._key_words, runs, progress).go(every, stop or threading.Event())
        files = table.files()
        done = Archived(tuple(map(_result, runs)), sum(file.rows for file in files), len(files))
        _raise_errors(runs, done)
        return done


class _Rounds:
    """Plans, writes and commits batches of all queues, until nothing is left or the run is told to end."""

    def __init__(
        self, spark: SparkSession, table: Table, key_words: int, runs: Sequence[QueueRun],
        progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._spark = spark
        self._table = table
        self._key_words = key_words
        self._runs = runs
        self._progress = progress

    def go(self, every: float | None, stop: threading.Event) -> None:
        """Goes on until `stop` is set; with `every` None, until all that was there at the start is archived."""
        while not stop.is_set():
            began = time.monotonic()
            batches = self._planned()
            for job in _jobs(batches):
                if stop.is_set():
                    return
                self._do(job, stop)
                self._progress(sum(run.rows for run in self._runs))
            left = [run for run in self._runs if not run.ended]
            if not left:
                return
            failing = [run.due for run in left if run.error is not None]
            if every is None and not batches and not failing:
                return
            if every is None or any(run.more for run in left):
                wait = 0.0 if batches else min(failing, default=0.0) - time.monotonic()
            else:
                wait = min([began + every, *failing]) - time.monotonic()
            stop.wait(max(0.0, wait))

    def _planned(self) -> list[Batch]:
        """The next batches of the queues that are due, in their order."""
        now = time.monotonic()
        due = [run for run in self._runs if not run.ended and (run.error is None or run.due <= now)]
        with ThreadPoolExecutor(PLANNED_AT_ONCE, "planning") as pool:
            return [batch for batch in pool.map(QueueRun.next_batch, due) if batch is not None]

    def _do(self, job: Sequence[Batch], stop: threading.Event) -> None:
        work = [each for batch in job for each in batch.work]
        try:
            done = iter(run_tasks(self._spark, self._table.root, self._key_words, work) if work else [])
        except Exception as error:
            # An interrupt of the whole process group ends Spark's workers too.
            if stop.is_set():
                return
            self._spark.range(1).count()  # raises when there is no Spark any more
            if len(job) == 1:
                job[0].run.fail(our_error(error) or error)
                return
            for batch in job:  # one of them, which is found in this way, or the machine
                self._do([batch], stop)
            return
        for batch in job:
            batch.run.commit(self._table, batch, [next(done) for _ in batch.work])


def _check_free(table: Table, runs: Sequence[QueueRun]) -> None:
    """Raises InvalidArgument when other processes archive all of the queues there; of some, their runs will say it."""
    refusals = []
    for run in runs:
        try:
            run.checkpoint(table).check_free()
        except InvalidArgument as refusal:
            refusals.append(refusal)
    if len(refusals) == len(runs):
        raise refusals[0]


def _jobs(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """The batches in jobs of about as many messages as one batch may have."""
    job, messages = list[Batch](), 0
    for batch in batches:
        limit = batch.run.options.max_messages or MESSAGES_PER_BATCH
        if job and messages + batch.messages > limit:
            yield job
            job, messages = [], 0
        job.append(batch)
        messages += batch.messages
    if job:
        yield job


def _result(run: QueueRun) -> ArchivedQueue:
    error = None if run.error is None else str(run.error)
    return ArchivedQueue(run.queue, run.kind, run.rows, run.batches, error)


def _raise_errors(runs: Sequence[QueueRun], done: Archived) -> None:
    failed = [run for run in runs if run.error is not None]
    if not failed:
        return
    if len(runs) == 1:
        assert failed[0].error is not None
        raise failed[0].error
    texts = "; ".join(f"'{run.queue}': {str(run.error).strip().partition(chr(10))[0]}" for run in failed)
    raise ArchiveIncomplete(
        f"{len(failed)} of {len(runs)} queues are not archived to their end ({texts}); of the others "
        f"{sum(run.rows for run in runs if run.error is None):,} messages are",
        done,
    ) from failed[0].error
