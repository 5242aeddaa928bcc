"""The column `payload` of a write with payload=avro: a struct, which becomes the column `body`.

Rules: the column has the type that a read with the same schema gives it. Each body is one record, after the id of the
schema where the write has a registry. A row that is no record of the schema is refused, as others that are no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from harebell.errors import InvalidArgument
from harebell.spark.payload.avro import AvroEncoder, avro_type

if TYPE_CHECKING:
    from harebell.spark.options import SinkOptions

__all__ = ["message_schema", "with_bodies"]

PAYLOAD: Final = "payload"
BODY: Final = "body"


def message_schema(schema: StructType, options: SinkOptions) -> StructType:
    """The columns with `body` in place of `payload`; unchanged where no payload is written.

    Raises InvalidArgument when there is no such column, or its type is not that of the Avro schema.
    """
    if options.payload_schema is None:
        return schema
    if PAYLOAD not in schema.names:
        raise InvalidArgument("payload=avro writes the column 'payload', a struct, and there is none")
    if BODY in schema.names:
        raise InvalidArgument("the column 'payload' becomes the body with payload=avro: drop the column 'body'")
    wanted, kind = avro_type(options.payload_schema), schema[PAYLOAD].dataType
    if kind.simpleString() != wanted.simpleString():  # whether a field may be null shows in its rows
        raise InvalidArgument(
            f"column 'payload' is {kind.simpleString()}, and with this 'payloadSchema' must be {wanted.simpleString()}"
        )
    return StructType([StructField(BODY, BinaryType()) if field.name == PAYLOAD else field for field in schema.fields])


def with_bodies(
    batches: Iterable[pa.RecordBatch], schema: StructType, options: SinkOptions
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of `message_schema`. Raises InvalidArgument for a row that is no record."""
    if options.payload_schema is None:
        yield from batches
        return
    encode = AvroEncoder(options.payload_schema, options.body_prefix)
    place = schema.names.index(PAYLOAD)
    for batch in batches:
        yield batch.set_column(place, pa.field(BODY, pa.binary()), encode(batch.column(place)))
