"""Spark's readers over classic and quorum queues: batch and streaming, through the durable spool.

Rules: a drain is named once and every attempt at it, by whichever process, uses that name. For a batch read the name
is made when the DataFrame is (load()), so every action on the DataFrame reads the same rows; for a stream the name is
in the checkpoint's offset. What the spool promises is written in `spool`.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from harebell.errors import ChannelError, InvalidArgument
from harebell.spark.connection import TRANSIENT, Link, family_on, retrying
from harebell.spark.options import SourceOptions
from harebell.spark.payload.projection import RowProjection
from harebell.spark.queues.drain import Limit, drain, is_stream_queue
from harebell.spark.queues.segments import is_acked, read_segment
from harebell.spark.queues.spool import Spool, Ticket
from harebell.spark.schema import arrow_schema, project
from harebell.spark.shares import even_shares, water_fill
from harebell.spark.shown_errors import shown, shown_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SpoolReader", "SpoolStreamReader", "is_drain"]

log = logging.getLogger("harebell.spark")

SLICE_BYTES: Final = 8 << 20  # of a segment, handed to Spark at a time


class SpoolPartition(InputPartition):
    """One task's part of one drain; `limit` is the most messages it takes, `size` the bytes after which it ends."""

    def __init__(self, queue: str, ticket: str, part: int, limit: int, size: int | None = None) -> None:
        super().__init__((queue, ticket, part, limit, size))
        self.queue = queue
        self.ticket = ticket
        self.part = part
        self.limit = limit
        self.size = size


@shown_rows
def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, as Arrow batches."""
    if not isinstance(partition, SpoolPartition):
        return  # Spark plans one empty partition when a batch read has none
    step = RowProjection(options, schema)
    yield from step.over(read_base(options, step.base, partition))


def read_base(options: SourceOptions, schema: StructType, partition: SpoolPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition with the columns that are in the spool's files."""
    wanted = arrow_schema(schema)
    ticket = Spool(options.spool, options.vhost, partition.queue).ticket(partition.ticket)
    for segment in drain(options, ticket, partition.part, Limit(partition.limit, partition.size)):
        rows = project(partition.queue, segment, wanted)
        most = max(1, min(options.batch_rows, rows.num_rows * SLICE_BYTES // max(rows.nbytes, 1)))
        for start in range(0, rows.num_rows, most):
            yield rows.slice(start, most)


def parts_per_queue(options: SourceOptions) -> int:
    """How many consumers compete for each queue: one, unless minPartitions was given."""
    return -(-options.min_partitions // len(options.queues)) if "minpartitions" in options.given else 1


class SpoolReader(DataSourceReader):
    """Batch read: what the queues hold when the first action on the DataFrame starts; later actions, the same rows."""

    def __init__(self, options: SourceOptions, schema: StructType, ticket: str) -> None:
        self._options = options
        self._schema = schema
        self._ticket = ticket

    @shown
    def partitions(self) -> Sequence[InputPartition]:
        planned: list[InputPartition] = []
        for queue in self._options.queues:
            ticket = Spool(self._options.spool, self._options.vhost, queue).ticket(self._ticket)
            self._check(queue, ticket)
            limits = agreed_limits(ticket, lambda queue=queue: self._limits(queue))  # type: ignore[misc]
            planned += [SpoolPartition(queue, self._ticket, part, limit) for part, limit in enumerate(limits)]
        return planned

    def _check(self, queue: str, ticket: Ticket) -> None:
        """Raises InvalidArgument for a new drain of a stream queue, and for a drain of another broker.

        A ticket that the caller has named may be any broker's; one that was made for this read is asked about once.
        What a ticket has already can be read while its broker is away.
        """
        options, new = self._options, not ticket.plan.exists()

        def claim() -> None:
            with Link(options.url, options.timeout) as link:
                if new:
                    link.count(queue)  # nothing is made for a queue that is not there
                    refuse_stream(link, options, queue)
                ticket.claim(link.broker)

        if new:
            retrying(claim, options.first_patience, "asking which broker it is")
        elif options.ticket is not None:
            try:
                claim()
            except TRANSIENT as error:
                log.warning("ticket %s: nobody said whether it is this broker's: %s", options.ticket, error)

    def _limits(self, queue: str) -> list[int]:
        """What each part takes at most: together what is ready now. What arrives later is another read's."""

        def count() -> int:
            with Link(self._options.url, self._options.timeout) as link:
                return link.count(queue)

        ready = retrying(count, self._options.first_patience, "asking for the queue's length")
        return even_shares(ready, parts_per_queue(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def agreed_limits(ticket: Ticket, limits: Callable[[], list[int]]) -> list[int]:
    """What the parts of this drain were planned to take at most when it was first planned; asked for if it is now.

    Raises SpoolError when the folder cannot be written.
    """
    agreed: list[int] = json.loads(ticket.agreed(ticket.plan, lambda: json.dumps(limits())))
    return agreed


def refuse_stream(link: Link, options: SourceOptions, queue: str) -> None:
    """Raises InvalidArgument for a stream queue, where option queueType says that it is none. "auto" has asked already.

    Whatever else the question is refused for is left to the drain, which says it, or waits until it has passed.
    """
    if options.queue_type == "auto":
        return
    try:
        if family_on(link, queue) == "stream":
            raise is_stream_queue(queue)
    except ChannelError as error:
        log.debug("asking what queue %s is: %s", queue, error)
    link.reset()


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read: every micro-batch is one drain, named in the checkpoint, replayed from the spool."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._link: Link | None = None
        self._patience = options.first_patience  # until the broker has answered once
        self._initial: dict[str, Any] | None = None
        self._left: dict[str, int] | None = None  # what an availableNow query may still take
        self._planned: dict[str, Any] | None = None  # the end of the batch that `_left` does not know of yet
        self._waiting: float | None = None  # since when there are messages, but fewer than minMessagesPerTrigger
        self._removed = 0  # drains up to this number are deleted

    # The driver's long-lived process calls these:

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = {"drain": uuid.uuid4().hex, "n": 0, "parts": parts_per_queue(self._options), "rows": {}}
        return self._initial

    @shown
    def prepareForTriggerAvailableNow(self) -> None:
        self._left, self._planned = self._counts(), None

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @shown
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._check_kind(start)
        self._remove_before(start)
        counts = self._counts()
        if self._left is not None:
            self._count_off(start)
            counts = {queue: min(count, self._left[queue]) for queue, count in counts.items()}
        if not any(counts.values()) or self._too_few(sum(counts.values())):
            return start
        rows = water_fill(counts, limit.max_rows) if isinstance(limit, ReadMaxRows) else counts
        self._planned = {
            "drain": start["drain"],
            "n": start["n"] + 1,
            "parts": parts_per_queue(self._options),
            "rows": {queue: rows[queue] for queue in sorted(rows) if rows[queue]},
        }
        if self._options.max_bytes is not None:
            self._planned["bytes"] = self._options.max_bytes
        return self._planned

    @shown
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check_kind(end)
        if start == end:
            return []
        parts, name, size = end["parts"], ticket_name(end, end["n"]), end.get("bytes")
        share = None if size is None else -(-size // (parts * len(end["rows"])))
        return [
            SpoolPartition(queue, name, part, limit, share)
            for queue, rows in end["rows"].items()
            for part, limit in enumerate(even_shares(rows, parts))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it is not called for the last batch, so drains are deleted by `latestOffset` instead."""

    def stop(self) -> None:
        self._close()

    def _check_kind(self, offset: Mapping[str, Any]) -> None:
        """Raises InvalidArgument for an offset of stream queues, which has an entry for each of them."""
        if not is_drain(offset):
            raise InvalidArgument(
                f"the checkpoint has places in stream queues ({', '.join(sorted(offset))}), and the query reads "
                f"classic or quorum queues now ({', '.join(self._options.queues)}): declare them as stream queues "
                "again, or start with a new checkpoint"
            )

    def _too_few(self, ready: int) -> bool:
        """Whether a batch waits for more messages; one that is to take what is there now does not."""
        least = self._options.min_messages
        if ready >= least or self._left is not None:
            self._waiting = None
            return False
        now = time.monotonic()
        if self._waiting is None:
            self._waiting = now
        if now - self._waiting < self._options.max_delay:
            return True
        self._waiting = None
        return False

    def _count_off(self, start: Mapping[str, Any]) -> None:
        """Takes the last planned batch, which ended at `start`, from what is left for this query.

        With a limit in bytes a drain takes fewer messages than were planned: its files say how many.
        """
        planned, self._planned = self._planned, None
        if planned is None or self._left is None or planned != start:
            return
        for queue, rows in planned["rows"].items():
            if "bytes" in planned:
                ticket = Spool(self._options.spool, self._options.vhost, queue).ticket(
                    ticket_name(planned, planned["n"])
                )
                taken = sum(read_segment(path).num_rows for path in ticket.segments())
                rows = min(rows, max(taken, 1))  # at least one, so that the query ends whatever happens
            self._left[queue] -= rows

    def _counts(self) -> dict[str, int]:
        def once() -> dict[str, int]:
            try:
                if self._link is None:
                    self._link = Link(self._options.url, self._options.timeout)
                    for queue in self._options.queues:
                        self._link.count(queue)
                        refuse_stream(self._link, self._options, queue)
                return {queue: self._link.count(queue) for queue in sorted(self._options.queues)}
            except BaseException:
                self._close()
                raise

        counts = retrying(once, self._patience, "asking for queue lengths")
        self._patience = self._options.retry_timeout
        return counts

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _remove_before(self, start: Mapping[str, Any]) -> None:
        """Deletes the drains whose batch is complete (`start` is the last one's end) and no longer needed.

        They stay for dedup_window seconds, in case the broker forgot their acknowledgements; one with a segment whose
        acknowledgement is not known to have arrived stays until its messages have come back, or `prune`.
        """
        for number in range(self._removed + 1, start["n"]):
            for queue in self._options.queues:
                ticket = Spool(self._options.spool, self._options.vhost, queue).ticket(ticket_name(start, number))
                if ticket.folder.exists():
                    if time.time() - ticket.folder.stat().st_mtime <= self._options.dedup_window:
                        return
                    if all(map(is_acked, ticket.segments())):
                        ticket.remove()
            self._removed = number

    # The executors call these:

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)


def is_drain(offset: Mapping[str, Any]) -> bool:
    """Whether an offset is a drain's; else it has an entry for each stream queue, which may have the name "drain"."""
    return isinstance(offset.get("drain"), str)


def ticket_name(offset: Mapping[str, Any], number: int) -> str:
    """The name of a stream's drain: the query's own id and the number of its batch."""
    return f"{offset['drain']}-{number:08d}"
