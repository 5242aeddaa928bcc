"""The rows of format("amqp"): which columns there are, and how a list of deliveries becomes an Arrow batch.

Rules: the schema that Spark hands to the reader is the projection (the API has no column pruning), and a column that
it leaves out costs nothing: message properties are decoded only when a column needs them. Batches are built with
Spark's own Arrow schema, because Spark refuses any other. Headers are JSON text: cheap to build, readable in SQL
(get_json_object, from_json), and x-death stays nested. It knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from harebell.errors import InvalidArgument
from harebell.spark.headers import headers_from_json, headers_to_json

if TYPE_CHECKING:
    from harebell.client.messages import Delivery
    from harebell.protocol.v091 import Properties

__all__ = [
    "COLUMNS",
    "HEADERS_MAP",
    "PROPERTY_COLUMNS",
    "TIMESTAMP_NUMBER",
    "Rows",
    "arrow_schema",
    "check_schema",
    "headers_from_json",
    "headers_to_json",
    "project",
    "row_schema",
    "strings",
    "text_of_bodies",
    "unsigned",
]

# The basic properties of AMQP 0-9-1, in the order of the specification; cluster_id is unused.
PROPERTY_COLUMNS: Final[dict[str, DataType]] = {
    "content_type": StringType(),
    "content_encoding": StringType(),
    "headers": StringType(),
    "delivery_mode": IntegerType(),
    "priority": IntegerType(),
    "correlation_id": StringType(),
    "reply_to": StringType(),
    "expiration": StringType(),
    "message_id": StringType(),
    "timestamp": TimestampType(),
    "type": StringType(),
    "user_id": StringType(),
    "app_id": StringType(),
}

TIMESTAMP_NUMBER: Final = "timestamp_number"  # the property timestamp where no date holds it; `timestamp` is null

COLUMNS: Final[dict[str, DataType]] = {
    "queue": StringType(),
    "offset": LongType(),
    "exchange": StringType(),
    "routing_key": StringType(),
    "redelivered": BooleanType(),
    **PROPERTY_COLUMNS,
    TIMESTAMP_NUMBER: LongType(),
    "body": BinaryType(),
}
HEADERS_MAP: Final = "headers_map"  # by request only; made by harebell.spark.payload.projection out of `headers`


def row_schema() -> StructType:
    """All columns of a read, all nullable; `offset` is null for classic and quorum queues."""
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items()])


def check_schema(schema: StructType) -> None:
    """Raises InvalidArgument when a user's schema has a column that is not there, or asks for another type."""
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            raise InvalidArgument(
                f"format 'amqp' has no column '{field.name}'; it has: {', '.join(COLUMNS)}, {HEADERS_MAP}; "
                "and with option 'payload' (text, json or avro) payload"
            )
        allowed = (wanted, StringType()) if field.name == "body" else (wanted,)
        if field.dataType not in allowed:
            raise InvalidArgument(
                f"column '{field.name}' is {' or '.join(kind.simpleString() for kind in allowed)}, "
                f"not {field.dataType.simpleString()}"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares batches with: names, order, types and nullability."""
    return to_arrow_schema(schema, timezone="UTC")


class Rows:
    """Turns deliveries into Arrow batches of one schema. Made once per task."""

    def __init__(self, schema: StructType) -> None:
        check_schema(schema)
        self.schema = arrow_schema(schema)
        self._columns = [(field.name, kind.type) for field, kind in zip(schema.fields, self.schema, strict=True)]

    def batch(self, queue: str, deliveries: Sequence[Delivery], offsets: Sequence[int] | None) -> pa.RecordBatch:
        """One row per delivery, in order. `offsets` are the message numbers, None for a queue that has none.

        Raises InvalidArgument when the schema has `body string` and a body is not UTF-8.
        """
        properties = None
        arrays = []
        for name, kind in self._columns:
            if name == "body":
                array = text_of_bodies(queue, pa.array([d.body for d in deliveries], pa.binary()), kind)
            elif name == "queue":
                array = pa.repeat(pa.scalar(queue, kind), len(deliveries))
            elif name == "offset":
                array = pa.nulls(len(deliveries), kind) if offsets is None else pa.array(offsets, kind)
            elif name == "exchange":
                array = strings([d.exchange for d in deliveries], kind)
            elif name == "routing_key":
                array = strings([d.routing_key for d in deliveries], kind)
            elif name == "redelivered":
                array = pa.array([d.redelivered for d in deliveries], kind)
            else:
                if properties is None:
                    properties = [d.properties for d in deliveries]
                array = _property(name, properties, kind)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def project(queue: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` out of a batch that has them all. Raises InvalidArgument as Rows.batch does.

    A file of an older version has no TIMESTAMP_NUMBER, which is null then.
    """
    arrays = [
        text_of_bodies(queue, batch.column("body"), field.type)
        if field.name == "body"
        else pa.nulls(batch.num_rows, field.type)
        if field.name == TIMESTAMP_NUMBER and field.name not in batch.schema.names
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_of_bodies(queue: str, bodies: pa.Array, kind: pa.DataType) -> pa.Array:
    """The bodies as binary or, when the schema says so, as text."""
    if pa.types.is_binary(kind):
        return bodies
    try:
        return bodies.cast(kind)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"a message of queue '{queue}' is not UTF-8 text; read the column as 'body binary' and decode it in Spark"
        ) from error


def strings(values: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """A text column; bytes that are not UTF-8 and came as surrogate escapes become the replacement character."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # A peer sent bytes that are not UTF-8 where text belongs; one such message must not stop the whole read.
        return pa.array(
            [v if v is None else v.encode("utf-8", "surrogateescape").decode(errors="replace") for v in values], kind
        )


def _property(name: str, properties: Sequence[Properties], kind: pa.DataType) -> pa.Array:
    if name == "headers":
        return strings([headers_to_json(p.headers) for p in properties], kind)
    if name == TIMESTAMP_NUMBER:
        return pa.array([_signed(p.timestamp) if isinstance(p.timestamp, int) else None for p in properties], kind)
    values = list(map(attrgetter(name), properties))
    if name == "timestamp":
        # An int is a number of seconds that no datetime holds (people send milliseconds).
        return pa.array([None if isinstance(value, int) else value for value in values], kind)
    return strings(values, kind) if pa.types.is_string(kind) else pa.array(values, kind)


def _signed(number: int) -> int:
    """The same 64 bits as a bigint, which has no larger number."""
    return number - (1 << 64) if number >> 63 else number


def unsigned(number: int) -> int:
    """The number of seconds that TIMESTAMP_NUMBER stands for."""
    return number & ((1 << 64) - 1)
