"""Looking into queues of both brokers: all of it is seen, nothing is taken. No Spark session."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.errors import DeadlineExceeded, InvalidArgument, NotFound
from harebell.spark.jobs import peek as looking
from harebell.spark.jobs.peek import Peeked, peek
from tests.spark.conftest import DRAINED, Broker


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
@pytest.mark.parametrize("broker", ["rabbitmq_server"], indirect=True)
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
@pytest.mark.parametrize("broker", ["rabbitmq_server"], indirect=True)
def test_a_queue_that_gives_nothing_is_said(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic", {"x-single-active-consumer": True})
    with connect(broker.url) as connection, connection.channel() as channel:
        active = channel.consume(queue, prefetch=1)
        active.start()  # it takes one message and no more
        broker.numbered(queue, 3)
        with pytest.raises(DeadlineExceeded, match="single active consumer"):
            peek(broker.url, queue, tmp_path, timeout=0.5)
