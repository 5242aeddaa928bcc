"""format("amqp"): the class that Spark makes, again and again, in short-lived processes. It opens no connection here.

Rules: the first instance of a load() is pickled and used for everything that follows on that DataFrame; that is why
the drain of a classic queue gets its name here. The parameter names of streamWriter are Spark's: one of its processes
passes them by position, another by name.
"""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StringType

from harebell.errors import InvalidArgument
from harebell.spark.connection import probe_family, retrying
from harebell.spark.options import SourceOptions, payload_options, refuse, sink_options, source_options
from harebell.spark.payload.avro import avro_type, schema_text
from harebell.spark.payload.projection import check_rows, payload_schema
from harebell.spark.queues.reader import SpoolReader, SpoolStreamReader
from harebell.spark.sampling import sampled_type
from harebell.spark.schema import row_schema
from harebell.spark.sink.writer import StreamWriter, Writer
from harebell.spark.streams.reader import StreamQueueReader, StreamQueueStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["AmqpDataSource"]

_STREAMING_SAMPLE: Final = (
    "a streaming read with payload=json needs option 'payloadSchema': a sample would be another one at every start; "
    "harebell.spark.infer_schema() makes it from a sample"
)


class AmqpDataSource(DataSource):
    """The data source and sink "amqp". Options and guarantees: docs/reference/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._ticket = uuid.uuid4().hex
        self._described = False  # schema() was asked for: the user gave no schema

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType | str:
        self._described = True
        payload = payload_options(self.options)
        if payload.format == "binary":
            return row_schema()
        if payload.format == "text":
            return payload_schema(payload, StringType())
        if payload.format == "avro":
            return payload_schema(payload, avro_type(schema_text(payload.schema or "")))
        return payload_schema(payload, payload.schema or self._sampled())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._checked(schema, streaming=False)
        if family(options) == "stream":
            return StreamQueueReader(options, schema)
        return SpoolReader(options, schema, options.ticket or self._ticket)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._checked(schema, streaming=True)
        if family(options) == "stream":
            return StreamQueueStreamReader(options, schema)
        return SpoolStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidArgument("format 'amqp' cannot overwrite: messages are added; use mode('append')")
        return Writer(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(sink_options(self.options), schema)

    def _checked(self, schema: StructType, streaming: bool) -> SourceOptions:
        """The options of a read with these columns."""
        options = source_options(self.options, streaming)
        payload = options.payload
        if payload.format == "avro":
            payload = replace(payload, schema=schema_text(payload.schema or ""))
            options = replace(options, payload=payload)
        elif payload.format == "json":
            if payload.schema is not None and not self._described:
                raise InvalidArgument(
                    "give the payload's type once: as option 'payloadSchema' or as column 'payload' in schema()"
                )
            if payload.schema is None and self._described and streaming:
                raise InvalidArgument(_STREAMING_SAMPLE)
        check_rows(schema, payload)
        return options

    def _sampled(self) -> StructType:
        try:
            options = source_options(self.options, streaming=False)
        except InvalidArgument:
            source_options(self.options, streaming=True)  # raises when it is not for want of that
            raise InvalidArgument(_STREAMING_SAMPLE) from None
        if family(options) != "stream":
            raise InvalidArgument(
                "payload=json needs option 'payloadSchema' for a classic or quorum queue: looking at a sample would "
                "take the messages; harebell.spark.infer_schema() makes it from a DataFrame of them"
            )
        return sampled_type(options)


def family(options: SourceOptions) -> Literal["stream", "spool"]:
    """How the queues are read: by offsets, or through the spool. Raises InvalidArgument when they differ."""
    if not options.queues:  # patterns and super-streams are of stream queues
        if options.queue_type not in ("auto", "stream"):
            raise InvalidArgument("options 'queuePattern' and 'superstream' are for stream queues")
        found: Literal["stream", "spool"] = "stream"
    elif options.queue_type != "auto":
        found = "stream" if options.queue_type == "stream" else "spool"
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
