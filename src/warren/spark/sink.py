"""Spark's writers: a DataFrame's rows become messages, published with confirms.

Rules: a task reports success only after every one of its messages is confirmed, and fails when one is refused or
(mandatory, the default) reaches no queue. A task that Spark runs again publishes again: at least once on the wire.
The message ids are the same in every attempt (<query>/<batch>/<partition>/<row>), so a consumer can drop the copies;
that holds where Spark gives the rows in the same order again, which is every plan without a shuffle over a replayable
source; after a shuffle use ids=column with a key of your own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from warren.client.records import Message, Publication
from warren.errors import InvalidArgument
from warren.spark.amqp import TRANSIENT, Link, retrying
from warren.spark.options import SinkOptions
from warren.spark.schema import HEADERS_MAP, PROPERTY_COLUMNS, headers_from_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Published", "StreamWriter", "Writer"]

PERSISTENT: Final = 2
TRANSIENT_MODE: Final = 1
CHUNK: Final = 10_000  # messages published between two waits for the last confirm; what a lost connection repeats
BODIES: Final = ("body", "value")
# What a read adds about the reading itself; a row that was read can be written without dropping them first.
OF_A_READ: Final = ("queue", "offset", "redelivered")
_RENAMED: Final = {"value": "body", HEADERS_MAP: "headers"}


class Published(WriterCommitMessage):
    """What one task has published, all of it confirmed."""

    def __init__(self, count: int) -> None:
        self.count = count


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidArgument when the DataFrame's columns cannot become messages; the text names what can."""
    known = (*BODIES, "exchange", "routing_key", *PROPERTY_COLUMNS, HEADERS_MAP)
    names = schema.fieldNames()
    for field in schema.fields:
        name, kind = field.name, field.dataType
        if name in OF_A_READ:
            continue
        if name not in known:
            raise InvalidArgument(f"format 'amqp' cannot write column '{name}'; it writes: {', '.join(known)}")
        if name in BODIES:
            fits = isinstance(kind, BinaryType | StringType)
        elif name in ("headers", HEADERS_MAP):
            fits = (name == "headers" and isinstance(kind, StringType)) or (
                isinstance(kind, MapType)
                and isinstance(kind.keyType, StringType)
                and isinstance(kind.valueType, StringType)
            )
        elif name in ("delivery_mode", "priority"):
            fits = isinstance(kind, ByteType | ShortType | IntegerType | LongType)
        elif name == "timestamp":
            fits = isinstance(kind, TimestampType)
        else:
            fits = isinstance(kind, StringType)
        if not fits:
            raise InvalidArgument(f"column '{name}' cannot be {kind.simpleString()} in format 'amqp'")
    if "headers" in names and HEADERS_MAP in names:
        raise InvalidArgument(f"a message's headers come from one column: 'headers' or '{HEADERS_MAP}', not both")
    if sum(name in names for name in BODIES) != 1:
        raise InvalidArgument("a message needs exactly one of the columns 'body' and 'value' (binary or string)")
    for name, option in (("exchange", options.exchange), ("routing_key", options.routing_key)):
        if name not in names and option is None:
            spelled = "exchange" if name == "exchange" else "routingKey"
            raise InvalidArgument(f"where to publish? give option '{spelled}' or a column '{name}'")
    if options.ids == "column" and "message_id" not in names:
        raise InvalidArgument("option 'ids' is 'column' but there is no column 'message_id'")


class _Publisher:
    """Publishes a task's batches. Made in the driver, sent to the task: holds plain values only."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._schema = schema

    def publish(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Published:
        """Publishes every row, message ids beginning with `prefix`; returns when all are confirmed."""
        options, count = self._options, 0
        link: Link | None = None
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, CHUNK):
                    publications = self._publications(batch.slice(start, CHUNK), prefix, count)

                    def once(publications: Sequence[Publication] = publications) -> None:
                        nonlocal link
                        try:
                            if link is None:
                                link = Link(options.url, options.timeout)
                                link.confirm_select()
                            link.publish(publications, options.window, options.timeout)
                        except TRANSIENT:
                            if link is not None:
                                link.close()
                                link = None
                            raise

                    # What was not confirmed is published again, under the same ids.
                    retrying(once, options.retry_timeout, "publishing")
                    count += len(publications)
        finally:
            if link is not None:
                link.close()
        return Published(count)

    def _publications(self, batch: pa.RecordBatch, prefix: str, row: int) -> list[Publication]:
        options, rows = self._options, batch.num_rows
        columns: dict[str, list[Any]] = {}
        for field, column in zip(self._schema.fields, batch.columns, strict=True):
            if field.name not in OF_A_READ:
                columns[_RENAMED.get(field.name, field.name)] = _values(field.name, column)
        exchanges = _filled(columns.pop("exchange", None), options.exchange, rows, "exchange")
        keys = _filled(columns.pop("routing_key", None), options.routing_key, rows, "routing_key")
        bodies = columns.pop("body")
        if None in bodies:
            raise InvalidArgument("column 'body' is null in a row; a message without content is an empty body")
        if options.ids != "none" or "message_id" in columns:
            columns["message_id"] = self._ids(columns.get("message_id"), prefix, row, rows)
        mode = PERSISTENT if options.persistent else TRANSIENT_MODE
        columns["delivery_mode"] = _filled(columns.get("delivery_mode"), mode, rows, "delivery_mode")
        names = list(columns)
        mandatory = options.mandatory
        return [
            Publication(Message(body, **dict(zip(names, values, strict=True))), exchange, key, mandatory)
            for body, exchange, key, values in zip(
                bodies, exchanges, keys, zip(*columns.values(), strict=True), strict=True
            )
        ]

    def _ids(self, given: list[str | None] | None, prefix: str, row: int, rows: int) -> list[str | None]:
        ids = self._options.ids
        if ids == "column" and given is not None and None in given:
            raise InvalidArgument("option 'ids' is 'column' but column 'message_id' is null in a row")
        if ids != "auto":
            return [None] * rows if given is None else given
        if given is None:
            return [f"{prefix}/{row + i}" for i in range(rows)]
        return [value if value is not None else f"{prefix}/{row + i}" for i, value in enumerate(given)]


def _values(name: str, column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if name in BODIES:
        return [value.encode() if isinstance(value, str) else value for value in values]
    if name in ("headers", HEADERS_MAP):
        # A map column arrives as a list of pairs.
        return [
            None if value is None else headers_from_json(value) if isinstance(value, str) else dict(value)
            for value in values
        ]
    return values


def _filled(given: list[Any] | None, default: Any, rows: int, name: str) -> list[Any]:
    """The column with the option's value where it is null or missing. Raises InvalidArgument when neither is there."""
    if given is None:
        return [default] * rows
    if default is None and None in given:
        raise InvalidArgument(f"column '{name}' is null in a row and there is no option for such rows")
    return [default if value is None else value for value in given]


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a writer runs inside a Spark task")
    return context


class Writer(DataSourceArrowWriter):
    """Batch write. The ids begin with a name that is made when the write starts."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._publisher = _Publisher(options, schema)
        self._write_id = uuid.uuid4().hex[:8]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._publisher.publish(iterator, f"{self._write_id}/0/{_task().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what is confirmed cannot be taken back, and nothing waits for this."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: see `commit`."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Streaming write. The ids begin with the query's id and the batch's number, which a restart keeps."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._publisher = _Publisher(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        task = _task()
        get: Callable[[str], str | None] = task.getLocalProperty
        query = (get("sql.streaming.queryId") or "")[:8]
        return self._publisher.publish(iterator, f"{query}/{get('streaming.sql.batchId')}/{task.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is confirmed cannot be taken back, and nothing waits for this."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: see `commit`."""
