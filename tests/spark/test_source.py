"""What the source answers and refuses before any row is read; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from harebell.spark.schema import row_schema
from harebell.spark.source import AmqpDataSource
from harebell.spark.streams.reader import StreamQueueReader, StreamQueueStreamReader
from tests.spark.conftest import Broker

IDS = StructType([StructField("id", LongType())])
ROWS = StructType([StructField("payload", IDS), StructField("_corrupt", StringType())])
AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'


def source(**options: str) -> AmqpDataSource:
    """A source of a stream queue; nothing has to be asked of the broker."""
    return AmqpDataSource({"queue": "q", "queuetype": "stream", **options})


def test_the_columns_of_each_payload(tmp_path: Path) -> None:
    assert source().schema() == row_schema()
    text = source(payload="text").schema()
    assert isinstance(text, StructType)
    assert [field.simpleString() for field in text.fields[20:]] == ["payload:string", "_corrupt:string"]
    json = source(payload="json", payloadschema="id bigint").schema()
    assert str(json).endswith("`body` binary, payload struct<id bigint>, `_corrupt` string")
    (tmp_path / "schema.avsc").write_text(AVRO)
    for given in (AVRO, str(tmp_path / "schema.avsc")):
        avro = source(payload="avro", payloadschema=given, badrows="fail").schema()
        assert isinstance(avro, StructType)
        assert [field.simpleString() for field in avro.fields[20:]] == ["payload:struct<id:bigint>"]


def test_the_type_is_a_column_of_the_users_or_an_option() -> None:
    by_column = source(payload="json")
    assert isinstance(by_column.reader(ROWS), StreamQueueReader)
    assert isinstance(by_column.streamReader(ROWS), StreamQueueStreamReader)
    by_option = source(payload="json", payloadschema="id bigint")
    by_option.schema()
    assert isinstance(by_option.streamReader(ROWS), StreamQueueStreamReader)
    with pytest.raises(InvalidArgument, match="give the payload's type once"):
        source(payload="json", payloadschema="id bigint").reader(ROWS)
    with pytest.raises(InvalidArgument, match=r"needs a column '_corrupt string' in the schema"):
        by_column.reader(StructType([ROWS["payload"]]))


def test_an_avro_file_is_read_where_the_job_is_planned(tmp_path: Path) -> None:
    path = tmp_path / "schema.avsc"
    path.write_text(AVRO)
    reader = source(payload="avro", payloadschema=str(path)).reader(ROWS)
    assert isinstance(reader, StreamQueueReader)
    assert reader._options.payload.schema == AVRO


def test_a_streaming_read_has_no_sample() -> None:
    with pytest.raises(InvalidArgument, match="a streaming read with payload=json needs option 'payloadSchema'"):
        source(payload="json", maxmessagespertrigger="5").schema()
    with pytest.raises(InvalidArgument, match="has no option 'nonsense'"):
        source(payload="json", nonsense="5").schema()
    sampled = source(payload="json")
    sampled._described = True  # schema() made a sample
    with pytest.raises(InvalidArgument, match="a streaming read with payload=json needs option 'payloadSchema'"):
        sampled.streamReader(ROWS).initialOffset()


def test_a_sample_of_a_stream_queue_alone(broker: Broker) -> None:
    stream, classic = broker.queue("stream"), broker.queue("classic")
    with pytest.raises(InvalidArgument, match="needs option 'payloadSchema' for a classic or quorum queue"):
        AmqpDataSource({"url": broker.url, "queue": classic, "payload": "json"}).schema()
    sampled = AmqpDataSource({"url": broker.url, "queue": stream, "payload": "json", "samplemessages": "2"})
    with pytest.raises(InvalidArgument, match=f"there is no JSON object in the sample of {stream}"):
        sampled.schema()
    broker.publish(stream, [Message(b'{"id":1}'), Message(b'{"id":2}'), Message(b'{"id":"x"}')])
    schema = sampled.schema()
    assert isinstance(schema, StructType)
    assert schema["payload"].dataType == IDS


def test_what_is_published_is_not_overwritten(broker: Broker) -> None:
    sink = AmqpDataSource({"url": broker.url, "exchange": "", "routingkey": "q"})
    columns = StructType([StructField("body", StringType())])
    with pytest.raises(InvalidArgument, match=r"cannot overwrite: .* use mode\('append'\)"):
        sink.writer(columns, overwrite=True)
    with pytest.raises(InvalidArgument, match=r"outputMode\('complete'\): .* outputMode\('update'\) and a batch write"):
        sink.streamWriter(columns, overwrite=True)
    sink.writer(columns, overwrite=False)
    sink.streamWriter(columns, overwrite=False)
