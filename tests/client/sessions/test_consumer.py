"""Consumers of sessions: windows, settling, browsing, cancelling, pulling."""

from __future__ import annotations

import asyncio

import pytest

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.client.sessions import Connection, Consumer, Session
from harebell.testing import FaultProxy
from tests.client.outages import eventually
from tests.client.sessions.kit import drained, subscribers, until


async def filled(session: Session, count: int, size: int = 1) -> list[bytes]:
    """Declare the queue "q", with so many messages."""
    await session.queue_declare("q")
    bodies = [b"%0*d" % (size, number) for number in range(count)]
    await session.publish_many([Publication(body, "", "q") for body in bodies])
    return bodies


async def test_the_window_counts_unsettled_messages(session: Session, other: Session) -> None:
    bodies = await filled(session, 10)
    async with session.consume("q", window=3) as consumer:
        deliveries = [await anext(consumer) for _ in range(3)]
        await session.sync()
        assert consumer.buffered == 0
        assert await other.message_count("q") == 7
        deliveries[1].accept()
        assert (await anext(consumer)).body == bodies[3]
        await session.sync()
        assert (consumer.buffered, await other.message_count("q")) == (0, 6)
    await session.sync()
    assert await other.message_count("q") == 6  # the deliveries that were taken stay with the session


async def test_the_window_counts_bytes(session: Session, other: Session) -> None:
    await filled(session, 5, 1000)
    async with session.consume("q", window_bytes=2500) as consumer:
        first = await anext(consumer)
        await anext(consumer)
        await session.sync()
        assert (consumer.buffered, await other.message_count("q")) == (0, 3)
        first.accept()
        await anext(consumer)


async def test_settling(session: Session, other: Session) -> None:
    await session.queue_declare("dead")
    await session.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    await session.publish_many([Publication(b"%d" % number, "", "q") for number in range(4)])
    deliveries = [await session.get("q") for _ in range(4)]
    accepted, released, marked, rejected = (each for each in deliveries if each is not None)
    accepted.accept()
    released.release()
    marked.release(set_redelivered=True)
    rejected.reject("no good")
    await session.sync()
    found = [await other.get("q"), await other.get("q"), await other.get("q")]
    assert [(each.body, each.redelivered) for each in found if each is not None] == [(b"1", False), (b"2", True)]
    assert await drained(other, "dead") == [b"3"]
    for settle in (accepted.accept, accepted.release, rejected.reject):
        with pytest.raises(errors.LocalProtocolError, match="settled already"):
            settle()


async def test_settling_in_an_ended_session(connection: Connection, session: Session) -> None:
    await filled(session, 1)
    async with connection.session() as second:
        delivery = await second.get("q")
        assert delivery is not None
    with pytest.raises(errors.ChannelClosed):
        delivery.accept()
    assert await session.message_count("q") == 1


async def test_without_acceptance(session: Session, other: Session) -> None:
    bodies = await filled(session, 50)
    found = []
    async for delivery in session.consume("q", window=4, no_ack=True):
        found.append(delivery.body)
        if len(found) == len(bodies):
            break
    assert found == bodies
    with pytest.raises(errors.LocalProtocolError):
        delivery.accept()
    assert await drained(other, "q") == []


async def test_browsing_and_acquiring(session: Session, other: Session) -> None:
    bodies = await filled(session, 6)
    async with session.browse("q", window=2) as browser:
        deliveries = [await anext(browser) for _ in bodies]
        assert [delivery.body for delivery in deliveries] == bodies
        assert await other.message_count("q") == 6
        with pytest.raises(errors.LocalProtocolError, match="acquire"):
            deliveries[0].accept()
        assert await deliveries[2].acquire()
        with pytest.raises(errors.LocalProtocolError):
            await deliveries[2].acquire()
        deliveries[2].accept()
        taken = await other.get("q")
        assert taken is not None
        assert not await deliveries[0].acquire()  # it is the other's
    await session.sync()
    assert await other.message_count("q") == 4


async def test_a_selector(session: Session, other: Session) -> None:
    await session.queue_declare("q", durable=True)
    for number in range(6):
        await session.publish(Message(b"%d" % number, headers={"n": number}), "", "q")
    async with session.browse("q", selector="n > 3") as browser:
        assert [(await anext(browser)).body for _ in range(2)] == [b"4", b"5"]
    async with session.consume("q", selector="n IN (1, 3)", arguments={"x-priority": 1}) as consumer:
        for body in (b"1", b"3"):
            delivery = await anext(consumer)
            assert delivery.body == body
            delivery.accept()
    await session.sync()
    assert await drained(other, "q") == [b"0", b"2", b"4", b"5"]


async def test_what_is_no_selector(session: Session) -> None:
    await session.queue_declare("q")
    with pytest.raises(errors.InvalidArgument, match="give it once"):
        session.consume("q", selector="a", arguments={"x-apache-selector": "a"})
    with pytest.raises(errors.WrongArgument, match="is expected at character 3"):
        await session.consume("q", selector="n >").start()


async def test_cancelling_returns_what_was_not_taken(session: Session, other: Session) -> None:
    bodies = await filled(session, 10)
    consumer = session.consume("q", window=5)
    first = await anext(consumer)
    await consumer.cancel()
    await consumer.cancel()
    first.accept()
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)
    assert await drained(other, "q") == bodies[1:]


async def test_a_dropped_iterator_cancels(session: Session, other: Session) -> None:
    bodies = await filled(session, 10)
    async for delivery in session.consume("q", window=5):
        delivery.accept()
        break

    async def returned() -> bool:
        found = await other.queue_query("q")
        return found is not None and (found.consumer_count, found.message_count) == (0, 9)

    await eventually(returned)
    assert await drained(other, "q") == bodies[1:]


async def test_cancelled_tasks_leave_nothing_behind(session: Session, other: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")

    async def consume() -> None:
        async with session.consume("q") as consumer:
            await anext(consumer)

    with proxy.stalled("to_server"):
        task = asyncio.ensure_future(consume())
        await until(lambda: session.incomplete)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    task = asyncio.ensure_future(consume())
    await subscribers(other, "q", 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await subscribers(other, "q", 0)
    proxy.refuse()
    proxy.cut(reset=True)
    await until(lambda: not session.is_attached)
    consumer = session.consume("q", timeout=0.05)
    with pytest.raises(errors.DeadlineExceeded):
        await consumer.start()
    proxy.accept()
    await session.sync()  # nothing was subscribed, and nothing is cancelled
    await other.publish(b"m", "", "q")
    assert (await anext(consumer)).body == b"m"  # it can be tried again


async def test_tasks_share_a_consumer(session: Session) -> None:
    bodies = await filled(session, 40)
    consumer, found = session.consume("q", window=8), []

    async def take() -> None:
        for _ in range(10):
            delivery = await anext(consumer)
            found.append(delivery.body)
            delivery.accept()

    waiting = asyncio.ensure_future(anext(consumer))
    await asyncio.sleep(0)
    waiting.cancel()
    async with consumer:
        await asyncio.gather(take(), take(), take(), take())
    assert sorted(found) == sorted(bodies)


async def test_a_waiting_task_that_is_cancelled_loses_nothing(session: Session, other: Session) -> None:
    await session.queue_declare("q")
    async with session.consume("q") as consumer:
        for number in range(5):
            await one(other, consumer, b"%d" % number)


async def one(other: Session, consumer: Consumer, body: bytes) -> None:
    """A message comes while a task that waits for it is cancelled."""
    waiting = asyncio.ensure_future(anext(consumer))
    await asyncio.sleep(0)
    await other.publish(body, "", "q")
    await until(lambda: consumer.buffered or waiting.done())
    waiting.cancel()
    try:
        delivery = await waiting
    except asyncio.CancelledError:
        delivery = await anext(consumer)
    assert delivery.body == body
    delivery.accept()


async def test_the_end_of_a_queue_ends_the_session(session: Session, connection: Connection) -> None:
    await session.queue_declare("q")
    async with connection.session() as second:
        consumer = second.consume("q")
        await consumer.start()
        await session.queue_delete("q")
        with pytest.raises(errors.ResourceDeleted):
            await anext(consumer)


async def test_exclusive(session: Session, connection: Connection) -> None:
    await session.queue_declare("q")
    async with session.consume("q", exclusive=True, consumer_tag="mine", arguments={"x-priority": 1}) as consumer:
        assert consumer.tag == "mine"
        async with connection.session() as second:
            with pytest.raises(errors.ResourceLocked):
                await second.consume("q").start()


async def test_windows_that_cannot_be(session: Session) -> None:
    for window, size in ((0, None), (100_000, None), (1, 0), (1, 1 << 32)):
        with pytest.raises(errors.InvalidArgument, match="possible"):
            session.consume("q", window=window, window_bytes=size)


async def test_get(session: Session, other: Session, proxy: FaultProxy) -> None:
    await filled(session, 2)
    delivery = await session.get("q", no_ack=True)
    assert delivery is not None
    assert delivery.settled
    proxy.cut(reset=True)
    delivery = await session.get("q")
    assert delivery is not None
    assert delivery.body == b"1"
    assert await session.get("q") is None
    delivery.accept()
    await session.sync()
    assert await other.message_count("q") == 0


async def test_get_while_the_broker_cannot_write(
    connection: Connection, session: Session, other: Session, proxy: FaultProxy
) -> None:
    """The broker ends a flush early when its output waits: the queue is not empty for that."""
    await session.queue_declare("big")
    await filled(session, 1)
    async with connection.session() as second:
        async with second.consume("big", window=100, no_ack=True) as consumer:
            with proxy.stalled("to_client"):
                await other.publish_many([Publication(bytes(1 << 20), "", "big") for _ in range(20)])
                getting = asyncio.ensure_future(session.get("q"))
                await until(lambda: session.incomplete > 1)
                await other.sync()
            delivery = await getting
            assert delivery is not None
            assert delivery.body == b"0"
            for _ in range(20):
                await anext(consumer)


async def test_copies_and_acquiring_many(session: Session, other: Session) -> None:
    bodies = await filled(session, 500)
    copies = await session.copies("q")
    assert [copy.body for copy in copies] == bodies
    assert [copy.body for copy in await session.copies("q", most=3)] == bodies[:3]
    assert await other.message_count("q") == 500
    taken = await other.get("q")
    assert taken is not None
    acquired = await session.acquire([*copies[:100], *copies[200:300]])
    assert [delivery.body for delivery in acquired] == [*bodies[1:100], *bodies[200:300]]
    assert await session.acquire(copies[:100]) == []  # one is the other's, and the rest is acquired
    for delivery in acquired:
        delivery.accept()
    await session.sync()
    taken.release()
    await other.sync()
    assert [copy.body for copy in await session.copies("q")] == [bodies[0], *bodies[100:200], *bodies[300:]]
    assert await session.copies("q", most=1, timeout=5)
    for most in (0, -1, 1 << 32):
        with pytest.raises(errors.InvalidArgument):
            await session.copies("q", most=most)
    assert session.statistics().held == 0


async def test_copies_of_more_than_a_session_keeps(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.broker.v010.session.MOST_UNCOMPLETED", 50)
    bodies = await filled(session, 1000)
    assert [copy.body for copy in await session.copies("q")] == bodies
