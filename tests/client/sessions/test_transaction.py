"""Transactions of sessions: one unit, or nothing."""

from __future__ import annotations

import asyncio

import pytest

from harebell import errors
from harebell.client.sessions import Connection, Session
from harebell.testing import FaultProxy
from tests.client.sessions.kit import drained, until


async def test_a_commit_is_one_unit(session: Session, other: Session) -> None:
    for queue in ("in", "out"):
        await session.queue_declare(queue)
    await session.publish(b"m", "", "in")
    async with session.transaction():
        delivery = await session.get("in")
        assert delivery is not None
        await session.publish(b"made of m", "", "out")
        delivery.accept()
        assert await other.message_count("out") == 0
    assert await drained(other, "out") == [b"made of m"]
    assert await drained(other, "in") == []


async def test_an_error_rolls_back(session: Session, other: Session) -> None:
    await session.queue_declare("q")
    await session.publish(b"m", "", "q")
    delivery = await session.get("q")
    assert delivery is not None
    with pytest.raises(KeyError):
        async with session.transaction():
            await session.publish(b"never", "", "q")
            delivery.accept()
            raise KeyError
    assert await other.message_count("q") == 0
    async with session.transaction():
        delivery.accept()  # it is still the session's
    assert await drained(other, "q") == []


async def test_after_a_rollback_a_delivery_can_be_released(session: Session, other: Session) -> None:
    await session.queue_declare("q")
    await session.publish(b"m", "", "q")
    delivery = await session.get("q")
    assert delivery is not None
    with pytest.raises(KeyError):
        async with session.transaction():
            delivery.accept()
            raise KeyError
    delivery.release()
    await session.sync()
    assert await drained(other, "q") == [b"m"]


async def test_a_transactional_session_publishes_in_transactions_alone(session: Session) -> None:
    await session.queue_declare("q")
    async with session.transaction():
        await session.publish(b"m", "", "q")
        with pytest.raises(errors.LocalProtocolError, match="one at a time"):
            await session.transaction().__aenter__()
    with pytest.raises(errors.LocalProtocolError, match=r"inside session\.transaction"):
        await session.publish(b"m", "", "q")
    with pytest.raises(errors.LocalProtocolError):
        await session.publish_many([])
    delivery = await session.get("q")
    assert delivery is not None
    with pytest.raises(errors.LocalProtocolError):
        delivery.accept()
    delivery.release()
    await session.queue_purge("q")  # topology is not transacted


async def test_a_cancelled_transaction_is_rolled_back(session: Session, other: Session) -> None:
    await session.queue_declare("q")
    await session.publish(b"m", "", "q")
    begun = asyncio.Event()

    async def work() -> None:
        async with session.transaction():
            delivery = await session.get("q")
            assert delivery is not None
            delivery.accept()
            await session.publish(b"never", "", "q")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with session.transaction():
        await session.publish(b"next", "", "q")
    assert await drained(other, "q") == [b"next"]


async def test_a_commit_that_was_not_sent_is_rolled_back(session: Session, other: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")
    transaction = session.transaction(timeout=0.05)
    with pytest.raises(errors.DeadlineExceeded) as caught:
        async with transaction:
            await session.publish(b"never", "", "q")
            proxy.refuse()
            proxy.cut(reset=True)
            await until(lambda: not session.is_attached)
    assert caught.value.__notes__ == ["the transaction was rolled back"]
    proxy.accept()
    async with session.transaction():
        await session.publish(b"next", "", "q")
    assert await drained(other, "q") == [b"next"]


async def test_a_commit_that_was_sent_is_executed(session: Session, other: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")
    with pytest.raises(errors.DeadlineExceeded) as caught:
        async with session.transaction(timeout=0.05):
            await session.publish(b"late", "", "q")
            proxy.stall("to_server")
    assert caught.value.__notes__ == ["the commit is under way, and will be executed"]
    proxy.resume()
    await session.sync()
    assert await drained(other, "q") == [b"late"]


async def test_a_rollback_does_not_hide_the_error(session: Session, other: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")
    with pytest.raises(KeyError):
        async with session.transaction(timeout=0.05):
            await session.publish(b"never", "", "q")
            proxy.stall("to_server")
            raise KeyError
    proxy.resume()
    async with session.transaction():
        await session.publish(b"next", "", "q")
    assert await drained(other, "q") == [b"next"]


async def test_the_end_of_the_session_is_the_end_of_the_transaction(connection: Connection) -> None:
    async with connection.session() as session:
        with pytest.raises(errors.NotFound):
            async with session.transaction():
                await session.queue_purge("missing")
        with pytest.raises(errors.ChannelClosed):
            async with session.transaction():
                pass


async def test_the_loss_of_the_state_is_the_end_of_the_transaction(connection: Connection, proxy: FaultProxy) -> None:
    async with connection.session(timeout=0) as session:
        await session.queue_declare("q")
        with pytest.raises(errors.SessionStateLost):
            async with session.transaction():
                await session.publish(b"m", "", "q")
                proxy.cut(reset=True)
                await until(lambda: session.state_lost is not None)
        with pytest.raises(errors.SessionStateLost, match="transaction"):
            await session.start_over()
            async with session.transaction():
                await session.publish(b"m", "", "q")
                proxy.cut(reset=True)
                await until(lambda: session.state_lost is not None)
                await session.start_over()
        assert await session.message_count("q") == 0


async def test_what_needs_no_acceptance_belongs_to_no_transaction(connection: Connection) -> None:
    async with connection.session() as session:
        await session.queue_declare("q")
        async with session.transaction():
            await session.publish(b"m", "", "q")
        with pytest.raises(KeyError):
            async with session.transaction(), session.consume("q", no_ack=True) as consumer:
                assert (await anext(consumer)).body == b"m"
                raise KeyError
        assert await session.message_count("q") == 0
