"""One queue in one run of `archive`: plans its batches, commits what the tasks wrote, counts, and waits after errors.

Rules: the readers of `harebell.spark` say where a batch ends and of which partitions it is, as they do for a streaming
query, here in this process. Of a batch, either all files are in the archive's log or none. A queue that fails is tried
again after growing pauses; an error that trying again does not cure ends it, and no other queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from harebell.client.recovery.policy import Backoff
from harebell.errors import DataLoss, InvalidArgument, NotFound
from harebell.spark.connection import TRANSIENT
from harebell.spark.jobs.archive.checkpoint import NOT_BEGUN, Checkpoint, Plan
from harebell.spark.jobs.archive.layout import OWN, Table, queue_folder
from harebell.spark.jobs.archive.tasks import Done, Work
from harebell.spark.options import queue_option, source_options
from harebell.spark.queues.reader import SpoolStreamReader, is_drain
from harebell.spark.schema import row_schema
from harebell.spark.source import family
from harebell.spark.streams.bounds import BoundsReader
from harebell.spark.streams.reader import StreamQueueStreamReader

if TYPE_CHECKING:
    from harebell.spark.options import SourceOptions

__all__ = ["Batch", "QueueRun"]

ATTEMPTS: Final = 3  # of a run that ends with what is there; the readers have waited for the broker before
_PAUSES: Final = Backoff(1.0, 300.0)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of one queue that is planned and not committed. `messages` is about how many it has."""

    run: QueueRun
    plan: Plan
    work: tuple[Work, ...]
    messages: int


class QueueRun:
    """A queue that is being archived. `rows` and `batches` are those of this run.

    error  why it fails; None while it does not
    ended  it is not tried again
    due    when it is to be planned next, on the monotonic clock
    more   its last batch was cut by a limit: there was more in the queue
    """

    def __init__(self, queue: str, given: Mapping[str, str]) -> None:
        """Asks the broker what the queue is. Raises NotFound when there is none, InvalidArgument for wrong options."""
        self._given = {name.lower(): value for name, value in {**given, "queue": queue_option(queue)}.items()}
        self._options = source_options(self._given, streaming=True)
        self.queue = queue
        try:
            kind = family(self._options)
        except NotFound as error:
            if "," not in queue:
                raise
            raise NotFound(f"{error.detail}; name several queues as several arguments, without commas") from error
        self.kind: Literal["stream", "drained"] = "stream" if kind == "stream" else "drained"
        self.rows = self.batches = 0
        self.error: Exception | None = None
        self.ended = False
        self.due = 0.0
        self.more = False
        self._failures = 0
        self._endless = False
        self._aimed = False  # the reader knows what was there when this run began
        self._plan: Plan | None = None
        self._committed = True  # the last plan's batch is in the log, or had no messages
        self._reader: StreamQueueStreamReader | SpoolStreamReader | None = None

    @property
    def options(self) -> SourceOptions:
        return self._options

    def checkpoint(self, table: Table) -> Checkpoint:
        """Its checkpoint in that archive."""
        place = queue_folder(self._options.vhost, self.queue)
        return Checkpoint(table.root / OWN / "checkpoints" / place, self.queue)

    @contextmanager
    def opened(
        self, table: Table, bounds: BoundsReader, notice: Callable[[str], None], *, endless: bool
    ) -> Iterator[None]:
        """Holds the queue's checkpoint. `endless`: the run goes on until it is told to end.

        Raises InvalidArgument when another process archives the queue there, DataLoss for a checkpoint that is older
        than the archive.
        """
        self._notice = notice
        given = self._given
        if self.kind == "drained":
            self._options = source_options({"spool": str(table.root / OWN / "spool"), **given}, streaming=True)
        self._endless = endless
        self._checkpoint = self.checkpoint(table)
        with self._checkpoint.held():
            self._writer = self._checkpoint.writer()
            written = table.written(self._writer)
            last = NOT_BEGUN if written is None else written.batch
            self._plan = self._checkpoint.plan(last)
            self._committed = self._plan is None or self._plan.batch == last
            if self.kind == "stream":
                self._reader = StreamQueueStreamReader(self._options, row_schema(), bounds)
            else:
                self._reader = SpoolStreamReader(self._options, row_schema())
            try:
                yield
            finally:
                self._reader.stop()

    def next_batch(self) -> Batch | None:
        """The next batch, the last one again if it was not committed; None when there is nothing now.

        Notes an error, and returns None, when it cannot be planned.
        """
        try:
            return self._planned()
        except Exception as error:
            self.fail(error)
            return None

    def _planned(self) -> Batch | None:
        reader = self._reader
        assert reader is not None
        if self._plan is None:
            # What `latest` means is fixed here, and not at the first message.
            self._keep(Plan(NOT_BEGUN, reader.initialOffset()), committed=True)
        if not self._endless and not self._aimed:
            reader.prepareForTriggerAvailableNow()
            self._aimed = True
        plan = self._plan
        assert plan is not None
        if self._committed:
            end = reader.latestOffset(plan.end, reader.getDefaultReadLimit())
            if end == plan.end:
                self.more = False
                self._recovered()
                return None
            plan = Plan(plan.batch + 1, end)
            self._keep(plan, committed=False)
        partitions = reader.partitions({}, plan.end)
        work = tuple(Work(self._options, partition, self.kind == "stream") for partition in partitions)
        messages = _size(plan.end)
        limit = self._options.max_messages
        self.more = limit is not None and messages >= limit
        return Batch(self, plan, work, messages)

    def commit(self, table: Table, batch: Batch, done: Sequence[Done]) -> None:
        """Commits the files of a batch; notes an error when one of its tasks had one."""
        error = next((each.error for each in done if each.error is not None), None)
        if error is not None:
            self.fail(error)
            return
        files = [file for each in done for file in each.files]
        read, written = sum(each.rows for each in done), sum(file.rows for file in files)
        try:
            if read != written:
                raise DataLoss(
                    f"queue '{self.queue}', batch {batch.plan.batch}: {read:,} messages were read and {written:,} "
                    "written; nothing of it is in the archive, nothing is deleted from the spool: please report this"
                )
            if files:
                table.add(files, self._writer, batch.plan.batch)
        except Exception as problem:
            self.fail(problem)
            return
        self._committed = True
        self.rows += read
        self.batches += bool(read)
        self._recovered()

    def fail(self, error: Exception) -> None:
        """Notes why it failed, and when it is tried again."""
        self._failures += 1
        self.more = False
        final = isinstance(error, (DataLoss, InvalidArgument))
        if not self._endless:
            final = final or self._failures >= ATTEMPTS or not isinstance(error, TRANSIENT)
        self.error, self.ended = error, final
        pause = _PAUSES.longest(self._failures)
        self.due = time.monotonic() + pause
        again = "it is not tried again" if final else f"trying again in {pause:.0f} s"
        self._notice(f"queue '{self.queue}': {_line(error)}; {again}")

    def _recovered(self) -> None:
        if self.error is not None:
            self._notice(f"queue '{self.queue}' is archived again")
        self._failures, self.error = 0, None

    def _keep(self, plan: Plan, committed: bool) -> None:
        self._checkpoint.save(plan)
        self._plan, self._committed = plan, committed


def _size(end: Mapping[str, Any]) -> int:
    """About how many messages the batch has that ends there."""
    if is_drain(end):
        return sum(end["rows"].values())
    return sum(max(0, entry["next"] - entry["base"]) for entry in end.values())


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
