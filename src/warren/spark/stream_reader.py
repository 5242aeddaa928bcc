"""Spark's readers over stream queues: one for batch, one for streaming. Offsets live in the checkpoint.

Rules learned from PySpark 4.3: `initialOffset` is called several times, and again when the first batch is replayed, so
a batch is planned from its end offset alone; an exception from `latestOffset` ends the query, so the questions to the
broker are repeated while it is away; `read` runs in other processes on a fresh copy of the reader, so it keeps no
state; `stop` may never be called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from warren.errors import InvalidArgument
from warren.spark import offsets
from warren.spark.offsets import Offsets, Range
from warren.spark.options import SourceOptions
from warren.spark.payload.step import RowStep
from warren.spark.schema import Rows
from warren.spark.stream_queue import StreamEnds, check_not_behind, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamQueueReader", "StreamQueueStreamReader"]

LEAST_SPLIT: Final = 10_000  # messages: a shorter range costs more in connecting than it gains


class RangePartition(InputPartition):
    """One task's range of one stream queue."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, as Arrow batches."""
    if not isinstance(partition, RangePartition):
        return  # Spark plans one empty partition when a batch read has none
    step = RowStep(options, schema)
    rows = Rows(step.base)
    yield from step.over(
        rows.batch(partition.wanted.queue, deliveries, numbers)
        for deliveries, numbers in read_range(options, partition.wanted)
    )


def plan(options: SourceOptions, ranges: list[Range]) -> Sequence[InputPartition]:
    """The partitions of a batch: every range, cut so that there are about `minPartitions` tasks."""
    return [RangePartition(piece) for piece in offsets.split(ranges, options.min_partitions, LEAST_SPLIT)]


class StreamQueueReader(DataSourceReader):
    """Batch read: [startingOffsets, endingOffsets) of every queue, as they are when the action starts."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options, ends = self._options, StreamEnds(self._options)
        ranges = []
        try:
            for queue in sorted(options.queues):
                start = starting_number(options, ends, queue)
                end = ends.tail(queue) if options.ending == "latest" else options.ending[queue]
                if end > start:
                    ranges.append(Range(queue, start, end))
        finally:
            ends.close()
        return plan(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


class StreamQueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read: exactly the messages since the checkpoint, restart or not."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._ends: StreamEnds | None = None
        self._initial: Offsets | None = None
        self._targets: dict[str, int] | None = None  # the tails when an availableNow query began
        self._tails: dict[str, int] = {}

    # In the driver's long-lived process ---------------------------------------------------------------------------

    def initialOffset(self) -> Offsets:
        if self._initial is None:
            numbers = {
                queue: starting_number(self._options, self._asking(), queue) for queue in sorted(self._options.queues)
            }
            self._initial = offsets.initial(numbers)
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {queue: self._asking().tail(queue) for queue in self._options.queues}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offsets:
        start = self._with_new_queues(start)
        self._tails = {queue: self._asking().tail(queue) for queue in self._options.queues}
        tails = dict(self._tails)
        for queue, tail in self._tails.items():
            if not check_not_behind(self._options, queue, start[queue]["next"], tail):
                # Declared again: what it holds now is new, from its beginning.
                first = self._asking().first(queue)
                start[queue] = {"base": first, "next": first}
            elif self._targets is not None:
                tails[queue] = min(tail, self._targets[queue])
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets.advance(start, tails, rows)

    def reportLatestOffset(self) -> Offsets | None:
        return offsets.initial(self._tails) if self._tails else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [] if start == end else plan(self._options, offsets.batch_ranges(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to tell the broker: a stream keeps its messages, and the checkpoint keeps the place."""

    def stop(self) -> None:
        if self._ends is not None:
            self._ends.close()

    def _asking(self) -> StreamEnds:
        if self._ends is None:
            self._ends = StreamEnds(self._options)
        return self._ends

    def _with_new_queues(self, start: dict[str, Any]) -> Offsets:
        known = {queue: dict(entry) for queue, entry in start.items() if queue in self._options.queues}
        gone = set(start) - set(known)
        if gone:
            raise InvalidArgument(
                f"the checkpoint has read {', '.join(sorted(gone))}, which option 'queue' does not name any more; "
                "name them again or start with a new checkpoint"
            )
        for queue in self._options.queues:
            if queue not in known:
                known[queue] = dict(self.initialOffset()[queue])
        return known

    # In the executors -------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def starting_number(options: SourceOptions, ends: StreamEnds, queue: str) -> int:
    """The first message number that a fresh reader of `queue` wants."""
    if options.starting == "earliest":
        return ends.first(queue)
    if options.starting == "latest":
        return ends.tail(queue)
    return options.starting[queue]
