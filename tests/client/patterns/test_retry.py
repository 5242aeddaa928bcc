"""Retries with delays, and dead letters; against both brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import harebell
from harebell import blocking, errors
from harebell.broker import Broker
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message, Publication
from harebell.client.patterns.retry import Retry
from harebell.protocol.v091.fields import Table
from tests.client.outages import ready
from tests.client.patterns.test_workers import Seen

FAST = Retry(delays=(0.02, 0.05))


@pytest.fixture
async def work(channel: Channel, connection: Connection, name: str) -> AsyncIterator[str]:
    """A work queue with what `FAST` adds to it; all deleted afterwards."""
    await channel.queue_declare(name)
    await channel.confirm_select()
    yield name
    for queue in (name, *FAST.queues(name)):
        await channel.queue_delete(queue)


def failing(seen: Seen, times: int = 1_000_000) -> object:
    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        if len(seen.bodies) <= times:
            raise ValueError(f"try {len(seen.bodies)}")

    return handle


async def letter_of(connection: Connection, queue: str) -> harebell.DeadLetter:
    async with asyncio.timeout(60), connection.dead_letters(queue) as letters:
        async for letter in letters:
            letter.delivery.ack()
            return letter
    raise AssertionError("no dead letter")


MESSAGE = Message(
    b"m", content_type="text/plain", content_encoding="utf-8", headers={"mine": 1, "CC": ["elsewhere"]},
    delivery_mode=2, priority=3, correlation_id="c", reply_to="r", expiration="30000", message_id="i",
    timestamp=datetime(2026, 1, 2, tzinfo=UTC), type="t", user_id="guest", app_id="a",
)  # fmt: skip


async def test_again_and_again_and_then_a_dead_letter(
    connection: Connection, channel: Channel, work: str, name: str
) -> None:
    await channel.exchange_declare(f"{name}.x", "fanout", auto_delete=True)
    await channel.queue_bind(work, f"{name}.x", "key")
    seen: list[tuple[str, str, object]] = []

    async def handle(delivery: Delivery) -> None:
        seen.append((delivery.exchange, delivery.routing_key, delivery.headers.get("x-retry-attempts")))
        raise ValueError(f"try {len(seen)}")

    wall = datetime.now(UTC).timestamp()
    async with connection.consume(work, handle, retry=FAST):
        await channel.publish(MESSAGE, f"{name}.x", "key")
        letter = await letter_of(connection, f"{work}.dead")
    assert seen == [(f"{name}.x", "key", None), (f"{name}.x", "key", 1), (f"{name}.x", "key", 2)]
    assert (letter.reason, letter.queue, letter.count) == ("rejected", work, 1)
    assert (letter.exchange, letter.routing_keys) == (f"{name}.x", ("key",))
    assert letter.error == "ValueError: try 3"
    assert letter.time is not None
    assert abs(letter.time.timestamp() - wall) < 60
    # Harebell and RabbitMQ 4 do not take a published x-death for history: there only the last retry queue is in it.
    assert (letter.deaths[1].queue, letter.deaths[1].reason) == (f"{work}.retry.50", "expired")
    kept = letter.delivery.properties
    for field in ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
                  "message_id", "timestamp", "type", "app_id"):  # fmt: skip
        assert getattr(kept, field) == getattr(MESSAGE.properties, field)
    assert letter.delivery.headers["mine"] == 1
    first = letter.publication()
    assert isinstance(first.message, Message)
    assert (first.exchange, first.routing_key, first.message.body) == (f"{name}.x", "key", b"m")
    assert first.message.headers == {"mine": 1, "CC": ["elsewhere"]}
    assert first.message.properties.expiration == "30000"


async def test_a_try_that_succeeds_is_the_end_of_it(connection: Connection, channel: Channel, work: str) -> None:
    seen = Seen()
    async with connection.consume(work, failing(seen, times=1), retry=FAST):  # type: ignore[call-overload]
        await channel.publish(b"m", "", work)
        assert await seen.count(2) == [b"m", b"m"]
    for queue in (work, *FAST.queues(work)):
        assert await channel.message_count(queue) == 0


async def test_an_error_that_is_not_worth_it(connection: Connection, channel: Channel, work: str) -> None:
    bodies = []

    async def handle(delivery: Delivery) -> None:
        bodies.append(delivery.body)
        raise harebell.Reject if delivery.body == b"rejected" else LookupError("never")

    async with connection.consume(work, handle, retry=Retry(FAST.delays, on=(ValueError,)), workers=1):
        for body in (b"m", b"rejected"):
            await channel.publish(body, "", work)
        letters = [await letter_of(connection, f"{work}.dead") for _ in range(2)]
    assert [letter.error for letter in letters] == ["LookupError: never", "Reject"]
    assert bodies == [b"m", b"rejected"]


LOST = ConnectionError("lost")


@pytest.mark.parametrize(
    "leaves, tries",
    [
        ([LOST], 3),
        ([LOST, TimeoutError("late")], 3),
        ([LOST, harebell.Requeue()], 3),
        ([LOST, ValueError("wrong")], 1),
        ([LOST, harebell.Reject()], 1),
        ([harebell.Reject(), harebell.Reject()], 1),
    ],
)
async def test_the_errors_of_a_group(connection: Connection, work: str, leaves: list[Exception], tries: int) -> None:
    seen = Seen()

    async def fail(error: Exception) -> None:
        raise error

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        async with asyncio.TaskGroup() as group:
            for leaf in leaves:
                group.create_task(fail(leaf))

    retry = Retry(FAST.delays, on=(ConnectionError, TimeoutError))
    async with connection.consume(work, handle, retry=retry), connection.channel() as channel:
        await channel.publish(b"m", "", work)
        await letter_of(connection, retry.dead_queue(work))
    assert len(seen.bodies) == tries


async def test_nothing_is_lost_when_the_retry_queue_is_gone(
    connection: Connection, channel: Channel, other: Channel, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with connection.consume(work, failing(seen), retry=FAST):  # type: ignore[call-overload]
        for queue in FAST.queues(work):
            await other.queue_delete(queue)
        await channel.publish(b"m", "", work)
        letter = await letter_of_when_declared(connection, f"{work}.dead")
    assert letter.body == b"m"
    assert await seen.count(3) == [b"m"] * 3
    assert "cannot be moved" in caplog.text


async def letter_of_when_declared(connection: Connection, queue: str) -> harebell.DeadLetter:
    async with asyncio.timeout(60):
        while True:
            try:
                return await letter_of(connection, queue)
            except errors.NotFound:
                pass


async def test_an_outage_between_the_tries(connection: Connection, other: Channel, work: str) -> None:
    """At least once: whatever is cut, the message arrives, and ends as a dead letter."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.add(delivery.body)
        if len(seen.bodies) in (1, 3):  # before it is moved, so that it stays; while it is being moved
            turns = 0 if len(seen.bodies) == 1 else 1
            later = connection.test().disconnect_transport
            loop = asyncio.get_running_loop()
            loop.call_soon(partial(loop.call_soon, later) if turns else later)
        raise ValueError("cut")

    async with connection.consume(work, handle, retry=FAST, workers=1):
        await other.publish(b"m", "", work)
        async with harebell.connect(connection.parameters) as steady:
            letter = await letter_of(steady, f"{work}.dead")
    assert letter.body == b"m"
    assert len(seen.bodies) >= 3


async def test_stopping_in_the_midst_gives_it_back(
    connection: Connection, channel: Channel, other: Channel, work: str
) -> None:
    """The retry queue refuses: the message stays where it was."""
    full = Retry(delays=(5,))
    arguments = {**full.queues(work)[f"{work}.retry.5000"], "x-max-length": 0, "x-overflow": "reject-publish"}
    seen = Seen()
    workers = connection.consume(work, failing(seen), retry=full)  # type: ignore[call-overload]
    await workers.start()
    await other.queue_delete(f"{work}.retry.5000")
    await other.queue_declare(f"{work}.retry.5000", durable=True, arguments=arguments)
    await channel.publish(b"m", "", work)
    await seen.count(1)
    await workers.stop(grace=0)
    await ready(channel, work, 1)
    await other.queue_delete(f"{work}.retry.5000")


async def test_the_broker_may_hold_it_back(name: str) -> None:
    retry = Retry(delays=(0.02, 0.04), by="broker")
    seen = Seen()
    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_declare("work", arguments=retry.queue_arguments("work"))
        async with connection.consume("work", failing(seen), retry=retry):  # type: ignore[call-overload]
            await channel.publish(b"m", "", "work")
            letter = await letter_of(connection, "work.dead")
            await channel.publish(b"n", "", "work")
            await seen.count(4)
        assert seen.bodies[:3] == [b"m"] * 3
        assert (letter.reason, letter.queue) == ("delivery_limit", "work")
        assert letter.error is None


async def test_what_the_broker_gave_up(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(f"{name}.dead", exclusive=True)
    dead: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead", "x-message-ttl": 0}
    await channel.queue_declare(name, exclusive=True, arguments=dead)
    await channel.publish(Message(b"m", headers={"mine": 1}), "", name)
    letter = await letter_of(connection, f"{name}.dead")
    assert (letter.reason, letter.queue, letter.count, letter.error) == ("expired", name, 1, None)
    publication = letter.publication()
    assert isinstance(publication, Publication)
    assert (publication.exchange, publication.routing_key) == ("", name)
    assert isinstance(publication.message, Message)
    assert publication.message.headers == {"mine": 1}
    await channel.publish(b"bare", "", f"{name}.dead")
    bare = await letter_of(connection, f"{name}.dead")
    assert (bare.reason, bare.queue, bare.count, bare.time, bare.deaths) == ("", "", 0, None, ())
    assert (bare.publication().routing_key, bare.body) == (f"{name}.dead", b"bare")


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"delays": (0,)}, "a delay of 0 s"),
        ({"delays": (float("nan"),)}, "a delay of nan s"),
        ({"delays": 5}, "delays is 5: seconds are needed"),
        ({"delays": ("5",)}, "seconds are needed"),
        ({"delays": "15"}, "delays is '15'"),
        ({"delays": None}, "delays is None"),
        ({"on": "OSError"}, "on is 'OSError': classes of errors"),
        ({"on": (OSError("no class"),)}, "classes of errors"),
        ({"by": "magic"}, "by='magic'"),
        ({"dead_letter": ""}, "dead_letter='': the name of a queue"),
        ({"dead_letter": 5}, "dead_letter=5: the name of a queue"),
        ({"dead_letter": b"dead"}, "dead_letter=b'dead': the name of a queue"),
        ({"dead_letter": ["dead"]}, "the name of a queue"),
        ({"by": "broker", "delays": (2, 1)}, "delays that grow"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        Retry(**arguments)  # type: ignore[arg-type]


NO_RETRY: list[Any] = [(1, 2), 3, 1.5, True, False, Retry, "1", []]
NO_RETRIES: list[tuple[dict[str, Any], str]] = [
    *[({"retry": given}, "retry is .*: give a Retry") for given in NO_RETRY],
    *[({"dead_letter": given}, "the name of a queue is needed") for given in ("", 5, b"dead", True)],
    ({"dead_letter": "work"}, "is the work queue itself"),
    ({"retry": Retry(dead_letter="work")}, "is the work queue itself"),
    ({"retry": Retry((), dead_letter="work")}, "is the work queue itself"),
    ({"retry": Retry((1,), dead_letter="work", by="broker")}, "is the work queue itself"),
    ({"retry": Retry((1,)), "dead_letter": "work"}, "is the work queue itself"),
    ({"retry": Retry((1,), dead_letter="work.retry.1000")}, "is a queue of the retries"),
]


@pytest.mark.parametrize("options, said", NO_RETRIES)
async def test_what_would_lose_messages_or_try_them_for_ever_is_refused(
    connection: Connection, harebell_url: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        connection.consume("work", Delivery.ack, **options)

    def in_a_thread() -> None:
        with blocking.connect(harebell_url) as of_threads, pytest.raises(errors.InvalidArgument, match=said):
            of_threads.consume("work", lambda delivery: None, **options)

    await asyncio.to_thread(in_a_thread)


@pytest.mark.parametrize("given", [Retry(dead_letter="work"), Retry((1,), dead_letter="work", by="broker")])
def test_so_it_is_for_who_declares_the_queues(given: Retry) -> None:
    for made in (given.dead_queue, given.queues, given.queue_arguments):
        with pytest.raises(errors.InvalidArgument, match="is the work queue itself"):
            made("work")
        assert made("other")


def test_delays_may_be_any_iterable() -> None:
    assert Retry(delays=iter([1, 2])).delays == Retry(delays=[1, 2]).delays == (1, 2)  # type: ignore[arg-type]
