"""Wrong settings of format("amqp"), in every role: told where PySpark shows it, in one line that says what to do.

The table is (role, settings, error, what is said). Most of it calls the data source as Spark's processes do; some of
it runs in Spark, for what Spark shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from harebell import errors
from harebell.client.messages import Message
from harebell.errors import AccessRefused, ConnectionLost, HarebellError, InvalidArgument, NotFound
from harebell.spark import source as source_module
from harebell.spark.shown_errors import HIDE, Refused, shown, shown_rows
from harebell.spark.source import AmqpDataSource
from tests.spark.conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY = StructType([StructField("body", BinaryType()), StructField("routing_key", StringType())])
AWAY = {"url": "amqp://127.0.0.1:1/"}
WRONG = {"url": "WRONG"}


def load(options: dict[str, str]) -> AmqpDataSource:
    source = AmqpDataSource({name.lower(): value for name, value in options.items()})
    source.schema()
    return source


def read(options: dict[str, str]) -> None:
    """As spark.read.format("amqp").load() and an action."""
    source = load(options)
    schema = source.schema()
    assert isinstance(schema, StructType)
    source.reader(schema).partitions()


def stream(options: dict[str, str]) -> None:
    """As readStream, load() and start(): a reader is made, whatever is wrong, and asked."""
    source = load(options)
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader: Any = source.streamReader(schema)
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def write(options: dict[str, str]) -> None:
    AmqpDataSource({name.lower(): value for name, value in options.items()}).writer(BODY, False)


def write_stream(options: dict[str, str]) -> None:
    AmqpDataSource({name.lower(): value for name, value in options.items()}).streamWriter(BODY, False)


ROLES: dict[str, Callable[[dict[str, str]], None]] = {
    "read": read, "readStream": stream, "write": write, "writeStream": write_stream
}  # fmt: skip
READS = ("read", "readStream")
WRITES = ("write", "writeStream")
Setting = tuple[tuple[str, ...], dict[str, str], type[HarebellError], str]
SETTINGS: list[Setting] = [
    (READS, {}, InvalidArgument, "option 'queue' is missing"),
    (READS, {"queue": "lgo"}, NotFound, "no queue 'lgo' in vhost '/'"),
    (READS, {"queue": "lgo", "queueType": "stream"}, NotFound, "no queue 'lgo' in vhost '/'"),
    (READS, {"queue": "LOG,lgo"}, NotFound, "no queue 'lgo' in vhost '/'"),
    (READS, {"queue": "LOG,WORK"}, InvalidArgument, "one reader takes stream queues or others, not both"),
    (READS, {"queue": "WORK", "queueType": "stream"}, InvalidArgument, "it is no stream queue"),
    (READS, {"queue": "LOG", "startingOffset": "latest"}, InvalidArgument, "(is it 'startingOffsets'?)"),
    (READS, {"queue": "LOG", "exchange": "x"}, InvalidArgument, "option 'exchange' is for writes, and this is a"),
    (READS, {"queue": "LOG", "startingOffsets": "now"}, InvalidArgument, "option 'startingOffsets' is 'now'"),
    (READS, {"queue": "LOG", "startingOffsets": '{"lgo": 1}'}, InvalidArgument, "has a position for 'lgo'"),
    (READS, {"queue": "WORK", "startingOffsets": "latest"}, InvalidArgument, "means nothing for a classic or quorum"),
    (READS, {"queue": "LOG", "queueType": "steam"}, InvalidArgument, "(is it 'stream'?)"),
    (READS, {"queue": "LOG", "prefetch": "0"}, InvalidArgument, "option 'prefetch' is '0'; it takes a number"),
    (READS, {"superstream": "nope"}, NotFound, "super-stream 'nope' has no partition 'nope-0'"),
    (READS, {"queuePattern": "nope.*"}, NotFound, "no stream queue's name matches queuePattern"),
    (READS, {"queuePattern": "("}, InvalidArgument, "which is no regular expression"),
    (READS, {"queue": "LOG", "payload": "avro"}, InvalidArgument, "payload=avro needs option 'payloadSchema'"),
    (READS, {"queue": "LOG", "ticket": "../x"}, InvalidArgument, "option"),
    (
        ("read",),
        {"queue": "LOG", "maxMessagesPerTrigger": "5"},
        InvalidArgument,
        "option 'maxMessagesPerTrigger' is for streaming reads",
    ),
    (
        ("readStream",),
        {"queue": "LOG", "endingOffsets": "latest"},
        InvalidArgument,
        "option 'endingOffsets' is for batch reads",
    ),
    (READS, {"queue": "LOG", **AWAY}, ConnectionLost, "amqp://guest@127.0.0.1:1/ cannot be reached"),
    (READS, {"queue": "LOG", "queueType": "stream", **AWAY}, ConnectionLost, "cannot be reached"),
    (READS, {"queue": "WORK", "queueType": "classic", "minPartitions": "2", **AWAY}, ConnectionLost, "be reached"),
    (READS, {"queuePattern": ".*", **AWAY}, ConnectionLost, "cannot be reached"),
    (READS, {"queue": "LOG", **WRONG}, AccessRefused, "403 ACCESS_REFUSED"),
    (READS, {"queue": "LOG", "url": "http://x"}, InvalidArgument, "must start with amqp:// or amqps://"),
    (READS, {"queue": "LOG", "url": "amqp://no.such.host.invalid/"}, ConnectionLost, "cannot be reached"),
    (READS, {"queue": "LOG", "urlFile": "/nope"}, InvalidArgument, "the file /nope of option 'urlFile' cannot be read"),
    (WRITES, {}, InvalidArgument, "where to publish? give option 'exchange' or a column 'exchange'"),
    (WRITES, {"exchange": "nope"}, NotFound, "no exchange 'nope' in vhost '/': the sink declares nothing"),
    (WRITES, {"exchange": "", "windw": "5"}, InvalidArgument, "(is it 'window'?)"),
    (WRITES, {"exchange": "", "queue": "q"}, InvalidArgument, "option 'queue' is for reads, and this is a write"),
    (WRITES, {"exchange": "", "ids": "colum"}, InvalidArgument, "(is it 'column'?)"),
    (WRITES, {"exchange": "", "ids": "column"}, InvalidArgument, "there is no column 'message_id'"),
    (WRITES, {"exchange": "", "timestamp": "today"}, InvalidArgument, "it takes 'now' or a time with its zone"),
    (WRITES, {"exchange": "", **AWAY}, ConnectionLost, "cannot be reached"),
    (WRITES, {"exchange": "", **WRONG}, AccessRefused, "403 ACCESS_REFUSED"),
]
TABLE = [
    pytest.param(role, options, error, text, id=f"{role} {' '.join(f'{k}={v}' for k, v in options.items())}")
    for roles, options, error, text in SETTINGS
    for role in roles
]


@pytest.fixture(scope="module")
def broker(harebell_server: Any) -> Iterator[Broker]:
    broker = Broker(harebell_server.url)
    broker.queue("stream", name="LOG")
    broker.queue("classic", name="WORK")
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def unhidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """`shown` sets a variable for a process that is about to end; here it is taken back."""
    monkeypatch.setenv(HIDE, "")
    monkeypatch.setattr(source_module, "_CHECKED", [])


@pytest.mark.parametrize(("role", "options", "error", "text"), TABLE)
def test_it_is_told(broker: Broker, role: str, options: dict[str, str], error: type[HarebellError], text: str) -> None:
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    given = {"url": broker.url, **options}
    if "urlFile" in options:
        del given["url"]
    if given.get("url") == "WRONG":
        given["url"] = wrong
    with pytest.raises(error) as caught:
        ROLES[role](given)
    assert type(caught.value) is error
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.environ[HIDE] == "1"


def test_a_reader_that_cannot_be_made_refuses_everything_but_its_end(broker: Broker) -> None:
    reader: Any = AmqpDataSource({"url": broker.url, "queue": "lgo"}).streamReader(BODY)
    assert isinstance(reader, Refused)
    asked: dict[str, tuple[object, ...]] = {
        "prepareForTriggerAvailableNow": (), "initialOffset": (), "getDefaultReadLimit": (),
        "latestOffset": ({}, ReadAllAvailable()), "partitions": ({}, {}), "read": (None,),
    }  # fmt: skip
    for name, arguments in asked.items():
        with pytest.raises(NotFound):
            getattr(reader, name)(*arguments)
    reader.stop()


def test_what_is_no_error_of_ours_keeps_its_traceback() -> None:
    @shown
    def plain(error: Exception) -> None:
        raise error

    @shown_rows
    def rows(error: Exception) -> Iterator[int]:
        yield 1
        raise error

    for called in (plain, lambda error: list(rows(error))):
        with pytest.raises(KeyError):
            called(KeyError("x"))
        assert os.environ[HIDE] == ""
        with pytest.raises(errors.DataLoss):
            called(errors.DataLoss("x"))
        assert os.environ[HIDE] == "1"
        os.environ[HIDE] = ""


@pytest.mark.spark
def test_the_first_line_says_it(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    reading = {"url": broker.url, "queue": "LOG"}
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().selectExpr("'x' body")

    def run(frame: Any, kind: str, **options: str) -> None:
        writer = frame.writeStream.format(kind).options(checkpointLocation=str(tmp_path / kind), **options)
        writer.trigger(availableNow=True).start().awaitTermination()

    def read_stream(**options: str) -> None:
        run(spark.readStream.format("amqp").options(**{**reading, **options}).load(), "noop")

    def fails_in_a_task() -> None:
        broker.publish("LOG", [Message(b"\xff")])
        spark.read.format("amqp").options(**reading).schema("body string").load().collect()

    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: read_stream(queue="lgo"), "NotFound: 404 NOT_FOUND - no queue 'lgo' in vhost '/'"),
        (lambda: read_stream(startingOffset="latest"), "no option 'startingoffset' for a read (is it 'startingOffs"),
        (lambda: spark.read.format("amqp").options(**{**reading, "queue": "lgo"}).load().count(), "no queue 'lgo'"),
        (lambda: run(rows, "amqp", url=broker.url, exchange="nope", routingKey="x"), "NotFound: 404 NOT_FOUND - no ex"),
        (fails_in_a_task, "InvalidArgument: a message of queue 'LOG' is not UTF-8 text"),
    ]
    for case, text in cases:
        with pytest.raises(Exception, match=r"harebell\.errors") as caught:
            case()
        said = str(caught.value)
        assert text in " ".join(said.splitlines()[:2]), said
        assert "Traceback" not in said
        assert "UnboundLocalError" not in said
