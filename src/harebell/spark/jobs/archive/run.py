"""One run of `archive`: queues and streams into an archive, every message once, counted.

Rules: one streaming query a queue, with a checkpoint below the archive, so that queues come and go without touching
each other's place; a micro-batch becomes one commit of the archive's log, which knows the query and the batch, so that
a batch that runs again after a crash counts once. What Spark says it read is compared with what the log has.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from harebell.errors import DataLoss, HarebellError, InvalidArgument
from harebell.spark.jobs.archive.files import ArchiveSink
from harebell.spark.jobs.archive.layout import OWN, Format, Table, queue_folder
from harebell.spark.jobs.archive.table import make_table
from harebell.spark.jobs.failures import our_error, unwrapped_errors
from harebell.spark.options import source_options
from harebell.spark.runtime.queries import POLL_SECONDS, rows_read, start_query
from harebell.spark.runtime.session import activate
from harebell.spark.schema import row_schema
from harebell.spark.source import family

try:
    import fcntl
except ImportError:  # Windows: nothing but Spark's checkpoint tells two runs apart
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Archived", "ArchivedQueue", "archive"]

MESSAGES_PER_BATCH: Final = 200_000
KEY_WORDS: Final = 1


@dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """The messages archived from one queue in this run. `kind`: whether it was read as a stream, or drained."""

    queue: str
    kind: Literal["stream", "drained"]
    rows: int
    batches: int


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
    key_words: int = KEY_WORDS,
    every: float | None = None,
    stop: threading.Event | None = None,
    options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Archived:
    """Archives the messages of the queues at `path`, created if missing; continues where the last run ended.

    Stream queues are read and stay as they are; classic and quorum queues are drained, through a spool below the
    archive. `key_words` words of the routing key name a folder. `every`: runs, with a batch every so many seconds,
    until `stop` is set; None ends with what was there at the start. `options` are further options of format("amqp"),
    such as maxMessagesPerTrigger (200,000 here) or failOnDataLoss. `progress` gets the number of messages so far.

    Raises InvalidArgument for faulty arguments, DataLoss when messages of a stream are gone or the counts do not
    agree, and the broker's refusals (NotFound, AccessRefused).
    """
    if not queues:
        raise InvalidArgument("name at least one queue to archive")
    if len(set(queues)) != len(queues):
        raise InvalidArgument("a queue is named twice")
    if key_words < 0:
        raise InvalidArgument(f"key_words is {key_words}, and cannot be less than 0")
    given = {"maxMessagesPerTrigger": str(MESSAGES_PER_BATCH), **(options or {}), "url": url}
    runs = [_Run(queue, given) for queue in queues]  # asks the broker: a missing queue is reported first
    archived = make_table(path, table)
    with ExitStack() as stack, unwrapped_errors():
        for run in runs:
            stack.enter_context(run.opened(archived))
        activate(spark)
        spark.dataSource.register(ArchiveSink)
        if every is None:
            for run in runs:
                run.start(spark, archived, key_words, None)
                _follow(runs, None, progress)
        else:
            for run in runs:
                run.start(spark, archived, key_words, every)
            _follow(runs, stop, progress)
        done = tuple(run.result(archived) for run in runs)
    files = archived.files()
    return Archived(done, sum(file.rows for file in files), len(files))


class _Run:
    """One queue's query in one run of `archive`."""

    def __init__(self, queue: str, given: Mapping[str, str]) -> None:
        lowered = {name.lower(): value for name, value in {**given, "queue": queue}.items()}
        parsed = source_options(lowered, streaming=True)
        if parsed.queues != (queue,):
            raise InvalidArgument(f"{queue!r} is not the name of one queue: name several as several arguments")
        self.queue = queue
        self.read: dict[int, int] = {}  # rows by batch
        self._given = lowered
        self._vhost = parsed.vhost
        self._kind: Literal["stream", "drained"] = "stream" if family(parsed) == "stream" else "drained"
        self._query: StreamingQuery | None = None
        self._stopped = False

    @contextmanager
    def opened(self, table: Table) -> Iterator[None]:
        """Holds the queue's checkpoint for this process. Raises InvalidArgument when another one has it."""
        self._checkpoint = table.root / OWN / "checkpoints" / queue_folder(self._vhost, self.queue)
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        with (self._checkpoint / "lock").open("w") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidArgument(f"queue '{self.queue}' is being archived there by another process") from None
            try:
                self._writer = self._named()
                self._before = table.written(self._writer)
                self._check_not_behind()
                yield
            finally:
                self._end()

    def start(self, spark: SparkSession, table: Table, key_words: int, every: float | None) -> None:
        given = self._given
        if self._kind == "drained":
            given = {"spool": str(table.root / OWN / "spool"), **given}
        rows = spark.readStream.format("amqp").options(**given).schema(row_schema()).load()
        trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
        writer = (
            rows.writeStream.format(ArchiveSink.name())
            .option("path", str(table.root))
            .option("writer", self._writer)
            .option("words", str(key_words))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
        )
        self._query = start_query(writer.start)

    def poll(self) -> bool:
        """Whether the query still runs; counts what it has read. Raises its exception."""
        if self._query is None:
            return False
        active = self._query.isActive
        self._note(self._query)
        if not active and (error := self._query.exception()) is not None:
            raise our_error(error) or error
        return active

    def stop(self) -> None:
        """Ends the query; the next run repeats a batch that is under way."""
        self._stopped = True
        query, self._query = self._query, None
        if query is not None:
            query.stop()
            self._note(query)

    def result(self, table: Table) -> ArchivedQueue:
        """The result of this queue. Raises DataLoss when the log differs from what Spark says it has read."""
        after, before = table.written(self._writer), self._before
        total = (after.total if after else 0) - (before.total if before else 0)
        expected, batches = dict(self.read), len(self.read)
        if before is not None and before.batch in expected:
            self._compare(f"batch {before.batch} again", expected.pop(before.batch), before.rows)
        added = total
        if self._stopped and after is not None and after.batch not in self.read and after != before:
            added -= after.rows  # committed here, but Spark was stopped before it said so
            batches += 1
        self._compare("this run", sum(expected.values()), added)
        return ArchivedQueue(self.queue, self._kind, total, batches)

    def _note(self, query: StreamingQuery) -> None:
        for batch in query.recentProgress:  # Spark itself remembers the last 100 only
            if rows := rows_read(batch):
                self.read[batch["batchId"]] = rows

    def _compare(self, what: str, read: int, logged: int) -> None:
        if read != logged:
            raise DataLoss(
                f"queue '{self.queue}', {what}: Spark has read {read:,} messages, the archive's log has {logged:,}; "
                "nothing of it is deleted from the archive, nor from the spool: please report this"
            )

    def _named(self) -> str:
        """The name of this checkpoint, made with it: in a new checkpoint the batches count from 0 again."""
        name = self._checkpoint / "writer"
        if not name.exists():
            if (self._checkpoint / "offsets").exists():
                raise InvalidArgument(
                    f"{self._checkpoint} is not a checkpoint of an archive: the file 'writer' is gone"
                )
            temporary = name.with_name("writer.tmp")
            temporary.write_text(uuid.uuid4().hex)
            temporary.replace(name)
        return name.read_text()

    def _check_not_behind(self) -> None:
        if self._before is None:
            return
        numbers = [int(path.name) for path in (self._checkpoint / "offsets").glob("[0-9]*")]
        if not numbers or max(numbers) < self._before.batch:
            raise DataLoss(
                f"the checkpoint of queue '{self.queue}' is older than the archive: {self._checkpoint} ends at batch "
                f"{max(numbers, default=-1)}, the archive has {self._before.batch}. Was it restored from a backup? "
                "Delete it to read the queue anew, from its beginning"
            )

    def _end(self) -> None:
        if self._query is not None:
            self._query.stop()


def _follow(runs: Sequence[_Run], stop: threading.Event | None, progress: Callable[[int], None]) -> None:
    """Waits for the end of all queries, or for `stop`."""
    waiting = stop or threading.Event()
    while True:
        try:
            active = [run for run in runs if run.poll()]
        except HarebellError:
            raise
        except Exception:
            # An interrupt of the whole process group ends Spark's workers too, and so their batches.
            if not waiting.is_set():
                raise
            active = list(runs)
        progress(sum(sum(run.read.values()) for run in runs))
        if not active:
            return
        if waiting.wait(POLL_SECONDS):
            for run in active:
                run.stop()
