"""Attempts at a partition without Spark: each publishes the same rows, in an order of its own, and may die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from harebell.client.blocking import sessions
from harebell.spark.options import sink_options
from harebell.spark.sink.ledger import Place
from harebell.spark.sink.session_publisher import SessionPublisher

__all__ = ["BODIES", "IDENTIFIED", "Died", "attempt", "batches", "bodies_in", "cut_short", "rows_of"]

BODIES = StructType([StructField("body", BinaryType())])
IDENTIFIED = StructType([StructField("message_id", StringType()), StructField("body", BinaryType())])


class Died(Exception):
    """The executor is gone."""


def rows_of(count: int) -> list[bytes]:
    return [b"row %d" % number for number in range(count)]


def batches(
    rows: Sequence[bytes], size: int = 700, ids: Sequence[str | None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows in record batches."""
    for start in range(0, len(rows), size):
        columns = [pa.array(rows[start : start + size], pa.binary())]
        names = ["body"]
        if ids is not None:
            columns.insert(0, pa.array(ids[start : start + size], pa.string()))
            names.insert(0, "message_id")
        yield pa.RecordBatch.from_arrays(columns, names=names)


def cut_short(found: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """As that, by a task that dies after so many rows."""
    left = rows
    for batch in found:
        if batch.num_rows >= left:
            yield batch.slice(0, left)
            raise Died
        left -= batch.num_rows
        yield batch


def attempt(url: str, queue: str, place: Place, found: Iterator[pa.RecordBatch], **options: str) -> Counter[str]:
    """One attempt; its counts."""
    first = next(found, None)
    schema = IDENTIFIED if first is not None and "message_id" in first.schema.names else BODIES
    found = chain([] if first is None else [first], found)
    given: dict[str, Any] = {
        "url": url, "exchange": "", "routingKey": queue, "exactlyOnce": "sessions", "retryTimeout": "30", **options
    }  # fmt: skip
    publisher = SessionPublisher(sink_options(given), schema, place, "prefix")
    publisher.publish(found)
    return publisher.counts


def bodies_in(url: str, queue: str) -> list[bytes]:
    """What the queue has, in its order; it stays."""
    with sessions.connect(url, timeout=60) as connection, connection.session() as session:
        return [copy.body for copy in session.copies(queue, timeout=60)]
