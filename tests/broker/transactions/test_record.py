"""The record of a transaction: in parts, each of which names at most one queue of a name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.store.prepared import LOCAL, KeptBranch
from harebell.broker.transactions import record as module
from harebell.broker.transactions.record import Record
from harebell.protocol.v091 import methods as m
from tests.broker.v010.disk_kit import DiskKit


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskKit]:
    monkeypatch.setattr(module, "MESSAGES_PER_PART", 2)
    monkeypatch.setattr(module, "PLACES_PER_PART", 3)
    kit = DiskKit()
    yield kit
    kit.close()


def queue(kit: DiskKit, name: str = "q", *, durable: bool = True) -> Queue:
    kit.client.call(m.QueueDeclare(name, durable=durable), m.QueueDeclareOk)
    return kit.node.vhosts["/"].queues[name]


def message(kit: DiskKit, to: Queue, *, persistent: bool = True) -> Message:
    kit.client.publish(to.name, b"m", delivery_mode=2 if persistent else 1)
    held = to.take()
    assert held is not None
    return held.message


def new(kit: DiskKit) -> Record:
    return Record(KeptBranch(LOCAL, "/", "guest", [], []), kit.node.store.prepared, kit.node.batch)


def parts(kit: DiskKit) -> list[KeptBranch]:
    return [KeptBranch.decode(each[17:]) for found in kit.node.store.prepared._live.values() for each in found]


def test_a_queue_that_is_declared_again_between_two_parts(kit: DiskKit) -> None:
    """What was taken from the first is its own; that of a queue that is deleted by then is left out."""
    first, other = queue(kit), queue(kit, "other")
    record = new(kit)
    work = record.adding_taken([*((first, place) for place in range(3)), (first, 3), (other, 0)])
    next(work)
    kit.client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    again = queue(kit)
    assert list(work) == []
    assert list(record.adding_taken([(again, 0)], rejected=True)) == []
    record.end(decided=True)
    one, two = parts(kit)
    assert one.taken == [("q", place, first.folder) for place in range(3)]
    assert two.taken == [("other", 0, other.folder)]
    assert two.rejected == [("q", 0, again.folder)]
    assert len({first.folder, other.folder, again.folder}) == 3


def test_messages_in_parts(kit: DiskKit) -> None:
    to, transient = queue(kit), queue(kit, "transient", durable=False)
    lasting, passing = message(kit, to), message(kit, to, persistent=False)
    record = new(kit)
    for _ in record.adding_messages(
        [(lasting, (to,)), (passing, (to,)), (lasting, (transient,)), (lasting, (to, transient)), (lasting, (to,))]
    ):
        assert record.places == {0: 0, 3: 1}
    assert record.places == {0: 0, 3: 1, 4: 2}
    record.end(decided=False)
    assert [[each.queues for each in part.messages] for part in parts(kit)] == [
        [("q",), ("q", "transient")],
        [("q",)],
    ]


def test_nothing_that_outlasts_the_broker_is_no_record(kit: DiskKit) -> None:
    transient = queue(kit, "transient", durable=False)
    record = new(kit)
    list(record.adding_messages([(message(kit, transient), (transient,))] * 5))
    list(record.adding_taken([(transient, place) for place in range(10)]))
    assert record.is_empty
    assert parts(kit) == []
    record.give_up()


def test_a_record_that_is_given_up(kit: DiskKit) -> None:
    to = queue(kit)
    record = new(kit)
    list(record.adding_taken([(to, place) for place in range(4)]))
    assert not record.is_empty
    assert len(parts(kit)) == 1
    record.give_up()
    assert parts(kit) == []
