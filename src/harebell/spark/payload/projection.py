"""The last step of a read: from the columns that a source reads to those that the user asked for.

Rules: both kinds of source use it, after their own batches. `base` says which columns it needs of them. A read without
payload and without headers_map needs what the user asked for, and the step hands its batches through untouched.
It holds no connection until a bad row has to be published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType

from harebell.errors import InvalidArgument
from harebell.spark.headers import headers_to_texts
from harebell.spark.options.payload import PayloadOptions
from harebell.spark.payload.avro import AvroDecoder, avro_type
from harebell.spark.payload.bad_rows import BadRowsPublisher, fail
from harebell.spark.payload.columns import msgspec_type
from harebell.spark.payload.content import Content, contents
from harebell.spark.payload.json import JsonDecoder
from harebell.spark.payload.registry import open_registry
from harebell.spark.payload.text import text_column
from harebell.spark.schema import COLUMNS, HEADERS_MAP, arrow_schema, check_schema, project, strings

if TYPE_CHECKING:
    from harebell.spark.options import SourceOptions

__all__ = ["PAYLOAD", "RowProjection", "check_rows", "payload_schema"]

PAYLOAD: Final = "payload"
MAP_TYPE: Final = MapType(StringType(), StringType())

Decoder = Callable[[Content], pa.Array]


def payload_schema(payload: PayloadOptions, kind: DataType | str) -> StructType | str:
    """All columns of a read with a payload of that type, in Spark's own form or, for a type in DDL, as DDL."""
    extra = [payload.corrupt_column] if payload.bad_rows == "column" else []
    plain = [StructField(name, column) for name, column in COLUMNS.items()]
    if isinstance(kind, str):
        if not kind.strip().lower().startswith("struct<"):
            kind = f"struct<{kind}>"
        columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in plain]
        return ", ".join([*columns, f"{PAYLOAD} {kind}", *(f"`{name.replace('`', '``')}` string" for name in extra)])
    return StructType([*plain, StructField(PAYLOAD, kind), *(StructField(name, StringType()) for name in extra)])


def check_rows(schema: StructType, payload: PayloadOptions) -> None:
    """Raises InvalidArgument when a read cannot have these columns, with these types."""
    names = [field.name for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"the schema has column '{twice[0]}' more than once")
    corrupt = payload.corrupt_column if payload.bad_rows == "column" else None
    derived = {} if payload.format == "binary" else {PAYLOAD, corrupt}
    if derived and (corrupt in COLUMNS or corrupt in (PAYLOAD, HEADERS_MAP)):
        raise InvalidArgument(f"option 'corruptColumn' is '{corrupt}', which is a column already")
    check_schema(StructType([f for f in schema.fields if f.name not in derived and f.name != HEADERS_MAP]))
    given = {field.name: field.dataType for field in schema.fields}
    if given.get(HEADERS_MAP, MAP_TYPE) != MAP_TYPE:
        raise InvalidArgument(f"column '{HEADERS_MAP}' is map<string,string>, not {given[HEADERS_MAP].simpleString()}")
    if not derived:
        return
    if PAYLOAD not in given:
        raise InvalidArgument(f"payload={payload.format} needs a column '{PAYLOAD}' in the schema")
    if corrupt is not None and given.get(corrupt) != StringType():
        raise InvalidArgument(
            f"badRows=column needs a column '{corrupt} string' in the schema, or the reasons would be lost; "
            "or choose badRows=fail or badRows=dead-letter"
        )
    kind = given[PAYLOAD]
    if payload.format == "text":
        wanted: DataType | None = StringType()
    elif payload.format == "avro":
        wanted = avro_type(payload.schema or "")
    else:
        wanted = None
        if not isinstance(kind, StructType):
            raise InvalidArgument(f"column '{PAYLOAD}' is a struct with payload=json, not {kind.simpleString()}")
        msgspec_type(kind, strict=False)
    if wanted is not None and kind != wanted:
        raise InvalidArgument(
            f"column '{PAYLOAD}' is {wanted.simpleString()} with payload={payload.format}, not {kind.simpleString()}"
        )


class RowProjection:
    """Turns batches with the columns `base` into batches of the user's schema. Made in a task, closed at its end."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        payload = options.payload
        check_rows(schema, payload)
        self._payload = payload
        self._arrow = arrow_schema(schema)
        self._publisher = BadRowsPublisher(options)
        self._plain = payload.format == "binary" and HEADERS_MAP not in schema.names
        self.base = schema if self._plain else _base(schema, payload)
        self._decode = None if payload.format == "binary" else _decoder(payload, schema, self._arrow)

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The step's batches for a source's: one for one, or several where compressed bodies are large.

        Raises UndecodableBody with badRows=fail, and what publishing raises with badRows=dead-letter.
        """
        if self._plain:
            yield from batches
            return
        try:
            for batch in batches:
                while batch.num_rows:
                    content = None if self._decode is None else contents(batch, self._payload)
                    rows = batch.num_rows if content is None else len(content.bodies)
                    yield self._made(batch.slice(0, rows), content)
                    batch = batch.slice(rows)
        finally:
            self._publisher.close()

    def _made(self, batch: pa.RecordBatch, content: Content | None) -> pa.RecordBatch:
        payload, corrupt = None, None
        if content is not None and self._decode is not None:
            payload = self._decode(content)
            reasons = content.reasons
            if self._payload.bad_rows == "column":
                rows = batch.num_rows
                corrupt = pa.array([reasons.get(row) for row in range(rows)] if reasons else [None] * rows, pa.string())
            elif reasons:
                if self._payload.bad_rows == "fail":
                    fail(batch, reasons)
                self._publisher.publish(batch, reasons)
                good = pa.array([row not in reasons for row in range(batch.num_rows)])
                batch, payload = batch.filter(good), payload.filter(good)
        queue = batch.column("queue")[0].as_py() if "queue" in batch.schema.names and batch.num_rows else ""
        made = {PAYLOAD: payload, self._payload.corrupt_column: corrupt}
        arrays = []
        for field in self._arrow:
            column = made.get(field.name)
            if column is None and field.name == HEADERS_MAP:
                column = _headers_map(batch.column("headers"), field.type)
            elif column is None:
                column = project(queue, batch, pa.schema([field])).column(0)
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _base(schema: StructType, payload: PayloadOptions) -> StructType:
    """The columns that a source has to read, the body as it is."""
    needed = set(schema.names)
    if HEADERS_MAP in needed:
        needed.add("headers")
    if payload.format != "binary":
        needed.add("body")
        if payload.compression == "auto" or (payload.charset is None and payload.format != "avro"):
            needed.add("content_encoding")
        if payload.charset is None and payload.format != "avro":
            needed.add("content_type")
        if payload.bad_rows == "fail":
            needed |= {"queue", "offset", "message_id"}
        elif payload.bad_rows == "dead-letter":
            needed |= set(COLUMNS)
    if "body" in schema.names and schema["body"].dataType == StringType():
        needed.add("queue")  # for the error about a body that is not text
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if name in needed])


def _decoder(payload: PayloadOptions, schema: StructType, arrow: pa.Schema) -> Decoder:
    if payload.format == "text":
        return text_column
    kind = arrow.field(PAYLOAD).type
    if payload.format == "avro":
        registry = None if payload.registry is None else open_registry(payload.registry)
        return AvroDecoder(payload.schema or "", kind, registry)
    struct = schema[PAYLOAD].dataType
    assert isinstance(struct, StructType)
    return JsonDecoder(struct, kind, payload.extra_fields == "corrupt")


def _headers_map(headers: pa.Array, kind: pa.DataType) -> pa.Array:
    offsets: list[int | None] = []
    names: list[str] = []
    texts: list[str | None] = []
    for text in headers.to_pylist():
        pairs = headers_to_texts(text)
        offsets.append(None if pairs is None else len(names))
        for name, value in pairs or ():
            names.append(name)
            texts.append(value)
    offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), strings(names, kind.key_type), strings(texts, kind.item_type), type=kind
    )
