"""Spark's readers over stream queues: one for batch, one for streaming. Offsets live in the checkpoint.

Rules learned from PySpark 4.3: `initialOffset` is called several times, and again when the first batch is replayed, so
a batch is planned from its end offset alone; an exception from `latestOffset` ends the query, so the questions to the
broker are repeated while it is away; `read` runs in other processes on a fresh copy of the reader, so it keeps no
state; `stop` may never be called.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from harebell.errors import InvalidArgument
from harebell.spark.options import SourceOptions
from harebell.spark.options.streams import check_places, position_for
from harebell.spark.payload.projection import RowProjection
from harebell.spark.shown_errors import shown, shown_rows
from harebell.spark.streams import offsets
from harebell.spark.streams.batch_size import available, rows_for_bytes
from harebell.spark.streams.bounds import BoundsReader, StreamBounds
from harebell.spark.streams.columns import Columns
from harebell.spark.streams.discovery import queue_names
from harebell.spark.streams.filters import selection
from harebell.spark.streams.identity import is_another, make_identity, mark_holds
from harebell.spark.streams.offsets import UNKNOWN, Identity, Offsets, Range
from harebell.spark.streams.range_reader import ended_before, loss_by_retention, read_range, replaced, report_loss

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamQueueReader", "StreamQueueStreamReader"]

log = logging.getLogger("harebell.spark")

LEAST_SPLIT: Final = 10_000  # messages: a shorter range costs more in connecting than it gains
NAMES_SECONDS: Final = 30.0  # how long a list of queues is good: a super-stream's end is an error in RabbitMQ's log


class RangePartition(InputPartition):
    """One task's range of one stream queue."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@shown_rows
def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, as Arrow batches."""
    if not isinstance(partition, RangePartition):
        return  # Spark plans one empty partition when a batch read has none
    queue, step, choose = partition.wanted.queue, RowProjection(options, schema), selection(options.stream).chooser()
    columns = Columns(step.base)
    chosen = ((chunk, choose(queue, chunk, rows)) for chunk, rows in read_range(options, partition.wanted))
    yield from step.over(columns.batch(queue, chunk, rows) for chunk, rows in chosen if len(rows))


def plan(options: SourceOptions, ranges: list[Range]) -> Sequence[InputPartition]:
    """The partitions of a batch: every range, cut so that there are about `minPartitions` tasks unless `ordered`."""
    pieces = ranges if options.ordered else offsets.split(ranges, options.min_partitions, LEAST_SPLIT)
    return [RangePartition(piece) for piece in pieces]


class StreamQueueReader(DataSourceReader):
    """Batch read: what is between beginning and end of every queue, as they are when the action starts."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @shown
    def partitions(self) -> Sequence[InputPartition]:
        options, bounds = self._options, BoundsReader(self._options)
        ranges = []
        try:
            queues = queue_names(options, options.first_patience)
            check_places(options.stream, queues)
            for queue in queues:
                start = bounds.number_at(queue, position_for(options.stream.starting, queue))
                ending = options.stream.ending
                position = ending.get(queue, "latest") if isinstance(ending, dict) else ending
                end = bounds.number_at(queue, position)
                if end == UNKNOWN and start != UNKNOWN:
                    report_loss(options, emptied(queue, start))
                if end > start != UNKNOWN and isinstance(position, int):
                    end = self._existing(bounds, queue, start, end)
                if end > start != UNKNOWN:  # what comes after the question is not in this read
                    ranges.append(Range(queue, start, end, Identity(bounds.id_of(queue))))
        finally:
            bounds.close()
        return plan(options, ranges)

    def _existing(self, bounds: BoundsReader, queue: str, start: int, end: int) -> int:
        """As much of the end that was asked for as is there. Raises DataLoss when that is less, as a task would later.

        Of an emptied stream the task says what is gone.
        """
        tail = bounds.of([queue], reached={queue: end})[queue].tail
        if tail == UNKNOWN or tail >= end:
            return end
        report_loss(self._options, ended_before(queue, tail, start, end))
        return tail

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


class StreamQueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read: exactly the messages since the checkpoint, restart or not."""

    def __init__(self, options: SourceOptions, schema: StructType, bounds: BoundsReader | None = None) -> None:
        """`bounds`: what asks the broker, where several readers of one process share it; closed by whoever made it."""
        self._options = options
        self._schema = schema
        self._bounds = bounds
        self._owns_bounds = bounds is None
        self._initial: Offsets | None = None
        self._targets: dict[str, int] | None = None  # the tails when an availableNow query began
        self._tails: dict[str, int] = {}
        self._reported: set[tuple[str, int]] = set()  # queues that were emptied, with the position to continue at
        self._vanished: set[str] = set()  # queues that are known to be gone
        self._names: tuple[float, tuple[str, ...]] | None = None  # as of when
        self._taken_at: float | None = None  # when a batch was planned last
        self._planned: Offsets | None = None  # the end of that batch

    # The driver's long-lived process calls these:

    @shown
    def initialOffset(self) -> Offsets:
        if self._initial is None:
            starting, queues = self._options.stream.starting, self._queues()
            check_places(self._options.stream, queues)
            self._initial = offsets.initial(
                {queue: self._bounds_reader().number_at(queue, position_for(starting, queue)) for queue in queues}
            )
        return self._initial

    @shown
    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {queue: bounds.tail for queue, bounds in self._bounds_reader().of(self._queues()).items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_messages is not None:
            return ReadMaxRows(options.max_messages)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    @shown
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offsets:
        queues = self._with_vanished(start)
        reached = {queue: entry["next"] for queue, entry in start.items()}
        bounds = self._bounds_reader().of(queues, sizes=self._options.max_bytes is not None, reached=reached)
        now = self._with_new(start, bounds)
        reader = self._bounds_reader()
        others = {queue for queue, each in bounds.items() if is_another(reader, queue, each, now[queue])}
        seen = {queue: max(self._tails.get(queue, 0), (self._targets or {}).get(queue, 0)) for queue in bounds}
        now = {
            queue: anew(self._options, queue, entry, bounds[queue])
            if queue in others
            else reconciled(self._options, queue, entry, bounds.get(queue), seen.get(queue, 0))
            for queue, entry in now.items()
        }
        self._report_emptied(now, bounds)
        self._tails = {queue: now[queue]["next"] if each.emptied else each.tail for queue, each in bounds.items()}
        tails = dict(self._tails)
        if self._targets is not None:
            tails = {queue: min(tail, self._targets[queue]) for queue, tail in tails.items() if queue in self._targets}
        waiting = available(now, tails)
        if self._too_few(sum(waiting.values())):
            return start
        rows = self._rows(limit, waiting, {queue: each.size for queue, each in bounds.items()})
        end = offsets.advance(start, tails, rows, now)
        if end is start:
            return start
        self._planned = {
            queue: {**entry, **make_identity(reader, queue, bounds[queue], entry).entry()} if queue in bounds else entry
            for queue, entry in end.items()
        }
        return self._planned

    def reportLatestOffset(self) -> Offsets | None:
        return offsets.initial(self._tails) if self._tails else None

    @shown
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check_kind(end)
        if start == end:
            return []
        ranges = offsets.batch_ranges(end)
        if end != self._planned:  # a batch that is planned again, after a crash
            ranges = [each for each in ranges if self._is_the_same(each)]
        return plan(self._options, ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do at the broker: a stream keeps its messages, and the checkpoint has the position."""

    def stop(self) -> None:
        if self._bounds is not None and self._owns_bounds:
            self._bounds.close()

    def _is_the_same(self, wanted: Range) -> bool:
        """Whether its stream is still the one that it was planned for, as far as this process can know.

        An id goes with the task, which the broker refuses. Raises DataLoss unless fail_on_data_loss is off.
        """
        if mark_holds(self._bounds_reader(), wanted.queue, wanted.identity):
            return True
        report_loss(self._options, replaced(wanted.queue, wanted.start))
        return False

    def _bounds_reader(self) -> BoundsReader:
        if self._bounds is None:
            self._bounds = BoundsReader(self._options)
        return self._bounds

    def _queues(self) -> tuple[str, ...]:
        now = time.monotonic()
        if self._names is None or (not self._options.queues and now - self._names[0] > NAMES_SECONDS):
            patience = self._options.first_patience if self._names is None else self._options.retry_timeout
            self._names = now, queue_names(self._options, patience)
        return self._names[1]

    def _with_vanished(self, start: dict[str, Any]) -> tuple[str, ...]:
        """The queues to ask for; one that the checkpoint has and no option names is an error, or left alone."""
        self._check_kind(start)
        queues = self._queues()
        gone = sorted(set(start) - set(queues))
        if gone and self._options.queues:
            raise InvalidArgument(
                f"the checkpoint has read {', '.join(gone)}, which option 'queue' does not name any more; "
                "name them again or start with a new checkpoint"
            )
        if gone and not self._vanished.issuperset(gone):
            self._vanished.update(gone)
            report_loss(self._options, f"queues that the checkpoint has read are not there any more: {', '.join(gone)}")
        return queues

    def _check_kind(self, offset: dict[str, Any]) -> None:
        """Raises InvalidArgument for the offset of a drain, whose values are no places of queues."""
        if not all(isinstance(entry, dict) for entry in offset.values()):
            raise InvalidArgument(
                "the checkpoint is of a query that drained classic or quorum queues, and the query reads stream queues "
                f"now ({', '.join(self._queues())}): declare them as they were, or start with a new checkpoint"
            )

    def _with_new(self, start: dict[str, Any], bounds: dict[str, StreamBounds]) -> Offsets:
        """The offset with the queues that it does not know yet: those that came later begin at their beginning."""
        known = {queue: dict(entry) for queue, entry in start.items()}
        for queue, each in bounds.items():
            if queue not in known:
                first = self.initialOffset()[queue]["next"] if self._options.queues else each.first
                known[queue] = {"base": first, "next": first}
        return known

    def _report_emptied(self, now: Offsets, bounds: dict[str, StreamBounds]) -> None:
        """Reports of streams without messages that there may be a loss, which their next message decides.

        A query that ends with what is available cannot wait for it: DataLoss, unless fail_on_data_loss is off.
        """
        for queue in sorted(queue for queue, each in bounds.items() if each.emptied):
            position, target = now[queue]["next"], (self._targets or {}).get(queue)
            if (
                position == UNKNOWN
                or (queue, position) in self._reported
                or (target is not None and 0 <= target <= position)
            ):
                continue
            self._reported.add((queue, position))
            if target == UNKNOWN:
                report_loss(self._options, emptied(queue, position))
            else:
                log.warning("%s; waiting for it", emptied(queue, position))

    def _too_few(self, waiting: int) -> bool:
        """Whether a batch is to wait for more messages. An availableNow query does not wait."""
        wanted, now = self._options, time.monotonic()
        if self._taken_at is None:
            self._taken_at = now
        if self._targets is None and 0 < waiting < wanted.min_messages and now - self._taken_at < wanted.max_delay:
            return True
        if waiting:
            self._taken_at = now
        return False

    def _rows(self, limit: ReadLimit, waiting: dict[str, int], sizes: dict[str, float]) -> int | None:
        """How many messages the batch may have; None for all. Trigger.Once asks for all, whatever the limits are."""
        if isinstance(limit, ReadMaxBytes):
            return rows_for_bytes(limit.max_bytes, waiting, sizes)
        if not isinstance(limit, ReadMaxRows):
            return None
        most = limit.max_rows
        if self._options.max_bytes is not None:
            fitting = rows_for_bytes(self._options.max_bytes, waiting, sizes)
            most = most if fitting is None else min(most, fitting)
        return most

    # The executors call these:

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def emptied(queue: str, position: int) -> str:
    """The text about an emptied stream whose loss is not known."""
    return (
        f"queue '{queue}' has no messages any more (retention removed them), and how many from {position} on nobody "
        "has read is not known before its next message comes"
    )


def too_far(queue: str, entry: dict[str, Any], tail: int) -> str:
    """The text about a stream that ends before the place where the query is, or is to begin."""
    if entry["base"] == entry["next"] and "id" not in entry and "mark" not in entry:
        return (
            f"queue '{queue}' ends at message {tail}, and the query is to begin at {entry['next']}: correct option "
            "'startingOffsets' (or was the queue deleted and declared again?), and start with a new checkpoint"
        )
    return (
        f"queue '{queue}' ends at message {tail} but the checkpoint is at {entry['next']} (was it deleted and declared "
        "again?)"
    )


def anew(options: SourceOptions, queue: str, entry: dict[str, Any], bounds: StreamBounds) -> dict[str, Any]:
    """The entry of a queue that is another stream now: from its beginning. DataLoss unless fail_on_data_loss is off."""
    report_loss(options, replaced(queue, entry["next"]))
    lost = {"lost": entry["lost"]} if "lost" in entry else {}
    return {"base": bounds.first, "next": bounds.first, **lost}


def reconciled(
    options: SourceOptions, queue: str, entry: dict[str, Any], bounds: StreamBounds | None, seen: int
) -> dict[str, Any]:
    """The entry of a queue to continue with, which may have lost the message that the checkpoint wanted next.

    `seen` is a number that the queue is known to have had as its end. What retention took is counted in the entry's
    `lost`. Raises DataLoss unless fail_on_data_loss is off.
    """
    if bounds is None:
        return entry
    position = entry["next"]
    if position == UNKNOWN:
        return entry if bounds.emptied else {**entry, "base": bounds.first, "next": bounds.first}
    kept = seen if bounds.emptied else bounds.kept
    if bounds.tail < position and not bounds.emptied:
        report_loss(options, too_far(queue, entry, bounds.tail))
        fresh = {name: value for name, value in entry.items() if name not in ("id", "mark")}
        return {**fresh, "base": bounds.first, "next": bounds.first}  # what it holds now is new, from its beginning
    if kept > position:
        report_loss(options, loss_by_retention(queue, position, kept))
        return {**entry, "base": kept, "next": kept, "lost": entry.get("lost", 0) + kept - position}
    return entry
