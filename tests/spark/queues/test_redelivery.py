"""What is recognised as delivered again: identities of rows, and which segments count."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harebell.client.servers import BrokerIdentity
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.typed_values import Int64
from harebell.spark.queues.redelivery import KnownMessages, identities
from harebell.spark.queues.segments import is_acked, mark_acked, write_once
from harebell.spark.queues.spool import Spool, no_step
from harebell.spark.schema import Rows, row_schema
from tests.spark.fakes import FakeDelivery


def batch(*deliveries: FakeDelivery) -> pa.RecordBatch:
    return Rows(row_schema()).batch("q", deliveries, None)  # type: ignore[arg-type]


def message(body: bytes, message_id: str | None = None, redelivered: bool = False, **headers: object) -> FakeDelivery:
    properties = Properties(message_id=message_id, headers=headers or None)
    return FakeDelivery(body, redelivered=redelivered, properties=properties)


HERE, THERE = BrokerIdentity("harebell@host", "01"), BrokerIdentity("harebell@host", "02")
Store = Callable[..., Path]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, "/", "q")


@pytest.fixture
def store(spool: Spool) -> Store:
    """Writes segments of a ticket, one after another; acknowledged so many seconds ago, or not."""
    written: list[Any] = []

    def write(*deliveries: FakeDelivery, acked: float | None = None) -> Path:
        ticket = spool.ticket("t")
        with ticket.lock(0):
            path = ticket.segment(0, len(written))
        written.append(path)

        assert write_once(path, batch(*deliveries), lambda name: no_step(name, 0), contextlib.nullcontext)
        if acked is not None:
            mark_acked(path)
            then = time.time() - acked
            os.utime(path.with_suffix(".acked"), (then, then))
        return path

    return write


def left(known: KnownMessages, *deliveries: FakeDelivery) -> list[bytes]:
    bodies: list[bytes] = known.without_known(batch(*deliveries)).column("body").to_pylist()
    return bodies


@pytest.mark.parametrize("number", [int, Int64])
def test_an_identity_ignores_what_redelivery_adds(number: Callable[[int], int]) -> None:
    once, again, other, counted, named = identities(
        batch(
            message(b"x", a=1),
            message(b"x", None, True, **{"x-delivery-count": number(1), "a": 1}),
            message(b"x", a=2),
            message(b"x", None, True, **{"x-acquired-count": number(1)}),
            message(b"x", "1", a=1),
        )
    )
    assert once == again
    assert counted == identities(batch(message(b"x")))[0]
    assert len({once, other, counted, named}) == 4


def test_only_a_redelivered_message_is_known(spool: Spool, store: Store) -> None:
    store(message(b"a"), message(b"b", "id"))
    assert left(KnownMessages(spool, 600, HERE), message(b"a"), message(b"b", "id")) == [b"a", b"b"]
    assert left(
        KnownMessages(spool, 600, HERE), message(b"a", None, True), message(b"b", "id", True), message(b"c", None, True)
    ) == [b"c"]
    assert left(KnownMessages(spool, 600, HERE), message(b"b", "other", True), message(b"other", "id", True)) == [
        b"b",
        b"other",
    ]


def test_copies_are_counted(spool: Spool, store: Store) -> None:
    store(message(b"a"), message(b"a"), acked=0)
    store(message(b"a"))
    known = KnownMessages(spool, 600, HERE)
    assert left(known, *[message(b"a", None, True)] * 2, message(b"a")) == [b"a"]
    assert left(known, *[message(b"a", None, True)] * 3) == [b"a", b"a"]


def test_a_marked_segment_counts_for_the_window(spool: Spool, store: Store) -> None:
    store(message(b"young"), acked=10)
    store(message(b"old"), acked=700)
    again = message(b"young", None, True), message(b"old", None, True)
    assert left(KnownMessages(spool, 600, HERE), *again) == [b"old"]
    assert left(KnownMessages(spool, 5, HERE), *again) == [b"young", b"old"]


def test_a_segment_that_has_come_back_whole_is_marked(spool: Spool, store: Store) -> None:
    path, other = store(message(b"a"), message(b"b")), store(message(b"c"), message(b"d"))
    known = KnownMessages(spool, 600, HERE)
    assert left(known, message(b"a", None, True), message(b"c", None, True)) == []
    known.mark_returned()
    assert not is_acked(path)
    assert left(known, message(b"b", None, True)) == []
    assert not is_acked(path)  # not before the broker has the acknowledgement
    known.mark_returned()
    assert is_acked(path)
    assert not is_acked(other)


def test_what_is_another_brokers_is_not_known(spool: Spool, store: Store) -> None:
    store(message(b"a", "1"))
    again = message(b"a", "1", True)
    assert left(KnownMessages(spool, 600, THERE), again) == []  # a drain of an older version is everybody's
    spool.ticket("t").claim(HERE)
    assert left(KnownMessages(spool, 600, THERE), again) == [b"a"]
    assert left(KnownMessages(spool, 600, HERE), again) == []
