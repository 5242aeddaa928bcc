"""The window between two brokers: what is acknowledged when, and what is sent again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harebell.bridge.window import Acknowledgements, InFlightMessage, Window
from harebell.client.channel import Channel
from harebell.errors import ConnectionLost


class Source:
    """Notes the acknowledgements."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, bool]] = []
        self.is_open = True

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        self.acks.append((delivery_tag, multiple))


class Destination:
    """Notes the publications."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.mandatory: set[bool] = set()
        self.is_open = True

    def publish_nowait(self, body: bytes, exchange: str, key: str, *, mandatory: bool, **rest: Any) -> int:
        self.published.append(body)
        self.mandatory.add(mandatory)
        return len(self.published)


class Back:
    reply_code, reply_text = 312, "NO_ROUTE"


def messages(count: int, offset: int | None = None) -> list[InFlightMessage]:
    return [
        InFlightMessage(tag, None if offset is None else offset + tag, b"", b"%d" % tag, "", "q")
        for tag in range(1, count + 1)
    ]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def receipts(source: Source) -> Acknowledgements:
    return Acknowledgements(cast(Channel, source))


def test_in_order_one_acknowledgement_for_all(source: Source, receipts: Acknowledgements) -> None:
    for message in messages(5):
        receipts.take(message)
        if message.delivery_tag < 4:
            receipts.done(message)
    receipts.flush()
    assert source.acks == [(3, True)]
    receipts.flush()
    assert len(source.acks) == 1


def test_behind_one_that_is_open_each_for_itself(source: Source, receipts: Acknowledgements) -> None:
    all_of_them = messages(5)
    for message in all_of_them:
        receipts.take(message)
    for number in (0, 2, 4):
        receipts.done(all_of_them[number])
    receipts.flush()
    assert source.acks == [(1, True), (3, False), (5, False)]
    receipts.done(all_of_them[1])
    receipts.flush()
    assert source.acks[3:] == [(2, True)]


def test_a_source_that_is_gone_gets_none(source: Source, receipts: Acknowledgements) -> None:
    (message,) = messages(1)
    receipts.take(message)
    receipts.done(message)
    source.is_open = False
    receipts.flush()
    assert source.acks == []


def test_without_acknowledgements(source: Source) -> None:
    receipts = Acknowledgements(cast(Channel, source), acknowledges=False)
    (message,) = messages(1)
    receipts.take(message)
    receipts.done(message)
    receipts.flush()
    assert source.acks == []


def test_a_stream_is_read_on_at_the_first_that_is_not_done(receipts: Acknowledgements) -> None:
    assert receipts.next_offset is None
    all_of_them = messages(3, offset=100)
    for message in all_of_them:
        receipts.take(message)
    receipts.done(all_of_them[1])
    assert receipts.next_offset == 101
    receipts.done(all_of_them[0])
    assert receipts.next_offset == 103
    receipts.done(all_of_them[2])
    assert receipts.next_offset == 104


class Bench:
    def __init__(self, mode: Any = "on-confirm", size: int = 3) -> None:
        self.destination = Destination()
        self.accepted: list[int] = []
        self.window = Window(
            cast(Channel, self.destination), size, lambda message: self.accepted.append(message.delivery_tag), mode, 0.1
        )

    async def has_sent(self, count: int) -> None:
        """Once so many were published; a retry's timer is due at once here."""
        while len(self.destination.published) < count:  # noqa: ASYNC110  a timer of the loop has no event
            await asyncio.sleep(0)

    def back(self, tag: int) -> None:
        self.window.returned(tag, cast(Any, Back()))
        self.window.settle(tag, True)


async def test_confirmed_in_any_order() -> None:
    bench = Bench()
    for message in messages(3):
        assert bench.window.has_room()
        bench.window.send(message)
    assert not bench.window.has_room()
    for tag in (2, 1, 3):
        bench.window.settle(tag, True)
    assert bench.accepted == [2, 1, 3]
    assert bench.window.pending == 0
    assert bench.destination.mandatory == {True}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.bridge.window.FIRST_RETRY", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_refused_one_stops_the_line_until_it_is_taken() -> None:
    bench = Bench(size=10)
    for message in messages(2):
        bench.window.send(message)
    bench.window.settle(1, False)
    bench.window.settle(2, False)
    assert not bench.window.has_room()
    assert "refused" in str(bench.window.refusal)
    await bench.has_sent(4)
    assert bench.destination.published == [b"1", b"2", b"1", b"2"]
    assert not bench.window.has_room(), "under way again is not taken"
    bench.window.settle(3, True)
    assert not bench.window.has_room()
    bench.window.settle(4, True)
    assert bench.window.has_room()
    assert bench.window.refusal is None
    assert bench.accepted == [1, 2]


@pytest.mark.usefixtures("at_once")
async def test_a_returned_one_lets_others_pass() -> None:
    bench = Bench(size=2)
    first, second = messages(2)
    bench.window.send(first)
    bench.back(1)
    assert bench.window.has_room()
    bench.window.send(second)
    assert not bench.window.has_room(), "but it takes room"
    bench.window.settle(2, True)
    assert "reaches no queue (312 NO_ROUTE)" in str(bench.window.refusal)
    await bench.has_sent(3)
    bench.window.settle(3, True)
    assert bench.accepted == [2, 1]
    assert bench.window.refusal is None


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
async def test_modes_that_do_not_insist(mode: str) -> None:
    bench = Bench(mode)
    for message in messages(2):
        bench.window.send(message)
    bench.window.settle(1, False)
    bench.window.settle(2, True)
    assert (bench.accepted, bench.window.lost, bench.window.pending) == ([2], 1, 0)
    assert bench.destination.mandatory == {False}


@pytest.mark.usefixtures("at_once")
async def test_nothing_is_sent_again_after_the_end() -> None:
    bench = Bench()
    (message,) = messages(1)
    bench.window.send(message)
    bench.window.settle(1, False)
    bench.window.close()
    await asyncio.sleep(0.01)
    assert bench.destination.published == [b"1"]


async def test_the_end_of_the_channel_is_told() -> None:
    bench = Bench()
    waiting = asyncio.create_task(bench.window.changed())
    await asyncio.sleep(0)
    bench.window.orphaned(1, ConnectionLost("gone"))
    bench.window.refused(2, ConnectionLost("again"))
    await waiting
    assert str(bench.window.failed.result()) == "gone"
