"""The columns of a block of deliveries, as Arrow arrays that are cut out of its bytes.

Rules: what a schema leaves out costs nothing. A column is the same as `schema.Rows` would make of the same messages,
which it is compared with in the tests, and which makes the columns that are not known here. A value that is not UTF-8
where text belongs does not stop a read: it is replaced, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from harebell.protocol.v091.fields import read_table
from harebell.spark.connection import stream_offset
from harebell.spark.schema import TIMESTAMP_NUMBER, Rows, headers_to_json, strings, text_of_bodies
from harebell.spark.streams.blocks import OFFSET_SIZE, Block, Irregular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harebell.client.messages import Delivery
    from harebell.spark.streams.blocks import Int64Array

__all__ = ["Columns"]

_LAST_SECOND: Final = 253_402_300_799  # of the year 9999: what comes after it no datetime holds
_TEXTS: Final = frozenset(
    ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
     "app_id")
)  # fmt: skip
_OCTETS: Final = frozenset(("delivery_mode", "priority"))
_OWN: Final = frozenset(("queue", "offset", "exchange", "routing_key", "redelivered", "body"))
_PROPERTIES: Final = _TEXTS | _OCTETS | {"timestamp", TIMESTAMP_NUMBER, "headers"}


class Columns:
    """Turns what a SocketReader gives into Arrow batches of one schema. Made once per task."""

    def __init__(self, schema: StructType) -> None:
        self._plain = Rows(schema)
        self.schema = self._plain.schema
        self._kinds = {field.name: field.type for field in self.schema}
        known = _OWN | _PROPERTIES
        self._slow = self._rows_of(schema, lambda name: name not in known)
        self._properties = self._rows_of(schema, lambda name: name in _PROPERTIES)

    @staticmethod
    def _rows_of(schema: StructType, wanted: Callable[[str], bool]) -> Rows | None:
        fields = [field for field in schema.fields if wanted(field.name)]
        return Rows(StructType(fields)) if fields else None

    def batch(self, queue: str, chunk: Block | list[Delivery], rows: Int64Array) -> pa.RecordBatch:
        """These rows of the chunk. Raises InvalidArgument for `body string` where a body is not UTF-8."""
        if isinstance(chunk, list):
            chosen = [chunk[row] for row in rows]
            return self._plain.batch(queue, chosen, [stream_offset(delivery) for delivery in chosen])
        return self._of_block(queue, chunk, rows)

    def _of_block(self, queue: str, block: Block, rows: Int64Array) -> pa.RecordBatch:
        slow = [self._slow]
        try:
            block.property("headers")
        except Irregular:  # properties that do not add up: the decoder of the engine says what is wrong
            slow.append(self._properties)
        ready: dict[str, pa.Array] = {}
        for maker in filter(None, slow):
            numbers = block.numbers[rows].tolist()
            made = maker.batch(queue, block.deliveries(rows), numbers)
            ready.update(zip(made.schema.names, made.columns, strict=True))
        arrays = [
            ready[name] if name in ready else self._column(name, kind, queue, block, rows)
            for name, kind in self._kinds.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, kind: pa.DataType, queue: str, block: Block, rows: Int64Array) -> pa.Array:
        if name == "queue":
            return pa.repeat(pa.scalar(queue, kind), len(rows))
        if name == "offset":
            return pa.array(block.numbers[rows], kind)
        if name == "redelivered":
            return pa.array(block.redelivered()[rows])
        if name == "body":
            return text_of_bodies(queue, _slices(block, *block.bodies(), None, rows), kind)
        if name == "routing_key":
            return _strings(_slices(block, *block.routing_keys(), None, rows))
        if name == "exchange":
            return _strings(_slices(block, *block.exchanges(), None, rows))
        if name == "headers":
            return _headers(block, rows, kind)
        if name == "timestamp":
            return _timestamps(block, rows)
        if name == TIMESTAMP_NUMBER:
            return _far_timestamps(block, rows)
        found = block.property(name)
        if found is None:
            return pa.nulls(len(rows), kind)
        at, sizes, present = found
        if name in _TEXTS:
            return _strings(_slices(block, at, sizes, present, rows))
        return pa.array(block.octets_at(at[rows]), kind, mask=None if present is None else ~present[rows])


def _timestamps(block: Block, rows: Int64Array) -> pa.Array:
    """The property timestamp; null for a number that no date holds (people send milliseconds)."""
    kind = pa.timestamp("us", "UTC")
    found = block.property("timestamp")
    if found is None:
        return pa.nulls(len(rows), kind)
    at, _, present = found
    seconds = block.longs_at(at[rows])
    missing = _is_far(seconds)
    if present is not None:
        missing |= ~present[rows]
    return pa.array(np.where(missing, 0, seconds) * 1_000_000, pa.int64(), mask=missing).cast(kind)


def _far_timestamps(block: Block, rows: Int64Array) -> pa.Array:
    """The numbers for which `_timestamps` has no date."""
    found = block.property("timestamp")
    if found is not None:
        at, _, present = found
        numbers = block.longs_at(at[rows])
        far = _is_far(numbers)
        if present is not None:
            far &= present[rows]
        if far.any():
            return pa.array(numbers, pa.int64(), mask=~far)
    return pa.nulls(len(rows), pa.int64())


def _is_far(seconds: Int64Array) -> NDArray[np.bool_]:
    return (seconds < 0) | (seconds > _LAST_SECOND)


def _slices(
    block: Block, at: Int64Array, sizes: Int64Array, present: NDArray[np.bool_] | None, rows: Int64Array
) -> pa.Array:
    """The bytes at these positions as a binary column.

    Slices of one buffer that others stand between are every second element of a column of all that is in it.
    """
    bounds = np.empty(2 * len(at), np.int32)
    bounds[0::2], bounds[1::2] = at, at + sizes
    whole = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), block.buffer])
    return whole.take(pa.array(2 * rows, mask=None if present is None else ~present[rows]))


def _strings(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode(errors="replace") for v in raw.to_pylist()], pa.string())


def _headers(block: Block, rows: Int64Array, kind: pa.DataType) -> pa.Array:
    """Header tables as JSON text: each different one is decoded once, without the number that makes all differ."""
    found = block.property("headers")
    if found is None:
        return pa.nulls(len(rows), kind)
    at, sizes, present = found
    leads = block.offset_leads(at)
    if present is not None:
        leads &= present
    skip = np.where(leads, OFFSET_SIZE, 0)
    at, sizes = at + skip, sizes - skip
    if not sizes.any():
        return pa.nulls(len(rows), kind)
    tables = _slices(block, at, sizes, present, rows).dictionary_encode()
    texts = [
        None if table is None else headers_to_json(read_table(len(table).to_bytes(4, "big") + table, 0)[0])
        for table in tables.dictionary.to_pylist()
    ]
    return strings(texts, kind).take(tables.indices)
