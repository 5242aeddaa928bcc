"""format("amqp"): the class that Spark makes, again and again, in short-lived processes. It opens no connection here.

Rules: the first instance of a load() is pickled and used for everything that follows on that DataFrame; that is why
the drain of a classic queue gets its name here. The parameter names of streamWriter are Spark's: one of its processes
passes them by position, another by name.
"""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Literal

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from warren.errors import InvalidArgument
from warren.spark.amqp import probe_family, retrying
from warren.spark.options import SourceOptions, refuse, sink_options, source_options
from warren.spark.schema import check_schema, row_schema
from warren.spark.sink import StreamWriter, Writer
from warren.spark.spool_reader import SpoolReader, SpoolStreamReader
from warren.spark.stream_reader import StreamQueueReader, StreamQueueStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["AmqpDataSource"]


class AmqpDataSource(DataSource):
    """The data source and sink "amqp". Options and guarantees: docs/reference/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._ticket = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType:
        return row_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        options = source_options(self.options, streaming=False)
        if family(options) == "stream":
            return StreamQueueReader(options, schema)
        return SpoolReader(options, schema, options.ticket or self._ticket)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_schema(schema)
        options = source_options(self.options, streaming=True)
        if family(options) == "stream":
            return StreamQueueStreamReader(options, schema)
        return SpoolStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidArgument("format 'amqp' cannot overwrite: messages are added; use mode('append')")
        return Writer(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(sink_options(self.options), schema)


def family(options: SourceOptions) -> Literal["stream", "spool"]:
    """How the queues are read: by offsets, or through the spool. Raises InvalidArgument when they differ."""
    if options.queue_type != "auto":
        found: Literal["stream", "spool"] = "stream" if options.queue_type == "stream" else "spool"
    else:
        kinds = {
            queue: retrying(
                lambda queue=queue: probe_family(options.url, queue, options.timeout),  # type: ignore[misc]
                options.retry_timeout,
                f"asking what queue {queue} is",
            )
            for queue in options.queues
        }
        if len(set(kinds.values())) > 1:
            streams = [queue for queue, kind in kinds.items() if kind == "stream"]
            raise InvalidArgument(
                f"one reader takes stream queues or others, not both; of these, {', '.join(streams)} are stream queues"
            )
        found = next(iter(kinds.values()))
    refuse(options, found)
    return found
