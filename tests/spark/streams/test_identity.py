"""A stream queue that is deleted and declared again is another one: what a query notices of it, on every broker.

The table is (what happened to the queue) x (the checkpoint) x (the broker). Real brokers, no Spark: the reader is
called as Spark calls it, and a checkpoint is the JSON of an offset.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from harebell.client.messages import Message
from harebell.errors import DataLoss, InvalidArgument, NotFound
from harebell.protocol.v091.fields import Table
from harebell.spark.options import source_options
from harebell.spark.schema import row_schema
from harebell.spark.streams import identity
from harebell.spark.streams.bounds import BoundsReader
from harebell.spark.streams.offsets import Identity, Offsets
from harebell.spark.streams.reader import StreamQueueStreamReader
from harebell.testing import EmbeddedBroker
from tests.replaced_time import replace_time
from tests.spark.conftest import RABBITMQ, RABBITMQ4, Broker

ALL = ReadAllAvailable()
TRIVIAL: Table = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000}


class Query:
    """A streaming query's process: `restart` begins another one with what the checkpoint has."""

    def __init__(self, broker: Broker, queue: str, **options: str) -> None:
        given = {"url": broker.url, "queue": queue, "retryTimeout": "5", "readTimeout": "5", **options}
        self._options = source_options({name.lower(): value for name, value in given.items()}, streaming=True)
        self._reader = StreamQueueStreamReader(self._options, row_schema())
        self.checkpoint: Offsets | None = None

    def restart(self) -> None:
        self._reader.stop()
        self._reader = StreamQueueStreamReader(self._options, row_schema())
        self.checkpoint = json.loads(json.dumps(self.checkpoint))

    def batch(self, limit: ReadAllAvailable = ALL) -> list[int]:
        """Plans and reads a batch: the message ids."""
        start = self.checkpoint or self._reader.initialOffset()
        end = self._reader.latestOffset(start, limit)
        self.checkpoint = end
        return self.read(start, end)

    def read(self, start: Offsets, end: Offsets) -> list[int]:
        batches = [each for part in self._reader.partitions(start, end) for each in self._reader.read(part)]
        return [int(value) for each in batches for value in each.column("message_id").to_pylist()]

    def stop(self) -> None:
        self._reader.stop()


def pass_second() -> None:
    """Waits for the next second of the clock: brokers store messages under whole ones, as far as AMQP can ask."""
    began = int(time.time())
    while int(time.time()) <= began + 1:
        time.sleep(0.02)


def again(broker: Broker, queue: str, count: int, arguments: Table | None = None) -> None:
    """Deletes the queue and declares it again, with so many messages."""
    broker.delete(queue)
    broker.queue("stream", arguments, name=queue)
    broker.numbered(queue, count, start=1000)


@pytest.fixture
def queue(broker: Broker) -> str:
    """A stream queue with ten messages."""
    name = broker.queue("stream")
    broker.numbered(name, 10)
    return name


LOSS = "was deleted and declared again|ends at message"


@pytest.mark.parametrize("restart", [True, False], ids=["restarted", "running"])
@pytest.mark.parametrize("count", [0, 3, 10, 25], ids=["empty", "fewer", "as many", "more"])
def test_a_queue_that_was_declared_again(broker: Broker, queue: str, count: int, restart: bool) -> None:
    query = Query(broker, queue)
    assert query.batch() == list(range(10))
    pass_second()
    again(broker, queue, count)
    if restart:
        query.restart()
    told = broker.product == "Harebell" or count != 10  # RabbitMQ: when there is something to read
    if told:
        with pytest.raises(DataLoss, match=LOSS):
            query.batch()
    else:
        assert query.batch() == []
        broker.numbered(queue, 1, start=2000)
        with pytest.raises(DataLoss, match=LOSS):
            query.batch()
    query.stop()


@pytest.mark.parametrize("count", [3, 25], ids=["fewer", "more"])
def test_with_failondataloss_false_the_new_one_is_read_from_its_beginning(
    broker: Broker, queue: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(broker, queue, failOnDataLoss="false")
    assert query.batch() == list(range(10))
    pass_second()
    again(broker, queue, count)
    query.restart()
    assert query.batch() == list(range(1000, 1000 + count))
    assert "declared again" in caplog.text
    broker.numbered(queue, 5, start=2000)
    query.restart()
    assert query.batch() == list(range(2000, 2005))
    query.stop()


def test_a_queue_that_is_the_same_is_never_taken_for_another(broker: Broker, queue: str) -> None:
    """It grows, by messages of the same second and later ones, over restarts and new marks."""
    query, read = Query(broker, queue), list[int]()
    for number in range(6):
        read += query.batch()
        if number % 2:
            query.restart()
        if number == 3:
            pass_second()
        broker.numbered(queue, 5, start=10 + 5 * number)
    assert read == list(range(35))
    query.stop()


def test_retention_is_no_other_stream(broker: Broker) -> None:
    name = broker.queue("stream", TRIVIAL)
    broker.numbered(name, 10)
    query = Query(broker, name)
    assert query.batch() == list(range(10))
    ends = BoundsReader(query._options)
    while ends.first(name) < 10:
        broker.publish(name, (Message(bytes(500), message_id="0") for _ in range(50)))
    ends.close()
    query.restart()
    with pytest.raises(DataLoss, match="retention removed them"):
        query.batch()
    query.stop()


@pytest.mark.parametrize("count", [3, 25], ids=["fewer", "more"])
def test_a_batch_that_was_planned_before_and_is_read_after(broker: Broker, queue: str, count: int) -> None:
    """The driver dies between the plan and the read; or a task comes late."""
    query = Query(broker, queue)
    reader = query._reader
    pass_second()
    query.batch()
    broker.numbered(queue, 5, start=10)
    start = query.checkpoint
    assert start is not None
    end = reader.latestOffset(start, ALL)
    pass_second()
    again(broker, queue, count)
    query.restart()
    with pytest.raises(DataLoss, match=LOSS):
        query.read(start, json.loads(json.dumps(end)))
    lenient = Query(broker, queue, failOnDataLoss="false", readTimeout="0.5")
    assert lenient.read(start, end) == []
    for each in (query, lenient):
        each.stop()


def test_a_queue_that_is_gone_or_of_another_type(broker: Broker, queue: str) -> None:
    query = Query(broker, queue)
    query.batch()
    broker.delete(queue)
    with pytest.raises(NotFound, match=queue):
        query.batch()
    broker.declare(queue)
    with pytest.raises(InvalidArgument, match="it is no stream queue"):
        query.batch()
    query.stop()


def test_a_checkpoint_without_an_identity_gets_one_with_its_next_batch(broker: Broker, queue: str) -> None:
    query = Query(broker, queue)
    query.checkpoint = {queue: {"base": 0, "next": 4}}  # of an older version
    assert query.batch() == list(range(4, 10))
    assert query.checkpoint is not None
    assert query.checkpoint[queue].keys() - {"base", "next"} == ({"id"} if broker.product == "Harebell" else {"mark"})
    assert query.batch() == []
    query.stop()


@pytest.mark.parametrize("broker", [RABBITMQ, RABBITMQ4], indirect=True)
def test_an_id_of_another_broker(broker: Broker, queue: str) -> None:
    query = Query(broker, queue)
    query.checkpoint = {queue: {"base": 0, "next": 4, "id": "0123456789abcdef"}}
    with pytest.raises(DataLoss, match=LOSS):
        query.batch()
    query.stop()


def test_a_user_who_may_not_ask_has_marks_and_the_brokers_own_check() -> None:
    with EmbeddedBroker() as server:
        server.run(lambda broker: broker.add_user("reader", "reader"))
        server.run(lambda broker: broker.set_permissions("reader", "", "", "q"))
        broker = Broker(server.url)
        broker.queue("stream", name="q")
        broker.numbered("q", 10)
        url = server.url.replace("guest:guest", "reader:reader")
        query = Query(broker, "q", url=url)
        assert query.batch() == list(range(10))
        assert query.checkpoint is not None
        assert "mark" in query.checkpoint["q"]
        pass_second()
        again(broker, "q", 25)
        query.restart()
        with pytest.raises(DataLoss, match=LOSS):
            query.batch()
        named = Query(broker, "q", url=url)
        named.checkpoint = {"q": {"base": 0, "next": 4, "id": "0123456789abcdef"}}
        with pytest.raises(DataLoss, match=LOSS):  # this user does not know the id, and the broker refuses it
            named.batch()
        for each in (query, named):
            each.stop()
        broker.delete("q")
        broker.close()


class Stored:
    """Stands in for BoundsReader: a stream whose messages were stored one a second, from `began` on."""

    def __init__(self, product: str, began: int, tail: int) -> None:
        self.product, self.began, self.tail = product, began, tail

    def number_at(self, queue: str, moment: datetime) -> int:
        return min(max(0, int(moment.timestamp()) - self.began), self.tail)


@pytest.mark.parametrize("skew", [-3600, -5, 0, 5, 3600])
def test_clocks_that_differ_never_make_one_stream_look_like_two(monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    """The broker's clock is `skew` seconds ahead: of the same stream every mark holds, whenever it was made."""
    now = [1_900_000_000]
    replace_time(monkeypatch, identity, time=lambda: float(now[0] - skew))
    stream: Any = Stored("RabbitMQ", now[0] - 20, 20)
    made: list[Identity] = []
    for _ in range(60):
        bounds: Any = SimpleNamespace(id=None, first=0, tail=stream.tail, emptied=False)
        made.append(identity.make_identity(stream, "q", bounds, {"base": 0, "next": stream.tail}))
        now[0], stream.tail = now[0] + 1, stream.tail + 1
        assert all(identity.mark_holds(stream, "q", each) for each in made)
    if abs(skew) <= 5:  # and of a stream that is declared soon after, none does
        assert all(each.mark is not None for each in made)
        other: Any = Stored("RabbitMQ", now[0] + 10, 1000)
        assert not any(identity.mark_holds(other, "q", each) for each in made)


def test_an_unknown_product_has_no_marks() -> None:
    stream: Any = Stored("LavinMQ", 0, 20)
    bounds: Any = SimpleNamespace(id=None, first=0, tail=20, emptied=False)
    assert identity.make_identity(stream, "q", bounds, {"base": 0, "next": 20}) == Identity()
