"""Where consumers of streams continue after a loss: the table by hand, and consumers against both brokers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.core.unacked import Deliveries
from harebell.client.messages import Delivery
from harebell.client.recovery.stream_position import Position, Resume
from tests.client.outages import next_of
from tests.client.test_consumer import fill

STREAM: dict[str, Any] = {"x-queue-type": "stream"}


class Handed:
    """A delivery, as far as a position knows it."""

    def __init__(self, tag: int, offset: int) -> None:
        self.delivery_tag, self.stream_offset = tag, offset


class Table:
    """A position, and the table of its channel."""

    def __init__(self, resume: Resume, arguments: dict[str, Any] | None = None) -> None:
        self.deliveries = Deliveries()
        self.position = Position(resume, arguments)

    def hand_out(self, *tags: int) -> None:
        for tag in tags:
            self.deliveries.last_tag = max(self.deliveries.last_tag, tag)
            self.deliveries.unacked.add(tag)
            self.position.handed_out(cast(Delivery, Handed(tag, 100 + tag)), self.deliveries)

    def ack(self, *tags: int) -> None:
        for tag in tags:
            assert self.deliveries.settle(tag, False, "ack", cast(Any, ()))[1] is None

    def lost_at(self) -> object:
        self.position.lost(self.deliveries)
        self.deliveries.lost([])
        return self.position.arguments(None).get("x-stream-offset")


@pytest.mark.parametrize("resume, at", [("handed_out", 105), ("settled", 102)])
def test_it_continues_behind_what_was_handed_out_or_settled(resume: Resume, at: int) -> None:
    table = Table(resume)
    table.hand_out(1, 2, 3, 4)
    table.ack(1, 3)
    assert table.position.settled(table.deliveries) == 101
    assert table.lost_at() == table.position.expected == at
    if resume == "handed_out":
        table.ack(2, 4)  # they do not come again, and are no orphans
        assert not table.deliveries.released
        assert not table.deliveries.orphans
    else:
        assert table.deliveries.orphans == {2, 4}
    assert table.lost_at() == at  # nothing was handed out meanwhile


@pytest.mark.parametrize("resume", ["handed_out", "settled"])
def test_all_is_settled(resume: Resume) -> None:
    table = Table(resume)
    table.hand_out(1, 2)
    table.ack(2, 1)
    assert table.position.settled(table.deliveries) == 102
    assert table.lost_at() == 103


def test_released_deliveries_are_settled_together() -> None:
    table = Table("handed_out")
    table.hand_out(1, 2, 3)
    table.lost_at()
    table.hand_out(4)
    assert table.deliveries.settle(2, True, "ack", cast(Any, NONE)) == ((), None)
    assert table.deliveries.released == {3}
    assert table.deliveries.settle(4, True, "ack", cast(Any, NONE))[1] is None
    assert not table.deliveries.released
    error = table.deliveries.settle(2, True, "ack", cast(Any, NONE))[1]
    assert isinstance(error, errors.LocalProtocolError)


class None_:
    def first(self) -> int:
        return 0

    def __iter__(self) -> Any:
        return iter(())


NONE = None_()


def test_what_needs_no_acknowledgement() -> None:
    table = Table("settled")
    table.position.handed_out(cast(Delivery, Handed(1, 7)), None)
    assert table.lost_at() == 8
    table.position.lost(table.deliveries, cast(Delivery, Handed(2, 30)))  # it lies in a buffer, and is kept
    assert table.position.arguments({"x-stream-offset": "first", "a": 1}) == {"x-stream-offset": 31, "a": 1}


@pytest.mark.parametrize("asked", [None, "next", "last"])
def test_before_the_first_delivery_it_continues_at_the_time_of_its_beginning(asked: str | None) -> None:
    before = datetime.now(UTC)
    table = Table("handed_out", None if asked is None else {"x-stream-offset": asked})
    at = table.lost_at()
    assert isinstance(at, datetime)
    assert abs((at - before).total_seconds()) < 5


@pytest.mark.parametrize("asked", ["first", 17, datetime(2026, 1, 1, tzinfo=UTC), "1h"])
def test_or_where_it_was_asked_to_begin(asked: Any) -> None:
    arguments = {"x-stream-offset": asked}
    assert Position("handed_out", arguments).arguments(arguments) == arguments


# -- against brokers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connection", "channel"])
@pytest.mark.parametrize("offset", ["first", None])
async def test_a_stream_has_neither_gap_nor_repetition_over_a_loss(
    connection: Connection, channel: Channel, other: Channel, name: str, how: str, offset: str | None
) -> None:
    await other.queue_declare(name, durable=True, arguments=STREAM)
    events = connection.events()
    arguments: dict[str, Any] = {} if offset is None else {"x-stream-offset": offset}
    consumer = channel.consume(name, prefetch=10, arguments=arguments)
    await consumer.start()
    await fill(other, name, 30)
    seen = []
    async with asyncio.timeout(60):
        for step in range(3):
            for _ in range(8):
                delivery = await anext(consumer)
                seen.append(delivery.stream_offset)
                delivery.ack()
            last = await anext(consumer)  # handed out, and not acknowledged before the loss
            seen.append(last.stream_offset)
            await (connection.test() if how == "connection" else channel.test()).force_reconnect()
            resumed = await next_of(events, e.StreamResumed)
            assert (resumed.queue, resumed.offset) == (name, 9 * (step + 1))
            last.ack()  # nothing to be told: it does not come again
    assert seen == list(range(27))
    await consumer.cancel()
    await other.queue_delete(name)


async def test_a_consumer_that_has_had_nothing_misses_nothing(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    await channel.queue_declare(name, durable=True, arguments=STREAM)
    consumer = channel.consume(name, prefetch=10)  # from the next message on
    await consumer.start()
    with connection.test().reconnect_blocked():
        await fill(other, name, 5)
    async with asyncio.timeout(60):
        assert [(await anext(consumer)).body for _ in range(5)] == [b"%d" % n for n in range(5)]
    await consumer.cancel()
    await other.queue_delete(name)


async def test_messages_that_are_gone_are_told(
    harebell_url: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream was deleted and filled again meanwhile, say; here the position is put back by hand."""
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        await channel.queue_declare(name, durable=True, arguments=STREAM)
        await fill(channel, name, 9)
        consumer = channel.consume(name, prefetch=3, arguments={"x-stream-offset": 5})
        events = connection.events()
        (await anext(consumer)).ack()
        position = consumer.subscription.position
        assert position is not None
        arguments = position.arguments

        def earlier(given: Any) -> Any:
            made = arguments(given)
            position.expected = 2
            return made

        monkeypatch.setattr(position, "arguments", earlier)
        await connection.test().force_reconnect()
        assert (await anext(consumer)).stream_offset == 6
        gap = await next_of(events, e.StreamGap)
        assert (gap.queue, gap.expected, gap.came) == (name, 2, 6)
        assert "messages 2 to 5 are gone" in caplog.text
        await channel.queue_delete(name)


async def test_a_handler_is_called_once_for_each_message_of_a_stream(
    connection: Connection, other: Channel, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await other.queue_declare(name, durable=True, arguments=STREAM)
    await fill(other, name, 20)
    seen: list[int | None] = []
    orphans: list[Delivery] = []
    go = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.stream_offset)
        if len(seen) == 5:
            go.set()
        await go.wait()
        if len(seen) == 20:
            done.set()

    done = asyncio.Event()
    first: dict[str, Any] = {"x-stream-offset": "first"}
    async with connection.consume(name, handle, workers=5, arguments=first, on_orphan=orphans.append):
        await go.wait()
        await connection.test().force_reconnect()
        async with asyncio.timeout(60):
            await done.wait()
    assert sorted(cast("list[int]", seen)) == list(range(20))
    assert orphans == []
    assert "comes again" not in caplog.text
    await other.queue_delete(name)
