"""Copies between queues: where rows that were read go, by the kind of queue, the columns and the options.

The table is (columns of the read) x (options) x (stream or classic queue) x (batch or streaming read). A copy that
would come back to the queue that is read is refused, and then nothing of it is published. Real brokers, no Spark:
readers and the sink are called as Spark calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.errors import InvalidArgument
from harebell.protocol.v091.codec import decode_properties
from harebell.spark.options import sink_options, source_options
from harebell.spark.queues.reader import SpoolReader, SpoolStreamReader
from harebell.spark.schema import COLUMNS, arrow_schema, row_schema
from harebell.spark.sink.row_encoding import RowEncoder
from harebell.spark.sink.writer import Published, publish
from harebell.spark.streams.reader import StreamQueueReader, StreamQueueStreamReader
from tests.spark.conftest import Broker

FULL = tuple(COLUMNS)
PLAIN = ("body", "headers", "message_id")
ADDRESSED = (*PLAIN, "exchange", "routing_key")
KEYED = (*PLAIN, "queue", "routing_key")
REFUSED = "refused"
KEEPS = "give options 'exchange' and 'routingKey' to publish elsewhere, or toOrigin=true"

# The columns, the options, and where the message goes that was published to exchange `from` (F) or by the default
# exchange (D): to the queue `to` (T), back to where it came from (B), or it is refused before or when the row comes.
CASES: list[tuple[tuple[str, ...], dict[str, str], str, str]] = [
    (FULL, {}, REFUSED, REFUSED),
    (FULL, {"routingKey": "TO"}, REFUSED, REFUSED),
    (FULL, {"exchange": ""}, REFUSED, REFUSED),
    (FULL, {"exchange": "EX"}, "T", "T"),
    (FULL, {"exchange": "FROM"}, REFUSED, "B"),  # the same key was published by the default exchange: it is bound by #
    (FULL, {"exchange": "", "routingKey": "TO"}, "T", "T"),
    (FULL, {"exchange": "EX", "routingKey": "other"}, "T", "T"),
    (FULL, {"exchange": "", "routingKey": "SOURCE"}, REFUSED, REFUSED),
    (FULL, {"exchange": "FROM", "routingKey": "KEY"}, REFUSED, "B"),
    (FULL, {"toOrigin": "true"}, "B", "B"),
    (FULL, {"toOrigin": "true", "exchange": "FROM"}, "B", "B"),
    (FULL, {"toOrigin": "true", "exchange": "", "routingKey": "TO"}, REFUSED, REFUSED),
    (KEYED, {"exchange": ""}, REFUSED, REFUSED),
    (KEYED, {"exchange": "EX"}, "T", "T"),
    (KEYED, {"exchange": "", "routingKey": "SOURCE"}, REFUSED, REFUSED),
    (PLAIN, {}, REFUSED, REFUSED),  # where to?
    (PLAIN, {"exchange": "", "routingKey": "TO"}, "T", "T"),
    (PLAIN, {"exchange": "EX", "routingKey": "x"}, "T", "T"),
    (ADDRESSED, {}, "B", "B"),  # columns of the user's own choice
    (ADDRESSED, {"exchange": "", "routingKey": "TO"}, "T", "T"),  # an option is for all rows
    (ADDRESSED, {"exchange": "EX"}, "T", "T"),
    (ADDRESSED, {"routingKey": "TO", "exchange": ""}, "T", "T"),
]


class World:
    """A queue that is read, bound to the exchange FROM; the queue `to`, bound to the exchange EX."""

    def __init__(self, broker: Broker, kind: str, spool: Path) -> None:
        self.broker, self.kind, self.spool = broker, kind, spool
        self.source, self.to = broker.queue(kind), broker.queue("classic")
        self.names = {"SOURCE": self.source, "TO": self.to, "FROM": f"{self.source}.from", "EX": f"{self.source}.ex"}
        self._connection = connect(broker.url, timeout=60)
        self.channel = self._connection.channel()
        for exchange, queue in ((self.names["FROM"], self.source), (self.names["EX"], self.to)):
            self.channel.exchange_declare(exchange, "topic")
            self.channel.queue_bind(queue, exchange, "#")

    def close(self) -> None:
        for name in ("FROM", "EX"):
            self.channel.exchange_delete(self.names[name])
        self._connection.close()

    def send(self, count: int, default: bool, **properties: Any) -> None:
        """Messages by the exchange FROM with the key KEY, or by the default exchange."""
        exchange, key = ("", self.source) if default else (self.names["FROM"], "KEY")
        self.broker.send(
            Publication(Message(b"%d" % n, message_id=str(n), **properties), exchange, key) for n in range(count)
        )

    def read(self, columns: tuple[str, ...], streaming: bool) -> tuple[list[pa.RecordBatch], StructType]:
        schema = StructType([StructField(name, COLUMNS[name]) for name in columns])
        given = {"url": self.broker.url, "queue": self.source}
        if self.kind == "stream":
            options = source_options({**given, "queuetype": "stream"}, streaming)
            reader: Any = (StreamQueueStreamReader if streaming else StreamQueueReader)(options, schema)
        else:
            options = source_options({**given, "spool": str(self.spool)}, streaming)
            reader = SpoolStreamReader(options, schema) if streaming else SpoolReader(options, schema, "ticket")
        if streaming:
            start = reader.initialOffset()
            partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        else:
            partitions = reader.partitions()
        batches = [batch for partition in partitions for batch in reader.read(partition)]
        if streaming:
            reader.stop()
        return batches, schema

    def write(self, batches: list[pa.RecordBatch], schema: StructType, **options: str) -> Published:
        given = {"url": self.broker.url, **{name: self.names.get(value, value) for name, value in options.items()}}
        return publish(batches, sink_options(given), schema, "copy")

    def counts(self) -> tuple[int, int]:
        """Messages that were ever in the source, and that are in `to`; a stream's count may be late."""
        return self.broker.ready(self.source), self.broker.ready(self.to)


@pytest.fixture(params=["stream", "classic"])
def world(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Iterator[World]:
    world = World(broker, request.param, tmp_path / "spool")
    yield world
    world.close()


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize("default", [False, True], ids=["by exchange", "by default"])
@pytest.mark.parametrize(
    ("columns", "options", "exchanged", "direct"),
    CASES,
    ids=[
        f"{len(columns)} columns, {' '.join(f'{k}={v}' for k, v in options.items())}" for columns, options, *_ in CASES
    ],
)
def test_where_a_copy_goes(
    world: World, columns: tuple[str, ...], options: dict[str, str], exchanged: str, direct: str, default: bool,
    streaming: bool,
) -> None:  # fmt: skip
    world.send(5, default)
    rows, schema = world.read(columns, streaming)
    kept = 5 if world.kind == "stream" else 0
    outcome = direct if default else exchanged
    if outcome == REFUSED:
        with pytest.raises(InvalidArgument) as caught:
            world.write(rows, schema, **options)
        assert columns == PLAIN or "toOrigin" in options or KEEPS in str(caught.value)
        assert world.counts() == (kept, 0)
        return
    assert world.write(rows, schema, **options).count == 5
    assert world.counts() == ((kept, 5) if outcome == "T" else (kept + 5, 0))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_row_that_would_go_back_is_named(world: World, mixed: bool) -> None:
    """On every broker; and nothing of its part is published, of the other rows neither."""
    world.send(3, default=True)
    if mixed:
        world.send(3, default=False)
    rows, schema = world.read(FULL, streaming=False)
    with pytest.raises(InvalidArgument, match=r"rows would go to the .*, the first of queue '"):
        world.write(rows, schema, exchange="", routingKey="SOURCE")
    assert world.broker.ready(world.to) == 0


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("dedup", ["none", "broker"])
def test_what_cannot_be_copied_as_it_is(world: World, dedup: str) -> None:
    """Another user's user_id, and the CC of the original's keys; all else arrives as it was."""
    everything: dict[str, Any] = {
        "content_type": "a/b", "content_encoding": "c", "priority": 3, "correlation_id": "d", "reply_to": "e",
        "expiration": "600000", "timestamp": 1_700_000_000, "type": "f", "app_id": "g", "delivery_mode": 2,
    }  # fmt: skip
    world.send(2, default=False, headers={"n": 5, "CC": ["spare.key"]}, user_id="guest", **everything)
    rows, schema = world.read(FULL, streaming=False)
    assert world.write(rows, schema, exchange="", routingKey="TO", dedup=dedup).count == 2
    copy = world.channel.get(world.to, no_ack=True)
    assert copy is not None
    marked = {"x-deduplication-header": "0"} if dedup == "broker" else {}
    assert copy.headers == {"n": 5, **marked}
    assert (copy.properties.user_id, copy.properties.message_id) == ("guest", "0")
    assert {name: getattr(copy.properties, name) for name in everything if name != "timestamp"} == {
        name: value for name, value in everything.items() if name != "timestamp"
    }
    whole = world.write(rows, schema, exchange="EX", dedup=dedup)  # with its own key, the others go along
    assert whole.count == 2
    world.channel.get(world.to, no_ack=True)
    copy = world.channel.get(world.to, no_ack=True)
    assert copy is not None
    assert copy.headers == {"n": 5, "CC": ["spare.key"], **marked}


@pytest.mark.parametrize("dedup", ["none", "broker"])
@pytest.mark.parametrize("option", [None, '{"all": 1}'])
def test_the_user_id_of_somebody_else_becomes_a_header(dedup: str, option: str | None) -> None:
    schema = row_schema()
    names = [field.name for field in schema.fields]
    columns: dict[str, list[Any]] = {name: [None] * 4 for name in names}
    columns |= {"body": [b"x"] * 4, "queue": ["q"] * 4, "exchange": ["e"] * 4, "routing_key": ["k"] * 4}
    columns |= {"user_id": [None, "me", "you", "you"], "message_id": list("abcd")}
    columns["headers"] = [None, None, None, '{"n": 1}']

    given = {"url": "amqp://me:x@localhost/", "exchange": "to", "routingKey": "k", "dedup": dedup}
    if option is not None:
        given["headers"] = option
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow_schema(schema))
    [part] = RowEncoder(sink_options(given), schema).parts(batch, "p", 0)
    found = [decode_properties(each, 0) for each in part.properties]
    assert [each.user_id for each in found] == [None, "me", None, None]
    constant = {} if option is None else {"all": 1}
    for each, name, mine, own in zip(found, "abcd", (False, False, True, True), ({}, {}, {}, {"n": 1}), strict=True):
        wanted = {**(own or constant), **({"x-copied-user-id": "you"} if mine else {})}
        if dedup == "broker":
            wanted["x-deduplication-header"] = name
        assert (each.headers or {}) == wanted
