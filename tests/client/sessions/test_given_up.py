"""Calls that have a counterpart, given up at every await: each is undone once, and the session goes on."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import pytest

from harebell import errors
from harebell.client.sessions import Connection, Session, Xid
from harebell.client.sessions.calls import Sent, Waiting
from harebell.client.sessions.core.session import SessionCore
from harebell.protocol.v010 import commands as c
from harebell.protocol.v010.codec import decode_command
from harebell.testing import FaultProxy
from tests.client.outages import eventually
from tests.client.sessions.kit import until
from tests.client.sessions.test_consumer import filled
from tests.client.stepping import Moment, cancelled_at

MESSAGES: Final = 5
UNDOING: Final = (c.MessageSubscribe, c.MessageCancel, c.MessageAcquire, c.MessageRelease, c.TxRollback, c.DtxEnd)

Operation = Callable[[Session], Awaitable[None]]


async def consume(session: Session) -> None:
    async with session.consume("q", window=3) as consumer:
        async for delivery in consumer:
            delivery.release()
            break


async def iterate(session: Session) -> None:
    async for delivery in session.consume("q", window=3):
        delivery.release()
        break


async def browse(session: Session) -> None:
    async with session.browse("q", window=3) as consumer:
        await anext(consumer)


async def cancel_twice(session: Session) -> None:
    consumer = session.consume("q", window=3)
    await consumer.start()
    other = asyncio.ensure_future(consumer.cancel())
    await consumer.cancel()
    await other
    await consumer.cancel()


async def cancel_while_it_subscribes(session: Session) -> None:
    consumer = session.consume("q", window=3)
    starting = asyncio.ensure_future(consumer.start())
    await asyncio.sleep(0)
    try:
        await consumer.cancel()
    finally:
        await starting
        await consumer.cancel()


async def get(session: Session) -> None:
    delivery = await session.get("q")
    assert delivery is not None
    delivery.release()


async def copies(session: Session) -> None:
    assert len(await session.copies("q")) == MESSAGES


async def some_copies(session: Session) -> None:
    assert len(await session.copies("q", most=2)) == 2


async def acquire(session: Session) -> None:
    async with session.browse("q") as consumer:
        browsed = [await anext(consumer) for _ in range(MESSAGES)]
        for delivery in await session.acquire(browsed[::2]):  # three ranges
            delivery.release()


async def transaction(session: Session) -> None:
    async with session.transaction():
        await session.publish(b"m", "", "other")


async def failing_transaction(session: Session) -> None:
    with suppress(ZeroDivisionError):
        async with session.transaction():
            await session.publish(b"m", "", "other")
            raise ZeroDivisionError


async def branch(session: Session) -> None:
    xid = Xid(b"%d" % next(_numbers))
    async with session.branch(xid):
        await session.publish(b"m", "", "other")
    await session.rollback(xid)


async def failing_branch(session: Session) -> None:
    with suppress(ZeroDivisionError):
        async with session.branch(Xid(b"%d" % next(_numbers))):
            raise ZeroDivisionError


async def declare(session: Session) -> None:
    await session.queue_declare("temporary", exclusive=True)
    await session.queue_declare("temporary", exclusive=True)
    await session.queue_delete("temporary")


_numbers = iter(range(1 << 30))
OPERATIONS: Final[list[Operation]] = [
    consume, iterate, browse, cancel_twice, cancel_while_it_subscribes, get, copies, some_copies, acquire, transaction,
    failing_transaction, branch, failing_branch, declare,
]  # fmt: skip


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The commands that undo something, and what they undo: how often each was sent."""
    found: Counter[str] = Counter()
    issue = SessionCore.issue

    def issuing(core: SessionCore, command: Sent, waiting: Waiting | None = None) -> int:
        number = issue(core, command, waiting)
        decoded = decode_command(command.payload, 0)
        if isinstance(decoded, UNDOING):
            found[repr(decoded)] += 1
        return number

    monkeypatch.setattr(SessionCore, "issue", issuing)
    return found


async def usable(session: Session) -> None:
    """The session works as it did, and nothing that was given up is left in it."""
    if session.core.selected:
        async with session.transaction():
            await session.publish(b"m", "", "other")
    else:
        await session.publish(b"m", "", "other")

    async def whole() -> bool:
        gc.collect()  # the error of a cancelled task holds its frames; a consumer that is dropped cancels itself
        found = await session.queue_query("q")
        return found is not None and (found.consumer_count, found.message_count) == (0, MESSAGES)

    await eventually(whole)
    assert (session.core.deliveries.subscriptions, session.core.deliveries.held) == (0, 0)


@pytest.mark.parametrize("moment", ["waiting", "answered"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_at_every_await(
    session: Session, operation: Operation, moment: Moment, sent: Counter[str]
) -> None:
    await filled(session, MESSAGES)
    await session.queue_declare("other")
    at, cancelled = 1, True
    while cancelled:
        sent.clear()
        cancelled = await cancelled_at(operation(session), at, moment)  # type: ignore[arg-type]
        await usable(session)
        cancels = [count for command, count in sent.items() if "Cancel" in command or "Rollback" in command]
        assert max(cancels, default=1) == 1, sent
        await operation(session)
        await usable(session)
        at += 1
    assert at > 2


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("what", ["cancel", "copies", "acquire"])
async def test_the_deadline_passes(
    connection: Connection, session: Session, proxy: FaultProxy, what: str, lost: bool, sent: Counter[str]
) -> None:
    """In a connection that does not answer, and in one that is lost: then it is made up for at the next one."""
    await filled(session, MESSAGES)
    await session.queue_declare("other")
    consumer = session.browse("q") if what == "acquire" else session.consume("q")
    await consumer.start()
    await until(lambda: consumer.buffered == MESSAGES)
    browsed = [await anext(consumer) for _ in range(MESSAGES)] if what == "acquire" else []
    if what == "copies":
        await consumer.cancel()
    sent.clear()
    harness = connection.test()
    if lost:
        harness.block_reconnect()
        proxy.cut()
        await until(lambda: not session.is_attached)
    else:
        proxy.stall("to_client")
    with pytest.raises(errors.DeadlineExceeded):
        if what == "cancel":
            await consumer.cancel(timeout=0)
        elif what == "copies":
            await session.copies("q", timeout=0)
        else:
            await session.acquire(browsed, timeout=0)
    await asyncio.sleep(0)
    harness.unblock_reconnect()
    proxy.resume()
    await consumer.cancel()
    await usable(session)
    assert [count for command, count in sent.items() if "Cancel" in command] in ([1], [])


async def test_sessions_opened_and_closed(connection: Connection, session: Session) -> None:
    """Given up while it is attached, and while it is closed, by one task and by two."""

    async def one() -> None:
        async with connection.session("one") as opened:
            await opened.queue_declare("q")

    async def two() -> None:
        opened = await connection.session("two")
        other = asyncio.ensure_future(opened.close())
        try:
            await opened.close()
        finally:
            await other
        assert opened.is_closed

    async def failing() -> None:
        with suppress(ZeroDivisionError):
            async with connection.session("three"):
                raise ZeroDivisionError

    moments: tuple[Moment, ...] = ("waiting", "answered")
    for operation in (one, two, failing):
        for moment in moments:
            at, cancelled = 1, True
            while cancelled:
                cancelled = await cancelled_at(operation(), at, moment)
                await operation()  # its name is free again
                at += 1
    await session.sync()
    assert connection.statistics().sessions == 1
