"""What a test does to connections and sessions, and what their events say of it."""

from __future__ import annotations

import asyncio

import pytest

from harebell import errors, events as e
from harebell.client.messages import Publication
from harebell.client.sessions import Connection, Session, connect
from harebell.testing import FaultProxy
from tests.client.sessions.kit import FAST, drained


async def taken(events: e.Events, last: type[object]) -> list[e.Event]:
    """The events up to the first of that kind."""
    found: list[e.Event] = []
    async with asyncio.timeout(60):
        async for event in events:
            found.append(event)
            if isinstance(event, last):
                return found
    raise AssertionError(f"no {last}: {found}")


async def test_a_forced_reconnect(connection: Connection, session: Session) -> None:
    await session.queue_declare("q")
    events, harness = connection.events(), connection.test()
    assert harness.reconnection_count == 1
    await harness.force_reconnect()
    assert harness.reconnection_count == 2
    await session.publish(b"m", "", "q")
    kinds = [type(event) for event in await taken(events, e.Recovered)]
    assert kinds == [e.Reconnecting, e.Connecting, e.Open, e.Recovered]
    assert session.statistics().reattached == 1
    events.close()
    assert [event async for event in events] == []


async def test_an_outage_for_a_block(connection: Connection, session: Session) -> None:
    harness = connection.test()
    signal = harness.signal_on_reconnect()
    with harness.reconnect_blocked():
        assert connection.state == "reconnecting"
        assert not connection.is_open
        with pytest.raises(errors.DeadlineExceeded):
            await session.sync(timeout=0.05)
        with pytest.raises(AssertionError, match=r"no reconnect within 0\.05 s; the last error: .*the test cut"):
            await signal.wait(0.05)
    await signal.wait()
    await signal.wait()
    assert connection.is_open


async def test_a_reconnect_without_sessions(connection: Connection) -> None:
    await connection.test().force_reconnect()


async def test_a_connection_that_closes_does_not_reconnect(connection: Connection, proxy: FaultProxy) -> None:
    url = f"amqp://{proxy.host}:{proxy.port}"
    async with connect(url, backoff=None) as frail:
        events = frail.events()
        with pytest.raises(AssertionError, match="closed instead of reconnected"):
            await frail.test().force_reconnect()
        assert isinstance((await taken(events, e.Closed))[-1], e.Closed)
        assert [type(event) async for event in frail.events()] == [e.Closed]


async def test_a_lost_state(connection: Connection, session: Session) -> None:
    async with connection.session("neighbour") as neighbour:
        await neighbour.queue_declare("q")
        await session.publish(b"1", "", "q")
        events = connection.events()
        await session.test().lose_state()
        with pytest.raises(errors.SessionStateLost):
            await session.publish(b"2", "", "q")
        recovered = (await taken(events, e.Recovered))[-1]
        assert isinstance(recovered, e.Recovered)
        assert [(skip.entity, type(skip.error)) for skip in recovered.skipped] == [
            ("session 'test'", errors.SessionStateLost)
        ]
        await session.start_over()
        await session.publish(b"3", "", "q")
        assert await drained(neighbour, "q") == [b"1", b"3"]
        assert session.statistics().lost == 1


async def test_a_session_that_did_nothing_has_no_state_to_lose(connection: Connection) -> None:
    async with connection.session("idle") as session:
        with pytest.raises(AssertionError, match="'idle' has not lost its state"):
            await session.test().lose_state()


async def test_a_session_that_ends_is_an_event(connection: Connection) -> None:
    events = connection.events()
    async with connection.session("a"):
        pass
    async with connection.session("b") as session:
        with pytest.raises(errors.NotFound):
            await session.publish(b"", "no such exchange")
    ended = (await taken(events, e.SessionEnded))[-1]
    assert isinstance(ended, e.SessionEnded)
    assert (ended.name, type(ended.error)) == ("b", errors.NotFound)


async def test_statistics(connection: Connection, session: Session) -> None:
    await session.queue_declare("q")
    await session.queue_declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    await session.publish_many([Publication(b"%d" % number, "", "q") for number in range(6)])
    for queue, error in (("full", errors.Nacked), ("missing", errors.Unroutable)):
        with pytest.raises(error):
            await session.publish(b"", "", queue, mandatory=True)
    async with session.consume("q", window=5) as consumer:
        first, second, third = [await anext(consumer) for _ in range(3)]
        first.accept()
        second.release()
        third.reject()
        await session.sync()
        now = session.statistics()
        assert (now.published, now.refused, now.accepted, now.released, now.rejected) == (8, 2, 1, 1, 1)
        assert (now.delivered - 3, now.held, now.subscriptions) == (now.buffered, now.buffered, 1)
    async with connection.session() as other:
        await other.publish(b"", "", "q")
    total = connection.statistics()
    assert (total.published, total.sessions, total.reconnects, total.held, total.incomplete) == (9, 1, 0, 0, 0)
    async with connect(connection.parameters, backoff=FAST) as fresh:
        assert fresh.statistics().published == 0
