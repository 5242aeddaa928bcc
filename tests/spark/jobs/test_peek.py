"""Looking into queues of both brokers: all of it is seen, nothing is taken. No Spark session."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from harebell.client.blocking import Channel, connect
from harebell.client.messages import Delivery, Message
from harebell.errors import DeadlineExceeded, InvalidArgument, NotFound
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.splice import DELIVERY_COUNTS
from harebell.spark.jobs import peek as looking
from harebell.spark.jobs.peek import Held, Peeked, peek
from tests.spark.conftest import DRAINED, Broker
from tests.spark.fakes import FakeDelivery, as_delivery


@pytest.mark.parametrize("broker, kind", [*DRAINED, ("harebell_server", "quorum")], indirect=["broker"])
def test_all_is_seen_and_nothing_is_taken(
    broker: Broker, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "WINDOW", 40)  # so that 100 messages need three consumers where they are held
    monkeypatch.setattr(looking, "FILE_ROWS", 60)
    queue = broker.queue(kind)
    broker.numbered(queue, 100)
    told: list[int] = []
    browsed = "harebell" in kind or broker_is_harebell(broker)
    assert peek(broker.url, queue, tmp_path, progress=told.append) == Peeked(queue, 100, browsed)
    assert told[-1] == 100
    table = pq.read_table(tmp_path)
    assert table.column("position").to_pylist() == list(range(100))
    assert [int(body) for body in table.column("body").to_pylist()] == list(range(100))
    assert len(set(table.column("digest").to_pylist())) == 100
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    again = tmp_path / "again"
    peek(broker.url, queue, again)  # at once: what was held has been given back, in its order
    assert pq.read_table(again).column("digest").to_pylist() == table.column("digest").to_pylist()
    assert broker.ready(queue) == 100


def broker_is_harebell(broker: Broker) -> bool:
    with connect(broker.url) as connection:
        return looking.browses(connection)


def test_a_part_of_it(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    broker.numbered(queue, 20)
    assert peek(broker.url, queue, tmp_path, limit=7).messages == 7
    assert [int(body) for body in pq.read_table(tmp_path).column("body").to_pylist()] == list(range(7))


def test_an_empty_queue_has_columns_all_the_same(broker: Broker, tmp_path: Path) -> None:
    assert peek(broker.url, broker.queue("classic"), tmp_path).messages == 0
    assert pq.read_table(tmp_path).column_names == looking.peek_schema().names


def test_a_queue_that_is_not_there(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no queue 'spark\.missing'"):
        peek(broker.url, "spark.missing", tmp_path)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker", ["rabbitmq_server", "rabbitmq4_server"], indirect=True)
def test_a_quorum_queue_is_not_looked_at_until_it_drops_messages(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MAX_DELIVERIES", 2)
    queue = broker.queue("quorum")
    broker.publish(queue, [Message(b"x")])
    for n in range(2):
        peek(broker.url, queue, tmp_path / str(n))
    with pytest.raises(InvalidArgument, match=r"delivered 2 times already.*--take"):
        peek(broker.url, queue, tmp_path / "2")
    assert broker.ready(queue) == 1


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker", ["rabbitmq_server", "rabbitmq4_server"], indirect=True)
def test_a_queue_that_gives_nothing_is_said(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic", {"x-single-active-consumer": True})
    with connect(broker.url) as connection, connection.channel() as channel:
        active = channel.consume(queue, prefetch=1)
        active.start()  # it takes one message and no more
        broker.numbered(queue, 3)
        with pytest.raises(DeadlineExceeded, match="single active consumer"):
            peek(broker.url, queue, tmp_path, timeout=0.5)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are held and given back, as from a broker that cannot browse; Harebell can do without browsing, too."""
    monkeypatch.setattr(looking, "browses", lambda connection: False)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_messages_that_are_held_are_given_back_in_their_order(
    broker: Broker, kind: str, held: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "WINDOW", 7)
    queue = broker.queue(kind)
    broker.numbered(queue, 50)
    for n, limit in enumerate((None, 20, 1, 0, 1000)):
        folder = tmp_path / str(n)
        seen = min(limit if limit is not None else 50, 50)
        assert peek(broker.url, queue, folder, limit=limit) == Peeked(queue, seen, browsed=False)
        bodies = pq.read_table(folder).column("body").to_pylist()
        assert [int(body) for body in bodies] == list(range(seen))
        assert broker.ready(queue) == 50


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_queue_whose_messages_others_hold_is_said(broker: Broker, held: None, tmp_path: Path) -> None:
    queue = broker.queue("classic", {"x-single-active-consumer": True})
    with connect(broker.url) as connection, connection.channel() as channel:
        active = channel.consume(queue, prefetch=1)
        active.start()
        broker.numbered(queue, 3)
        with pytest.raises(DeadlineExceeded, match=r"delivered none in 0\.3 s.*single active consumer"):
            peek(broker.url, queue, tmp_path, timeout=0.3)


@pytest.mark.parametrize("header", DELIVERY_COUNTS)
def test_a_message_that_was_delivered_often_is_refused(header: str) -> None:
    def delivered(count: object) -> Delivery:
        return as_delivery(FakeDelivery(b"", properties=Properties(headers={header: count})))

    most = looking.MAX_DELIVERIES
    looking.refuse_often_delivered("q", [delivered(most - 1), delivered("many"), delivered(None), delivered(True)])
    for count in (most, most + 1):
        with pytest.raises(InvalidArgument, match=rf"queue 'q' was delivered {count} times already.*--take"):
            looking.refuse_often_delivered("q", [delivered(0), delivered(count)])


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_message_that_was_delivered_often_goes_back(
    broker: Broker, held: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MAX_DELIVERIES", 1)
    queue = broker.queue("classic")
    broker.publish(queue, [Message(b"x"), Message(b"y", headers={"x-delivery-count": 1}), Message(b"z")])
    with pytest.raises(InvalidArgument, match="delivered 1 times already"):
        peek(broker.url, queue, tmp_path)
    assert broker.ready(queue) == 3


class FakeConsumer:
    """Gives what it was told to, one answer for each time that it is asked; then nothing."""

    tag = "c"

    def __init__(self, answers: list[list[FakeDelivery]]) -> None:
        self._answers = answers

    def start(self) -> None:
        pass

    def receive(self, most: int, timeout: float) -> list[FakeDelivery]:
        return self._answers.pop(0) if self._answers else []


class FakeChannel:
    """A channel for `Held`: `ready` are the lengths of the queue that it tells, the last one from then on."""

    def __init__(self, answers: list[list[FakeDelivery]], ready: list[int]) -> None:
        self._answers = answers
        self._ready = ready

    def consume(self, queue: str, prefetch: int) -> FakeConsumer:
        return FakeConsumer(self._answers)

    def message_count(self, queue: str) -> int:
        return self._ready.pop(0) if len(self._ready) > 1 else self._ready[0]


@given(
    counts=st.lists(st.integers(0, 3), max_size=8),
    ready=st.lists(st.integers(0, 2), max_size=8).map(lambda lengths: [*lengths, 0]),
)
def test_what_is_held_is_given_to_the_caller(counts: list[int], ready: list[int]) -> None:
    """Whenever messages come, before the queue's length is asked, meanwhile or after it."""
    numbers = itertools.count()
    answers = [[FakeDelivery(b"%d" % next(numbers), consumer_tag="c") for _ in range(count)] for count in counts]
    held = Held(cast("Channel", FakeChannel(answers, ready)), "q", 30.0)
    given_on = [int(delivery.body) for batch in held.batches(1000) for delivery in batch]
    assert given_on == list(range(len(given_on)))
    assert held._held.get("c", 0) == len(given_on)
