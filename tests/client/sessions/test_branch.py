"""Branches of distributed transactions: the block, the outcomes, losses on the way."""

from __future__ import annotations

import asyncio

import pytest

from harebell import Publication, errors
from harebell.broker import Broker
from harebell.broker.operations.administration import administering
from harebell.client.sessions import Connection, Session, Xid
from harebell.testing import FaultProxy
from tests.client.sessions.kit import drained, until

X = Xid(b"transaction", b"branch")


async def move(session: Session, xid: Xid = X) -> None:
    """Take a message from in, and publish another one to out, in a branch."""
    async with session.branch(xid):
        delivery = await session.get("in")
        assert delivery is not None
        await session.publish(b"made of " + delivery.body, "", "out")
        delivery.accept()


@pytest.fixture
async def filled(session: Session) -> Session:
    for queue in ("in", "out"):
        await session.queue_declare(queue, durable=True)
    await session.publish(b"m", "", "in")
    return session


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_commit(filled: Session, other: Session, prepared: bool) -> None:
    await move(filled)
    assert await drained(other, "out") == []
    if prepared:
        await other.prepare(X)
        assert await filled.in_doubt() == [X]
    await other.commit(X, one_phase=not prepared)
    assert await other.in_doubt() == []
    assert await drained(other, "out") == [b"made of m"]
    assert await drained(other, "in") == []
    await filled.publish(b"at once", "", "out")
    assert await drained(other, "out") == [b"at once"]


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_rollback(filled: Session, other: Session, prepared: bool) -> None:
    await move(filled)
    if prepared:
        await other.prepare(X)
    await other.rollback(X)
    assert (await drained(other, "in"), await drained(other, "out")) == ([b"m"], [])


async def test_an_error_in_the_block_rolls_back(filled: Session, other: Session) -> None:
    with pytest.raises(KeyError):
        async with filled.branch(X):
            await filled.publish(b"never", "", "out")
            raise KeyError
    with pytest.raises(errors.TransactionRolledBack, match="a session that worked in it has failed"):
        await other.commit(X, one_phase=True)
    await move(filled)
    await other.commit(X, one_phase=True)
    assert await drained(other, "out") == [b"made of m"]


async def test_a_cancelled_block_rolls_back(filled: Session, other: Session) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with filled.branch(X):
            await filled.publish(b"never", "", "out")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await filled.sync()
    with pytest.raises(errors.TransactionRolledBack):
        await other.prepare(X)


async def test_two_sessions_in_one_branch(filled: Session, other: Session) -> None:
    await move(filled)
    async with other.branch(X, join=True):
        await other.publish(b"of the other", "", "out")
    await other.commit(X, one_phase=True)
    assert await drained(other, "out") == [b"made of m", b"of the other"]


async def test_what_cannot_be(filled: Session, other: Session) -> None:
    async with filled.branch(X):
        with pytest.raises(errors.LocalProtocolError, match="works in a branch already"):
            async with filled.branch(Xid(b"y")):
                pass
    with pytest.raises(errors.LocalProtocolError, match="has worked in a branch"):
        async with filled.transaction():
            pass
    async with other.transaction():
        pass
    with pytest.raises(errors.LocalProtocolError, match="is transactional"):
        async with other.branch(X):
            pass
    for xid in (Xid(b""), Xid(b"g" * 65), Xid(b"g", b"b" * 65)):
        with pytest.raises(errors.InvalidArgument, match="64"):
            await filled.prepare(xid)
    with pytest.raises(errors.NotFound):
        await filled.prepare(Xid(b"unknown"))


async def test_a_name_that_is_known(filled: Session, other: Session) -> None:
    await move(filled)
    with pytest.raises(errors.NotAllowed):
        async with other.branch(X):
            pass


async def test_a_timeout(filled: Session, other: Session) -> None:
    await move(filled)
    await other.set_branch_timeout(X, 1)
    async with other.consume("in") as returned:
        assert (await anext(returned)).body == b"m"
    with pytest.raises(errors.TransactionRolledBack, match="its timeout has passed"):
        await other.prepare(X)


async def test_a_mixed_outcome(filled: Session) -> None:
    await filled.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    async with filled.branch(X):
        await filled.publish_many(Publication(body, "", "full") for body in (b"1", b"2"))
    with pytest.raises(errors.TransactionMixed):
        await filled.commit(X, one_phase=True)
    assert await filled.in_doubt() == [X]
    await filled.forget_branch(X)
    assert await filled.in_doubt() == []


@pytest.mark.parametrize("octets", range(0, 700, 35))
async def test_a_cut_anywhere_changes_nothing(
    connection: Connection, proxy: FaultProxy, other: Session, octets: int
) -> None:
    async with connection.session("cut", timeout=60) as session:
        for queue in ("in", "out"):
            await session.queue_declare(queue, durable=True)
        await session.publish(b"m", "", "in")
        proxy.cut_after(octets, "to_server")
        await move(session)
        await session.prepare(X)
        await session.commit(X)
        proxy.no_cut()
        assert (await drained(other, "in"), await drained(other, "out")) == ([], [b"made of m"])


@pytest.mark.parametrize("commits", [True, False])
async def test_what_an_administrator_has_decided(
    broker: Broker, filled: Session, other: Session, commits: bool
) -> None:
    await move(filled)
    await filled.prepare(X)
    node, verb = broker.node, "commit" if commits else "roll-back"
    request = {"do": f"{verb}-transaction", "transaction": "1:transaction:branch", "vhost": "/"}
    node.batch.slices.run(administering(node, request))
    node.batch.end()
    await until(lambda: [each.state.value.partition(" by ")[1] for each in node.branches] == [" by "])
    with pytest.raises(errors.TransactionMixed if commits else errors.TransactionRolledBack, match="an administrator"):
        await (filled.rollback(X) if commits else filled.commit(X))
    assert await filled.in_doubt() == [X]
    await (filled.commit(X) if commits else filled.rollback(X))
    await filled.forget_branch(X)
    assert await drained(other, "out") == ([b"made of m"] if commits else [])
