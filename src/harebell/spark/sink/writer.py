"""Spark's writers: a DataFrame's rows become messages, published with confirms, in transactions or in sessions.

Rules: a task reports success only after every one of its messages is confirmed, or went where the options say, which is
counted, and reported by the driver. In a session of AMQP 0-10 (exactlyOnce) a task that Spark runs again publishes what
the broker does not have yet (`session_publisher`). Otherwise it publishes again: at least once on the wire. The
message ids are the same in every attempt (<query>/<batch>/<partition>/<row>), so a broker that is asked to
(dedup=broker) or a consumer can drop the copies; that holds where Spark gives the rows in the same order again, which
is every plan without a shuffle over a replayable source; after a shuffle use ids=column with a key of your own.

The client of sessions is imported where a write has sessions: a tenth of a second, in each of Spark's Python processes.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from harebell.errors import NotFound
from harebell.spark.connection import Link, retrying
from harebell.spark.shown_errors import shown
from harebell.spark.sink.ledger import Place
from harebell.spark.sink.payload_column import message_schema, with_bodies
from harebell.spark.sink.publisher import TaskPublisher, publish_in_transaction
from harebell.spark.sink.row_encoding import Part, RowEncoder, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from harebell.spark.options import SinkOptions

__all__ = ["Published", "StreamWriter", "Writer", "check_target", "publish"]

log = logging.getLogger("harebell.spark")


class Published(WriterCommitMessage):
    """The outcome of the messages of one task.

    count   messages that have arrived, all of them confirmed
    counts  that and the rest, by what it was: as TaskPublisher has them
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        self.count = self.counts.get("confirmed", 0)


def in_session(batches: Iterable[pa.RecordBatch], options: SinkOptions, schema: StructType, place: Place) -> Published:
    """Publishes every row exactly once, whatever earlier attempts have done. Raises what SessionPublisher does."""
    from harebell.spark.sink.session_publisher import SessionPublisher

    batches, schema = with_bodies(batches, schema, options), message_schema(schema, options)
    check_columns(schema, options)
    publisher = SessionPublisher(options, schema, place, prefix(place))
    publisher.publish(batches)
    return Published(publisher.counts)


def prefix(place: Place) -> str:
    """How generated message ids of the place begin."""
    return f"{place.query[:8]}/{place.batch}/{place.partition}"


def publish(batches: Iterable[pa.RecordBatch], options: SinkOptions, schema: StructType, prefix: str) -> Published:
    """Publishes every row, generated message ids beginning with `prefix`; returns when all are answered for.

    What a task of a write does, for callers that have record batches and no Spark. Raises what TaskPublisher and
    publish_in_transaction do, and InvalidArgument for rows that are no messages.
    """
    batches, schema = with_bodies(batches, schema, options), message_schema(schema, options)
    check_columns(schema, options)

    def parts() -> Iterator[Part]:
        outgoing, row = RowEncoder(options, schema), 0
        for batch in batches:
            yield from outgoing.parts(batch, prefix, row)
            row += batch.num_rows

    if options.transactions:
        return Published(publish_in_transaction(options, parts()))
    publisher = TaskPublisher(options)
    publisher.publish(parts())
    return Published(publisher.counts)


def check_target(options: SinkOptions) -> None:
    """Asks the broker for the exchange of the options, so that what no task can cure is said before there are tasks.

    Raises ConnectionLost when the broker does not answer soon, AccessRefused, NotFound for a missing exchange.
    """

    def ask() -> None:
        with Link(options.url, options.timeout) as link:
            if options.exchange:
                try:
                    link.channel.exchange_declare(options.exchange, passive=True)
                except NotFound as error:
                    raise NotFound(f"{error.detail}: the sink declares nothing, declare it first") from error

    retrying(ask, options.first_patience, "asking for the exchange")


def report(messages: Iterable[WriterCommitMessage | None], what: str) -> Counter[str]:
    """Logs the totals of a write, as a warning when not all messages have arrived; returns them."""
    totals: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, Published):
            totals.update(message.counts)
    others = ", ".join(f"{count} {name}" for name, count in sorted(totals.items()) if name != "confirmed")
    log.log(
        logging.WARNING if any("dropped" in name for name in totals) else logging.INFO,
        "%s: %d messages confirmed%s",
        what,
        totals["confirmed"],
        f"; {others}" if others else "",
    )
    return totals


_decided: dict[str, bool] = {}  # whether the brokers have sessions, in this process


def resolved(options: SinkOptions) -> SinkOptions:
    """The options with exactlyOnce as it is done: what the broker has decides about `auto`.

    Raises InvalidArgument where sessions are asked for and the broker has none. Asked on the driver, at the start.
    """
    if options.exactly_once == "none" or TaskContext.get() is not None:
        return options
    broker = repr(options.url) + str(options.url)
    if broker not in _decided:
        from harebell.spark.sink.session_publisher import has_sessions

        _decided[broker] = has_sessions(options)
        if not _decided[broker]:
            log.info("%s has no sessions: messages are published at least once", options.url)
    return replace(options, exactly_once="sessions" if _decided[broker] else "none")


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a writer runs inside a Spark task")
    return context


class Writer(DataSourceArrowWriter):
    """Batch write. The ids begin with a name that is made when the write starts."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(message_schema(schema, options), options)
        self._options = resolved(options)
        self._schema = schema
        self._write_id = uuid.uuid4().hex

    @shown
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        place = Place(self._write_id, 0, _task().partitionId())
        if self._options.exactly_once == "sessions":
            return in_session(iterator, self._options, self._schema, place)
        return publish(iterator, self._options, self._schema, prefix(place))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tells the totals; what is confirmed cannot be taken back, and nothing waits for this."""
        report(messages, f"write {self._write_id[:8]}")
        self._clean_up(len(messages), self._options.retry_timeout)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tells what the tasks that did not fail have published: it stays."""
        report(messages, f"write {self._write_id[:8]} failed, and yet")
        self._clean_up(len(messages), self._options.first_patience)  # the broker may be why it failed

    def _clean_up(self, partitions: int, patience: float) -> None:
        """Has the broker forget the tasks of this write, those that failed too: no other write continues it."""
        if self._options.exactly_once == "sessions":
            from harebell.spark.sink.session_publisher import clean_up

            places = [Place(self._write_id, 0, partition) for partition in range(partitions)]
            clean_up(places, self._options, patience)


class StreamWriter(DataSourceStreamArrowWriter):
    """Streaming write. The ids begin with the query's id and the batch's number, which a restart keeps."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(message_schema(schema, options), options)
        self._options = resolved(options)
        self._schema = schema

    @shown
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        task = _task()
        get: Callable[[str], str | None] = task.getLocalProperty
        place = Place(get("sql.streaming.queryId") or "", int(get("streaming.sql.batchId") or 0), task.partitionId())
        if self._options.exactly_once == "sessions":
            return in_session(iterator, self._options, self._schema, place)
        return publish(iterator, self._options, self._schema, prefix(place))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tells the totals; what is confirmed cannot be taken back, and nothing waits for this."""
        report(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tells what the tasks that did not fail have published: it stays, and comes again with the batch."""
        report(messages, f"batch {batchId} failed, and yet")
