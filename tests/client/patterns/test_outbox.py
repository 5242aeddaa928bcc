"""The relay of an outbox: what was committed is published, in its order, and once where the queue asks for it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication
from harebell.client.patterns import outbox as outbox_module
from harebell.client.patterns.outbox import OutboxEntry
from harebell.client.patterns.postgres_outbox import PostgresOutbox
from harebell.client.patterns.sqlite_outbox import SQLiteOutbox
from harebell.client.recovery.policy import Backoff
from harebell.testing import FaultProxy
from tests.client.outages import FAST, bodies, eventually
from tests.client.publications.relay import Relay as Withholding
from tests.client.publications.ways import until

AnyOutbox = SQLiteOutbox | PostgresOutbox


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "PAUSES", Backoff(0.01, 0.05))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """(which database, how to open it): each test runs on each."""
    if request.param == "postgres":
        return "postgres", request.getfixturevalue("postgres_database")
    return "sqlite", str(tmp_path / "shop.db")


@pytest.fixture
def outbox(database: tuple[str, str]) -> Iterator[AnyOutbox]:
    kind, where = database
    outbox = PostgresOutbox(where) if kind == "postgres" else SQLiteOutbox(where)
    yield outbox
    outbox.close()


@pytest.fixture
def db(database: tuple[str, str], outbox: AnyOutbox) -> Iterator[Any]:
    """The program's connection: `with db:` is a transaction."""
    kind, where = database
    if kind == "postgres":
        from tests.client.patterns.kept_connection import KeptConnection

        db: Any = KeptConnection.connect(where)
    else:
        db = sqlite3.connect(where)
    yield db
    db.close()


async def published(outbox: AnyOutbox) -> None:
    async def is_empty() -> bool:
        return not await asyncio.to_thread(outbox.waiting)

    await eventually(is_empty)


async def test_what_was_committed_is_published(
    connection: Connection, channel: Channel, queue: str, outbox: AnyOutbox, db: Any
) -> None:
    async with connection.relay(outbox, interval=0.01) as relay:
        with db:
            for n in range(3):
                outbox.put(db, b"%d" % n, queue)
            outbox.put(db, Message(b"3", message_id="7"), queue, key="of its own")
        with pytest.raises(ZeroDivisionError), db:
            outbox.put(db, b"rolled back", queue)
            raise ZeroDivisionError
        await published(outbox)
        assert (relay.published, relay.refused) == (4, 0)
    *_, last = found = [await channel.get(queue, no_ack=True) for _ in range(4)]
    assert [delivery.body for delivery in found if delivery] == [b"0", b"1", b"2", b"3"]
    assert last is not None
    assert (last.properties.message_id, last.properties.delivery_mode) == ("7", 2)
    assert last.headers["x-deduplication-header"] == "of its own"
    assert await channel.get(queue) is None


async def test_wake_does_not_wait_for_the_interval(
    connection: Connection, channel: Channel, queue: str, outbox: AnyOutbox, db: Any
) -> None:
    async with connection.relay(outbox, interval=3600) as relay:
        with db:
            outbox.put(db, b"m", queue)
        relay.wake()
        await published(outbox)
    assert await bodies(channel, queue) == [b"m"]


async def test_drain_publishes_what_is_there(
    connection: Connection, channel: Channel, queue: str, outbox: AnyOutbox, db: Any
) -> None:
    with db:
        for n in range(outbox_module.AT_ONCE + 3):
            outbox.put(db, b"%d" % n, queue)
    relay = connection.relay(outbox)
    assert await relay.drain() == outbox_module.AT_ONCE + 3
    assert await relay.drain() == 0
    await relay.close()
    assert await bodies(channel, queue) == [b"%d" % n for n in range(outbox_module.AT_ONCE + 3)]


async def test_what_can_not_be_published_is_kept_with_its_error(
    connection: Connection, channel: Channel, queue: str, name: str, outbox: AnyOutbox, db: Any
) -> None:
    """Each kind of fault, several at once and among others: these go on, in their order."""
    with db:
        outbox.put(db, b"0", queue)
        outbox.put(db, b"no queue", f"{name}.none")
        outbox.put(db, b"no exchange", "k", exchange=f"{name}.none")
        outbox.put(db, b"1", queue)
        outbox.put(db, b"no exchange either", "k", exchange=f"{name}.none")
        outbox.put(db, Message(b"too long", headers={"long": "x" * 200_000}), queue)
        outbox.put(db, b"nobody need take it", f"{name}.none", mandatory=False)
        outbox.put(db, b"2", queue)
    async with connection.relay(outbox, interval=0.01) as relay:
        await published(outbox)
        assert relay.refused == 4
    refusals = outbox.refusals()
    assert [entry.number for entry, _ in refusals] == [2, 3, 5, 6]
    assert refusals[0][1].startswith("Unroutable: ")
    assert all(f"no exchange '{name}.none'" in text for _, text in refusals[1:3])
    assert refusals[3][1].startswith("LocalProtocolError")
    assert list(dict.fromkeys(await bodies(channel, queue))) == [b"0", b"1", b"2"]

    await channel.queue_declare(f"{name}.none", auto_delete=True)
    assert outbox.retry([2]) == 1
    assert await connection.relay(outbox).drain() == 1
    assert await bodies(channel, f"{name}.none") == [b"no queue"]
    await channel.queue_delete(f"{name}.none")
    assert (outbox.discard([3]), outbox.discard(), outbox.refusals()) == (1, 2, [])
    assert outbox.retry() == 0


async def test_once_into_a_queue_that_deduplicates_whatever_is_cut(
    harebell_url: str, name: str, outbox: AnyOutbox, db: Any
) -> None:
    """Confirms are withheld, and the connection is cut, again and again: each arrives, in order, and once."""
    at = urlsplit(harebell_url)
    async with (
        Withholding(at.hostname or "", at.port or 0) as withholding,
        FaultProxy("127.0.0.1", withholding.port) as proxy,
        harebell.connect(harebell_url) as quiet,
        quiet.channel() as other,
        harebell.connect(f"amqp://{proxy.host}:{proxy.port}", timeout=60, recovery=FAST) as connection,
    ):
        await other.queue_declare(name, arguments={"x-message-deduplication": True, "x-cache-size": 10_000})
        async with connection.relay(outbox, interval=0.01):
            for turn in range(3):
                withholding.withholding = True
                with db:
                    for n in range(20):
                        outbox.put(db, b"%d" % (20 * turn + n), name)

                async def have_arrived(count: int = 20 * turn + 20) -> bool:
                    return await other.message_count(name) >= count

                await eventually(have_arrived)
                withholding.withholding = False
                proxy.cut()
                await published(outbox)
        assert await bodies(other, name) == [b"%d" % n for n in range(60)]
        await other.queue_delete(name)


async def test_what_is_nacked_is_tried_until_there_is_room(
    connection: Connection, channel: Channel, name: str, outbox: AnyOutbox, db: Any
) -> None:
    await channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    with db:
        for n in range(3):
            outbox.put(db, b"%d" % n, name)
    relay = connection.relay(outbox)
    with pytest.raises(errors.PublishesFailed) as caught:
        await relay.drain()
    assert set(caught.value.failures) == {2, 3}  # their numbers in the outbox
    assert all(isinstance(error, errors.Nacked) for error in caught.value.failures.values())
    found: list[bytes] = []
    async with relay:
        while len(found) < 3:
            found += await bodies(channel, name)
    assert found == [b"0", b"1", b"2"]
    await channel.queue_delete(name)


async def test_one_relay_at_a_time(
    connection: Connection, channel: Channel, queue: str, outbox: AnyOutbox, db: Any
) -> None:
    assert await outbox.hold("another", 3600)
    with db:
        outbox.put(db, b"m", queue)
    relay = connection.relay(outbox)
    assert await relay.drain() == 0
    assert await outbox.hold("another", 0)
    assert await relay.drain() == 1
    assert await outbox.hold("another", 3600)  # `drain` lets go
    assert await bodies(channel, queue) == [b"m"]


class Failing:
    """An outbox whose database is away for a while."""

    def __init__(self, queue: str) -> None:
        self.entries = [OutboxEntry(1, Publication(b"m", "", queue))]
        self.failures = 3

    async def hold(self, relay: str, seconds: float) -> bool:
        if seconds and self.failures:
            self.failures -= 1
            raise OSError("the database is away")
        return True

    async def oldest(self, count: int) -> Sequence[OutboxEntry]:
        return self.entries[:count]

    async def confirmed(self, numbers: Sequence[int]) -> None:
        self.entries = [entry for entry in self.entries if entry.number not in numbers]

    async def refused(self, number: int, error: errors.HarebellError) -> None:
        raise AssertionError


async def test_a_database_that_is_away_is_waited_for(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Failing(queue)
    with pytest.raises(OSError, match="is away"):
        await connection.relay(outbox).drain()
    async with connection.relay(outbox, interval=0.001):
        await until(lambda: not outbox.entries)
    assert await bodies(channel, queue) == [b"m"]
    assert "the outbox failed; it is asked again" in caplog.text


async def test_a_connection_that_is_closed_ends_it(
    harebell_url: str, outbox: AnyOutbox, db: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(errors.ChannelClosed):
        async with harebell.connect(harebell_url) as connection, connection.relay(outbox, interval=0.01) as relay:
            await connection.close()
            with db:
                outbox.put(db, b"m", "nowhere")
            relay.wake()
            await until(lambda: "the relay of an outbox has ended" in caplog.text)
    assert outbox.waiting() == 1
    with pytest.raises(ZeroDivisionError):  # and the block's own error is the one to raise
        async with harebell.connect(harebell_url) as connection, connection.relay(outbox, interval=0.01):
            raise ZeroDivisionError


@pytest.mark.parametrize("interval", [0.001, 3600])
async def test_a_connection_that_is_closed_ends_a_relay_with_nothing_to_do(
    harebell_url: str, outbox: AnyOutbox, interval: float
) -> None:
    async def held() -> bool:
        return not await outbox.hold("another", 0)

    async with harebell.connect(harebell_url) as connection:
        relay = connection.relay(outbox, interval=interval)
        running = asyncio.create_task(relay.run())
        await eventually(held)
        await connection.close()
        with pytest.raises(errors.ChannelClosed):
            async with asyncio.timeout(60):
                await running
        with pytest.raises(errors.ChannelClosed):
            await relay.drain()
    assert await outbox.hold("another", 1)


class Slow(Failing):
    """An outbox whose database answers late."""

    def __init__(self) -> None:
        super().__init__("")
        self.failures, self.entries = 0, []
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.held = ""

    async def hold(self, relay: str, seconds: float) -> bool:
        if seconds:
            self.held = relay
            self.asked.set()
            await self.answer.wait()
        else:
            self.held = ""
        return True


async def test_a_block_that_is_cancelled_while_it_ends_leaves_no_relay(connection: Connection) -> None:
    outbox, leaving = Slow(), asyncio.Event()

    async def work() -> None:
        async with connection.relay(outbox):
            await outbox.asked.wait()
            leaving.set()

    task = asyncio.create_task(work())
    await leaving.wait()
    await asyncio.sleep(0)  # it waits for the turn
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not outbox.held
    assert not [task for task in asyncio.all_tasks() if "Relay.run" in repr(task)]


async def test_who_is_cancelled_is_cancelled(
    connection: Connection, outbox: AnyOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with connection.relay(outbox):
            inside.set()
            await asyncio.sleep(3600)

    task = asyncio.ensure_future(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await outbox.hold("another", 1)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_interval_of_nothing_is_refused(connection: Connection, outbox: AnyOutbox) -> None:
    with pytest.raises(errors.InvalidArgument, match="interval is 0"):
        connection.relay(outbox, interval=0)
