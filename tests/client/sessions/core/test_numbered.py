"""Sessions that publish under numbers: what one process has sent, another one does not publish again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from harebell import errors
from harebell.broker import Broker
from harebell.client.sessions import Connection, Session, connect
from harebell.client.sessions.core.numbered import NumberedCore, Run
from harebell.client.sessions.messages import transfer_command
from harebell.protocol.conversion.header_columns import encode_header_columns
from harebell.testing import FaultProxy
from tests.client.sessions.kit import FAST, drained, until

SECONDS = 20.0


def run(first: int, bodies: Sequence[bytes], queue: str = "q") -> Run:
    headers = encode_header_columns(len(bodies), "", queue, {}, {"delivery_mode": 2}, mandatory=True)
    return Run(first, transfer_command(""), headers, bodies)


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % number for number in range(low, high + 1)]


async def opened(connection: Connection, name: str = "n", *, force: bool = True) -> NumberedCore:
    core = connection.recovery.new_numbered(name, 300, force=force)
    await core.opened(SECONDS)
    return core


@pytest.fixture
async def queue(other: Session) -> str:
    await other.queue_declare("q", durable=True)
    return "q"


@pytest.fixture
async def second(broker: Broker) -> AsyncIterator[Connection]:
    """Another process's."""
    async with connect(broker.url, timeout=60, backoff=FAST) as connection:
        yield connection


async def test_what_one_has_published_the_next_does_not(
    connection: Connection, second: Connection, other: Session, queue: str
) -> None:
    first = await opened(connection)
    assert (first.resumed, first.granted, first.next) == (False, 300, 0)
    await first.put(run(0, numbers(0, 9)), SECONDS)
    await first.settled(0, SECONDS)
    next_one = await opened(second)
    assert (next_one.resumed, next_one.next) == (True, 10)
    assert next_one.executed.mark == 10
    with pytest.raises(errors.SessionDetached):
        await first.put(run(10, [b"late"]), SECONDS)
    await next_one.put(run(0, numbers(0, 9)), SECONDS)
    await next_one.put(run(10, numbers(10, 14)), SECONDS)
    await next_one.settled(0, SECONDS)
    assert next_one.pending == 0
    await next_one.detach(SECONDS, keep=True)
    third = await opened(connection)
    assert (third.resumed, third.next) == (True, 15)
    await third.detach(SECONDS, keep=False)
    assert await drained(other, "q") == numbers(0, 14)
    again = await opened(connection)
    assert not again.resumed
    again.hang_up(keep=False)


async def test_without_force_a_session_in_use_is_refused(connection: Connection, second: Connection) -> None:
    first = await opened(connection)
    with pytest.raises(errors.SessionDetached):
        await opened(second, force=False)
    await first.detach(SECONDS, keep=True)
    free = await opened(second, force=False)
    await free.detach(SECONDS, keep=False)


async def test_numbers_out_of_turn(connection: Connection, other: Session, queue: str) -> None:
    core = await opened(connection)
    with pytest.raises(errors.LocalProtocolError, match="0 comes first"):
        await core.put(run(1, [b"1"]), SECONDS)
    await core.gap(((0, 4),), SECONDS)
    await core.put(run(5, numbers(5, 6)), SECONDS)
    await core.put(run(7, numbers(7, 7)), SECONDS)
    await core.gap(((8, 8), (10, 11)), SECONDS)
    with pytest.raises(errors.LocalProtocolError, match="numbers at most"):
        await core.put(run(1 << 31, [b"x"]), SECONDS)
    await core.done(6, SECONDS)
    await core.settled(0, SECONDS)
    assert await drained(other, "q") == numbers(5, 7)
    await core.detach(SECONDS, keep=False)


async def test_rejections_are_heard_until_they_are_acted_on(
    connection: Connection, second: Connection, other: Session, queue: str
) -> None:
    first = await opened(connection)
    await first.put(run(0, numbers(0, 2)), SECONDS)
    await first.put(run(3, numbers(3, 4), "missing"), SECONDS)
    await first.settled(0, SECONDS)
    assert sorted(first.rejections) == [3, 4]
    assert isinstance(first.rejections[3].error(3, "", "missing"), errors.Unroutable)
    for count in (2, 1):
        core = await opened(second if count == 2 else connection)
        assert sorted(core.rejections) == [3, 4]
        assert core.executed.mark == 5
        core.acted_on(4 - (count == 2))
        await core.detach(SECONDS, keep=True)
    core = await opened(second)
    assert sorted(core.rejections) == [3, 4]  # one command had both, and each process acted on one of them
    core.acted_on(3)
    core.acted_on(4)
    await core.detach(SECONDS, keep=True)
    core = await opened(connection)
    assert core.rejections == {}
    await core.detach(SECONDS, keep=False)
    assert await drained(other, "q") == numbers(0, 2)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_once_over_lost_connections(
    connection: Connection, other: Session, proxy: FaultProxy, queue: str, direction: str
) -> None:
    core = await opened(connection)
    for number in range(40):
        if number % 4 == 1:
            proxy.cut_after(20 + 7 * number, direction)  # type: ignore[arg-type]
        await core.put(run(10 * number, numbers(10 * number, 10 * number + 9)), SECONDS)
        await core.settled(15, SECONDS)
    proxy.no_cut()
    await core.settled(0, SECONDS)
    await core.detach(SECONDS, keep=False)
    assert await drained(other, "q") == numbers(0, 399)
    assert core.tally()["reattached"] > 0


async def test_a_session_that_is_lost_says_so(
    connection: Connection, second: Connection, proxy: FaultProxy, queue: str
) -> None:
    core = await opened(connection)
    await core.put(run(0, numbers(0, 2)), SECONDS)
    await core.settled(0, SECONDS)
    harness = connection.test()
    harness.block_reconnect()
    harness.disconnect_transport()
    await second.recovery.end_elsewhere("n", SECONDS)
    harness.unblock_reconnect()
    with pytest.raises(errors.SessionStateLost):
        await core.put(run(3, [b"3"]), SECONDS)
    core.hang_up(keep=True)


async def test_another_has_gone_on_meanwhile(connection: Connection, second: Connection, queue: str) -> None:
    core = await opened(connection)
    await core.put(run(0, numbers(0, 2)), SECONDS)
    await core.settled(0, SECONDS)
    harness = connection.test()
    harness.block_reconnect()
    harness.disconnect_transport()
    later = await opened(second)
    await later.put(run(3, numbers(3, 5)), SECONDS)
    await later.settled(0, SECONDS)
    await later.detach(SECONDS, keep=True)
    harness.unblock_reconnect()
    with pytest.raises(errors.SessionStateLost, match="gone on"):
        await core.put(run(3, [b"other"]), SECONDS)


async def test_an_error_ends_it(connection: Connection, queue: str) -> None:
    core = await opened(connection)
    headers = encode_header_columns(1, "missing", "", {}, {})
    await core.put(Run(0, transfer_command("missing"), headers, [b"m"]), SECONDS)
    with pytest.raises(errors.NotFound):
        await core.settled(0, SECONDS)
    core.hang_up(keep=True)
    await core.detach(SECONDS, keep=True)


async def test_a_broker_that_is_away(connection: Connection, proxy: FaultProxy, queue: str) -> None:
    core = await opened(connection)
    with connection.test().reconnect_blocked():
        with pytest.raises(errors.DeadlineExceeded, match=r"held back: nothing from .* the connection is lost"):
            await core.put(run(0, [b"0"]), 0.05)
        with pytest.raises(errors.DeadlineExceeded):
            await core.detach(0.05, keep=True)
    await core.put(run(0, [b"0"]), SECONDS)
    await core.settled(0, SECONDS)
    leaving = asyncio.ensure_future(core.detach(SECONDS, keep=False))
    await until(lambda: leaving.done() or not core.attached or proxy.cut())
    await leaving
