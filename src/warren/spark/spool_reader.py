"""Spark's readers over classic and quorum queues: batch and streaming, through the durable spool.

Rules: a drain is named once and every attempt at it, by whichever process, uses that name. For a batch read the name
is made when the DataFrame is (load()), so every action on the DataFrame reads the same rows; for a stream the name is
in the checkpoint's offset. What the spool promises is written in spool.py.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from warren.spark.amqp import Link, retrying
from warren.spark.offsets import water_fill
from warren.spark.options import SourceOptions
from warren.spark.payload.step import RowStep
from warren.spark.schema import arrow_schema, project
from warren.spark.spool import Spool, Ticket, drain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SpoolReader", "SpoolStreamReader"]


class SpoolPartition(InputPartition):
    """One task's part of one drain; `limit` is the most messages it takes, None for what is there."""

    def __init__(self, queue: str, ticket: str, part: int, limit: int | None) -> None:
        super().__init__((queue, ticket, part, limit))
        self.queue = queue
        self.ticket = ticket
        self.part = part
        self.limit = limit


def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, as Arrow batches."""
    if not isinstance(partition, SpoolPartition):
        return  # Spark plans one empty partition when a batch read has none
    step = RowStep(options, schema)
    yield from step.over(read_base(options, step.base, partition))


def read_base(options: SourceOptions, schema: StructType, partition: SpoolPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition with the columns that are in the spool's files."""
    wanted = arrow_schema(schema)
    ticket = Spool(options.spool, options.vhost, partition.queue).ticket(partition.ticket)
    for segment in drain(options, ticket, partition.part, partition.limit):
        rows = project(partition.queue, segment, wanted)
        for start in range(0, rows.num_rows, options.batch_rows):
            yield rows.slice(start, options.batch_rows)


def parts_per_queue(options: SourceOptions) -> int:
    """How many consumers compete for each queue: one, unless minPartitions was given."""
    return -(-options.min_partitions // len(options.queues)) if "minpartitions" in options.given else 1


class SpoolReader(DataSourceReader):
    """Batch read: what the queues hold when the first action on the DataFrame starts; later actions, the same rows."""

    def __init__(self, options: SourceOptions, schema: StructType, ticket: str) -> None:
        self._options = options
        self._schema = schema
        self._ticket = ticket

    def partitions(self) -> Sequence[InputPartition]:
        planned: list[InputPartition] = []
        for queue in self._options.queues:
            ticket = Spool(self._options.spool, self._options.vhost, queue).ticket(self._ticket)
            parts = agreed_parts(ticket, parts_per_queue(self._options))
            planned += [SpoolPartition(queue, self._ticket, part, None) for part in range(parts)]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def agreed_parts(ticket: Ticket, parts: int) -> int:
    """The number of parts this drain was first planned with, `parts` if this is the first time."""
    ticket.folder.mkdir(parents=True, exist_ok=True)
    plan = ticket.folder / "parts"
    temporary = plan.with_name(f"parts.{os.getpid()}.{time.monotonic_ns()}.tmp")
    temporary.write_text(str(parts))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, plan)
    temporary.unlink()
    return int(plan.read_text())


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read: every micro-batch is one drain, named in the checkpoint, replayed from the spool."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._link: Link | None = None
        self._initial: dict[str, Any] | None = None
        self._left: dict[str, int] | None = None  # what an availableNow query may still take
        self._removed = 0  # drains up to this number are deleted

    # In the driver's long-lived process ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = {"drain": uuid.uuid4().hex, "n": 0, "parts": parts_per_queue(self._options), "rows": {}}
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._left = self._counts()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._remove_before(start)
        counts = self._counts()
        if self._left is not None:
            counts = {queue: min(count, self._left[queue]) for queue, count in counts.items()}
        if not any(counts.values()):
            return start
        rows = water_fill(counts, limit.max_rows) if isinstance(limit, ReadMaxRows) else counts
        if self._left is not None:
            self._left = {queue: left - rows[queue] for queue, left in self._left.items()}
        return {
            "drain": start["drain"],
            "n": start["n"] + 1,
            "parts": parts_per_queue(self._options),
            "rows": {queue: rows[queue] for queue in sorted(rows) if rows[queue]},
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        parts, name = end["parts"], ticket_name(end, end["n"])
        return [
            SpoolPartition(queue, name, part, (rows + part) // parts)  # the shares add up to `rows`
            for queue, rows in end["rows"].items()
            for part in range(parts)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it is not called for the last batch, so drains are deleted by `latestOffset` instead."""

    def stop(self) -> None:
        self._close()

    def _counts(self) -> dict[str, int]:
        def once() -> dict[str, int]:
            try:
                if self._link is None:
                    self._link = Link(self._options.url, self._options.timeout)
                return {queue: self._link.count(queue) for queue in sorted(self._options.queues)}
            except BaseException:
                self._close()
                raise

        return retrying(once, self._options.retry_timeout, "asking for queue lengths")

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _remove_before(self, start: Mapping[str, Any]) -> None:
        """Deletes the drains whose batch is complete (`start` is the last one's end) and no longer needed.

        They stay for dedup_window seconds, in case the broker forgot their acknowledgements.
        """
        for number in range(self._removed + 1, start["n"]):
            for queue in self._options.queues:
                ticket = Spool(self._options.spool, self._options.vhost, queue).ticket(ticket_name(start, number))
                if ticket.folder.exists():
                    if time.time() - ticket.folder.stat().st_mtime <= self._options.dedup_window:
                        return
                    ticket.remove()
            self._removed = number

    # In the executors -------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def ticket_name(offset: Mapping[str, Any], number: int) -> str:
    """The name of a stream's drain: the query's own id and the number of its batch."""
    return f"{offset['drain']}-{number:08d}"
