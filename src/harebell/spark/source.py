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

from harebell.errors import HarebellError, InvalidArgument
from harebell.spark.connection import probe_family, retrying
from harebell.spark.options import (
    SinkOptions,
    SourceOptions,
    check_read,
    payload_options,
    refuse,
    sink_options,
    source_options,
)
from harebell.spark.payload.avro import avro_type, schema_text
from harebell.spark.payload.projection import check_rows, payload_schema
from harebell.spark.payload.registry import framed, open_registry
from harebell.spark.queues.reader import SpoolReader, SpoolStreamReader
from harebell.spark.sampling import sampled_type
from harebell.spark.schema import row_schema
from harebell.spark.shown_errors import Refused, shown
from harebell.spark.sink.writer import StreamWriter, Writer, check_target
from harebell.spark.streams.reader import StreamQueueReader, StreamQueueStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["AmqpDataSource"]

_CHECKED: Final[list[SinkOptions]] = []
"""The options of streaming writes whose broker and exchange this process has asked for."""

_READS: Final = frozenset(("queue", "queues", "queuepattern", "superstream"))

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

    @shown
    def schema(self) -> StructType | str:
        self._described = True
        self._check_names()
        payload = payload_options(self.options)
        if payload.format == "binary":
            return row_schema()
        if payload.format == "text":
            return payload_schema(payload, StringType())
        if payload.format == "avro":
            return payload_schema(payload, avro_type(schema_text(payload.schema or "")))
        return payload_schema(payload, payload.schema or self._sampled())

    @shown
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._checked(schema, streaming=False)
        if family(options) == "stream":
            return StreamQueueReader(options, schema)
        return SpoolReader(options, schema, options.ticket or self._ticket)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = self._checked(schema, streaming=True)
            if family(options) == "stream":
                return StreamQueueStreamReader(options, schema)
            return SpoolStreamReader(options, schema)
        except HarebellError as error:
            return Refused(error)

    @shown
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidArgument("format 'amqp' cannot overwrite: messages are added; use mode('append')")
        options = self.write_options()
        writer = Writer(options, schema)
        check_target(options)
        return writer

    @shown
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise InvalidArgument(
                "format 'amqp' cannot write outputMode('complete'): each batch would publish the whole table again; "
                "use append, or publish the rows that have changed by outputMode('update') and a batch write in "
                "foreachBatch"
            )
        options = self.write_options()
        writer = StreamWriter(options, schema)
        if options not in _CHECKED:  # the process that plans batches lives on; a connection for each would be too many
            check_target(options)
            _CHECKED.append(options)
        return writer

    def write_options(self) -> SinkOptions:
        """The options of a write, its Avro schema read and that schema's id known."""
        options = sink_options(self.options)
        if options.payload_schema is None:
            return options
        schema, prefix = schema_text(options.payload_schema), b""
        avro_type(schema)
        if options.schema_registry is not None:
            try:
                prefix = framed(open_registry(options.schema_registry).id_of(schema))
            except LookupError as error:
                raise InvalidArgument(
                    f"the schema of option 'payloadSchema' is not in the registry '{options.schema_registry}'"
                ) from error
        return replace(options, payload_schema=schema, body_prefix=prefix)

    def _check_names(self) -> None:
        """Raises InvalidArgument for options that suit neither kind of read, before the action that reads.

        Spark asks for a schema when a DataFrame is made, and does not say for what; options of a write are left alone.
        """
        if not _READS.isdisjoint(name.lower() for name in self.options):
            check_read(self.options)

    def _checked(self, schema: StructType, streaming: bool) -> SourceOptions:
        """The options of a read with these columns."""
        options = source_options(self.options, streaming)
        payload = options.payload
        if payload.format == "avro":
            payload = replace(payload, schema=schema_text(payload.schema or ""))
            if payload.registry is not None:
                open_registry(payload.registry)  # raises what would fail the first task otherwise
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
                options.first_patience,
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
