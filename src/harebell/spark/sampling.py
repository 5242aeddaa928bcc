"""Infers a payload's type from a sample of messages: for option payloadSchema, or in its place.

The sample is a DataFrame, or the oldest messages of stream queues, which reading does not remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructField, StructType

from harebell.errors import InvalidArgument
from harebell.spark.options import SourceOptions, queue_option, source_options
from harebell.spark.payload.content import contents
from harebell.spark.payload.infer import ddl, type_of_bodies, type_of_column
from harebell.spark.payload.json import utf8_bodies
from harebell.spark.schema import COLUMNS
from harebell.spark.streams.bounds import BoundsReader
from harebell.spark.streams.columns import Columns
from harebell.spark.streams.discovery import queue_names
from harebell.spark.streams.filters import selection
from harebell.spark.streams.offsets import UNKNOWN, Range
from harebell.spark.streams.range_reader import read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["infer_schema", "sampled_type"]

_SAMPLED: Final = ("body", "content_type", "content_encoding")


def infer_schema(source: DataFrame | str, queue: str | None = None, *, sample: int = 1000, column: str = "body") -> str:
    """The type of JSON bodies, as text for option payloadSchema (Spark's DDL: "id bigint, name string").

    `source` is a DataFrame, whose whole `column` (binary or string) is read in Spark; or a broker's URL, with the name
    of a stream queue, whose oldest `sample` messages are read in this process. Bodies that are not JSON objects are
    skipped. Raises InvalidArgument when no body is a JSON object, when a field has two types that no type covers, and
    for a queue that is not a stream queue.
    """
    if not isinstance(source, str):
        return ddl(type_of_column(source, column))
    if queue is None:
        raise InvalidArgument("infer_schema(url, queue) needs the name of a stream queue")
    options = {"url": source, "queue": queue_option(queue), "queueType": "stream", "payload": "json"}
    return ddl(sampled_type(source_options({**options, "sampleMessages": str(sample)}, streaming=False)))


def sampled_type(options: SourceOptions) -> StructType:
    """The type of the oldest messages of stream queues. Raises as `infer_schema` does."""
    return type_of_bodies(sampled_bodies(options), ", ".join(queue_names(options)))


def sampled_bodies(options: SourceOptions) -> Iterator[bytes | None]:
    """The oldest bodies of stream queues in UTF-8, `sampleMessages` of each queue; None for one that is no text."""
    columns = Columns(StructType([StructField(name, COLUMNS[name]) for name in _SAMPLED]))
    choose = selection(options.stream).chooser()
    bounds = BoundsReader(options)
    try:
        for queue in queue_names(options):
            first = bounds.first(queue)
            if first == UNKNOWN:
                continue
            wanted = Range(queue, first, min(first + options.payload.sample, bounds.tail(queue)))
            for chunk, rows in read_range(options, wanted):
                batch = columns.batch(queue, chunk, choose(queue, chunk, rows))
                yield from utf8_bodies(contents(batch, options.payload))
    finally:
        bounds.close()
