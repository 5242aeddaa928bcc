"""Spark's readers over the spool, called as Spark calls them, over a fake queue: plans, limits, triggers, cleaning."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from harebell.broker import Broker
from harebell.client.messages import Message
from harebell.errors import InvalidArgument, SpoolError
from harebell.protocol.v091 import Properties
from harebell.spark.options import source_options
from harebell.spark.queues import drain as drains, reader as spool_reader
from harebell.spark.queues.reader import SpoolReader, SpoolStreamReader
from harebell.spark.schema import row_schema
from harebell.testing import EmbeddedBroker
from tests.spark.bad_days import evidence
from tests.spark.fakes import FakeQueue

ALL = ReadAllAvailable()


def bodies(count: int, size: int = 5) -> list[bytes]:
    return [b"%05d" % n + bytes(size - 5) for n in range(count)]


class Query:
    """A streaming query on one queue: what a checkpoint holds, and the rows of its sink."""

    def __init__(self, reader: Callable[[], SpoolStreamReader]) -> None:
        self._make = reader
        self.end: dict[str, Any] = {}
        self.planned: dict[str, Any] | None = None  # in the checkpoint, but not committed
        self.rows: list[bytes] = []
        self.start()

    def start(self) -> None:
        self.reader = self._make()

    def forget(self) -> None:
        """The checkpoint is deleted."""
        self.end, self.planned = {}, None
        self.start()

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Whether there is a batch to be run, which is in the checkpoint from now on."""
        if self.planned is None:
            start = self.end or self.reader.initialOffset()
            end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
            if end == start:
                return False
            self.planned = end
        return True

    def run(self) -> list[bytes]:
        """The rows of the planned batch; they are not in the sink yet."""
        assert self.planned is not None
        start = self.end or self.reader.initialOffset()
        parts = self.reader.partitions(start, self.planned)
        return [body for part in parts for batch in self.reader.read(part) for body in batch.column("body").to_pylist()]

    def commit(self, rows: list[bytes]) -> None:
        self.rows += rows
        self.end, self.planned = self.planned or {}, None

    def batches(self, limit: ReadLimit | None = None) -> list[int]:
        """Runs batches until nothing is left; their sizes."""
        sizes = []
        while self.plan(limit):
            rows = self.run()
            self.commit(rows)
            sizes.append(len(rows))
        return sizes


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    queue = FakeQueue([], properties=lambda body: Properties(message_id=body[:5].decode()))
    monkeypatch.setattr(drains, "Link", queue.link)
    monkeypatch.setattr(spool_reader, "Link", queue.link)
    return queue


Make = Callable[..., Query]


@pytest.fixture
def query(queue: FakeQueue, tmp_path: Path) -> Make:
    def make(**more: str) -> Query:
        given = {"queue": "q", "spool": str(tmp_path), "prefetch": "8", "readTimeout": "0.05", "retryTimeout": "0"}
        options = source_options({**given, **more}, streaming=True)
        return Query(lambda: SpoolStreamReader(options, row_schema()))

    return make


def fill(queue: FakeQueue, messages: list[bytes]) -> list[bytes]:
    queue.ready.extend((body, False) for body in messages)
    return messages


def test_messages_a_trigger(query: Make, queue: FakeQueue) -> None:
    messages = fill(queue, bodies(25))
    one = query(maxMessagesPerTrigger="10", minPartitions="3")
    assert one.batches() == [10, 10, 5]
    assert one.rows == messages
    assert len(one.reader.partitions({}, {**one.end, "n": 9, "rows": {"q": 7}})) == 3


def test_bytes_a_trigger(query: Make, queue: FakeQueue) -> None:
    messages = fill(queue, bodies(1000, size=1000))
    one = query(maxBytesPerTrigger="300000", prefetch="20")
    one.reader.prepareForTriggerAvailableNow()
    fill(queue, bodies(10))  # for the next run
    assert one.batches() == [300, 300, 300, 100]
    assert one.rows == messages


def test_an_available_now_query_ends_with_what_was_there(query: Make, queue: FakeQueue) -> None:
    messages = fill(queue, bodies(25))
    one = query(maxMessagesPerTrigger="10")
    one.reader.prepareForTriggerAvailableNow()
    fill(queue, [b"later"] * 9)
    assert one.batches() == [10, 10, 5]
    assert one.rows == messages
    assert len(queue.ready) == 9


def test_a_limit_of_the_trigger_counts(query: Make, queue: FakeQueue) -> None:
    fill(queue, bodies(25))
    assert query().batches(ReadMaxRows(20)) == [20, 5]
    fill(queue, bodies(25))
    assert query(maxMessagesPerTrigger="1").batches(ALL) == [25]  # Trigger.Once


def test_few_messages_wait_for_more_or_for_the_delay(
    query: Make, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("harebell.spark.queues.reader.time.monotonic", lambda: now)
    one = query(minMessagesPerTrigger="10", maxTriggerDelay="30")
    fill(queue, bodies(4))
    assert not one.plan()
    fill(queue, bodies(6))
    assert one.plan()
    one.commit(one.run())
    fill(queue, bodies(3))
    assert not one.plan()
    now += 29
    assert not one.plan()
    now += 2
    assert one.plan()
    one.commit(one.run())
    fill(queue, bodies(3))
    one.reader.prepareForTriggerAvailableNow()
    assert one.plan()


def test_a_batch_that_was_not_committed_is_the_same_again(query: Make, queue: FakeQueue) -> None:
    messages = fill(queue, bodies(12))
    one = query()
    one.plan()
    rows = one.run()
    one.start()  # the driver was killed before the sink had it
    fill(queue, [b"later"])
    assert one.run() == rows == messages
    one.commit(rows)
    assert one.batches() == [1]


@pytest.mark.parametrize("names", [("q",), ("drain",), ("a", "b")])
def test_the_checkpoint_of_a_stream_is_refused(query: Make, names: tuple[str, ...]) -> None:
    reader, start = query().reader, {name: {"base": 0, "next": 10} for name in names}
    with pytest.raises(InvalidArgument, match=rf"places in stream queues \({', '.join(names)}\).* now \(q\): declare"):
        reader.latestOffset(start, ALL)
    with pytest.raises(InvalidArgument, match="start with a new checkpoint"):
        reader.partitions({}, start)


def test_a_new_checkpoint_is_a_new_drain(query: Make, queue: FakeQueue, tmp_path: Path) -> None:
    fill(queue, bodies(12))
    one = query()
    assert one.batches() == [12]
    one.forget()
    assert one.batches() == []  # what was read is not in the queue any more
    more = fill(queue, [b"later"])
    assert one.batches() == [1]
    assert one.rows == bodies(12) + more
    assert len(list(tmp_path.glob("*/q/*-*"))) == 2  # the drains of the old one stay until they are pruned


def test_several_queries_share_a_queue(query: Make, queue: FakeQueue) -> None:
    messages = fill(queue, bodies(40))
    one, other = query(maxMessagesPerTrigger="10"), query(maxMessagesPerTrigger="10")
    for each in (one, other, other, one):
        each.plan()
        each.commit(each.run())
    assert sorted(one.rows + other.rows) == messages
    assert (len(one.rows), len(other.rows)) == (20, 20)


def test_old_drains_are_deleted_but_not_unacknowledged_ones(query: Make, queue: FakeQueue, tmp_path: Path) -> None:
    fill(queue, bodies(12))
    one = query(maxMessagesPerTrigger="3", dedupWindow="600")
    assert one.batches() == [3, 3, 3, 3]
    folders = sorted(tmp_path.glob("*/q/*-*"))
    next(folders[1].glob("*-000000.acked")).unlink()  # crashed before the broker's answer
    for folder in folders:
        os.utime(folder, (time.time() - 700,) * 2)
    one.plan()
    assert sorted(tmp_path.glob("*/q/*-*")) == [folders[1], folders[3]]


@pytest.mark.parametrize(("options", "limits"), [({}, [10]), ({"minPartitions": "3"}, [3, 3, 4])])
@pytest.mark.parametrize("arrives", ["after the plan", "after the first rows"])
def test_a_batch_read_takes_what_was_there_first(
    queue: FakeQueue, tmp_path: Path, options: dict[str, str], limits: list[int], arrives: str
) -> None:
    messages = fill(queue, bodies(10))
    given = {"queue": "q", "spool": str(tmp_path), "prefetch": "4", "readTimeout": "0.05", "retryTimeout": "0"}
    reader = SpoolReader(source_options({**given, **options}, streaming=False), row_schema(), "t")

    def read() -> list[bytes]:
        parts = reader.partitions()
        return [body for part in parts for batch in reader.read(part) for body in batch.column("body").to_pylist()]

    planned = reader.partitions()
    assert [part.limit for part in planned] == limits  # type: ignore[attr-defined]
    if arrives == "after the first rows":  # as take(1) does
        with contextlib.closing(cast("Generator[Any]", reader.read(planned[0]))) as first:
            assert next(first).num_rows == 2
    fill(queue, [b"later"])
    assert read() == messages == read()
    assert [body for body, _ in queue.ready] == [b"later"]


def test_a_spool_that_cannot_be_written_is_said_in_the_plan(queue: FakeQueue, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = source_options({"queue": "q", "spool": str(tmp_path / "file")}, streaming=False)
    with pytest.raises(SpoolError, match="Not a directory"):
        SpoolReader(options, row_schema(), "t").partitions()


def test_a_large_segment_is_handed_over_in_pieces(
    queue: FakeQueue, query: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_reader, "SLICE_BYTES", 3000)
    messages = fill(queue, bodies(20, size=1000))
    one = query(prefetch="40")
    one.plan()
    (part,) = one.reader.partitions(one.reader.initialOffset(), one.planned or {})
    batches = list(one.reader.read(part))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == messages
    assert {batch.num_rows for batch in batches} == {2}


def planned(url: str, spool: Path, **more: str) -> list[bytes]:
    """The bodies that a batch read gets, in this process."""
    options = source_options({"url": url, "queue": "orders", "spool": str(spool), **more}, streaming=False)
    reader = SpoolReader(options, row_schema(), options.ticket or uuid.uuid4().hex)
    return [
        body
        for part in reader.partitions()
        for batch in reader.read(part)
        for body in batch.column("body").to_pylist()
    ]  # fmt: skip


def test_a_ticket_of_one_broker_is_refused_for_another_one(tmp_path: Path) -> None:
    """Both are on this machine, so they have one name; and what has no ticket goes on in one folder."""
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        for server in (first, second):
            evidence.declare(server.url, "orders", "classic")
            evidence.publish(server.url, "orders", [Message(server.url.encode(), message_id="1")])
        assert planned(first.url, tmp_path, ticket="monday") == [first.url.encode()]
        assert planned(first.url.replace("127.0.0.1", "localhost"), tmp_path, ticket="monday") == [first.url.encode()]
        with pytest.raises(InvalidArgument, match=r"drain 'monday' of queue 'orders' .* has messages of the broker "):
            planned(second.url, tmp_path, ticket="monday")
        assert planned(second.url, tmp_path, ticket="tuesday") == [second.url.encode()]


def test_a_broker_that_comes_back_is_the_same(tmp_path: Path) -> None:
    with EmbeddedBroker(lambda: Broker(data=tmp_path / "data")) as server:
        evidence.declare(server.url, "orders", "classic")
        evidence.publish(server.url, "orders", [Message(b"x")])
        for _ in range(2):
            assert planned(server.url, tmp_path / "spool", ticket="t") == [b"x"]
            server.restart()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_stream_queue_is_refused_in_the_plan_whatever_the_option_says(
    tmp_path: Path, kind: str, streaming: bool
) -> None:
    with EmbeddedBroker() as server:
        evidence.declare(server.url, "orders", "stream")
        with pytest.raises(InvalidArgument, match="queue 'orders' is a stream queue: set queueType=stream"):
            if streaming:
                given = {"url": server.url, "queue": "orders", "spool": str(tmp_path), "queueType": kind}
                reader = SpoolStreamReader(source_options(given, streaming=True), row_schema())
                reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
            else:
                planned(server.url, tmp_path, queueType=kind)
    assert list(tmp_path.iterdir()) == []
