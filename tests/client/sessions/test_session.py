"""A session: publishing, topology, errors, deadlines, the loss of its state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.client.sessions import Connection, Session, connect
from harebell.testing import EmbeddedBroker, FaultProxy
from tests.client.sessions.kit import FAST, drained, until


async def test_publish_returns_when_it_is_in_the_queue(session: Session, other: Session) -> None:
    await session.queue_declare("q")
    await session.publish(b"one", "", "q")
    assert await other.message_count("q") == 1
    assert await drained(other, "q") == [b"one"]
    assert session.incomplete == 0


async def test_properties_both_ways(session: Session) -> None:
    await session.queue_declare("q")
    message = Message(
        b"m",
        content_type="a/b",
        headers={"n": 5},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        message_id="order 7",
    )
    await session.publish(message, "", "q")
    delivery = await session.get("q")
    assert delivery is not None
    assert delivery.properties == message.properties
    assert (delivery.headers, delivery.body_size) == ({"n": 5}, 1)
    assert (delivery.exchange, delivery.routing_key, delivery.redelivered) == ("", "q", False)
    assert delivery.message_properties.content_type == "a/b"
    assert delivery.delivery_properties.priority == 3
    assert "order 7" not in repr(delivery)
    assert "b'm'" in repr(delivery)


async def test_a_large_message_in_many_frames(session: Session) -> None:
    await session.queue_declare("q")
    body = bytes(range(256)) * 1000
    await session.publish(body, "", "q")
    assert await drained(session, "q") == [body]


async def test_unroutable(session: Session) -> None:
    await session.publish(b"dropped", "", "nowhere")
    with pytest.raises(errors.Unroutable, match="nowhere"):
        await session.publish(b"back", "", "nowhere", mandatory=True)
    assert not session.is_closed


async def test_a_full_queue_refuses(session: Session) -> None:
    await session.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await session.publish(b"in", "", "q")
    with pytest.raises(errors.Nacked, match="full") as caught:
        await session.publish(b"out", "", "q")
    assert len(caught.value.publish_tags) == 1


async def test_publish_many(session: Session) -> None:
    await session.queue_declare("q")
    bodies = [b"%d" % number for number in range(600)]
    assert await session.publish_many([Publication(body, "", "q") for body in bodies], window=10) == 600

    async def source() -> AsyncIterator[Publication]:
        for body in bodies:
            yield Publication(body, "", "q")

    assert await session.publish_many(source()) == 600
    assert await drained(session, "q") == bodies + bodies


async def test_publish_many_says_which_failed(session: Session) -> None:
    await session.queue_declare("q")
    publications = [Publication(b"%d" % number, "", "q" if number % 3 else "nowhere", True) for number in range(9)]
    with pytest.raises(errors.PublishesFailed) as caught:
        await session.publish_many(publications, window=2)
    assert sorted(caught.value.failures) == [0, 3, 6]
    assert all(isinstance(error, errors.Unroutable) for error in caught.value.failures.values())
    assert await session.message_count("q") == 6


async def test_what_cannot_be_published(session: Session) -> None:
    with pytest.raises(errors.InvalidArgument, match="Message"):
        await session.publish("text", "", "q")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="expiration"):
        await session.publish(Message(b"", expiration="soon"), "", "q")
    with pytest.raises(errors.LocalProtocolError):
        await session.publish(b"", "", "k" * 300)
    with pytest.raises(errors.InvalidArgument, match="window"):
        await session.publish_many([], window=0)
    assert (session.incomplete, session.is_closed) == (0, False)


async def test_publications_of_many_tasks(session: Session) -> None:
    await session.queue_declare("q")
    bodies = [b"%d" % number for number in range(500)]
    await asyncio.gather(*[session.publish(body, "", "q") for body in bodies])
    assert await drained(session, "q") == bodies


# -- topology -----------------------------------------------------------------------------------------------------


async def test_queues(session: Session) -> None:
    await session.queue_declare("q", durable=True, alternate_exchange="amq.fanout", arguments={"x-max-length": 5})
    found = await session.queue_query("q")
    assert found is not None
    assert (found.name, found.durable, found.message_count, found.consumer_count) == ("q", True, 0, 0)
    assert found.alternate_exchange == "amq.fanout"
    assert found.arguments["x-max-length"] == 5
    await session.queue_declare("q", passive=True)
    await session.publish(b"1", "", "q")
    await session.queue_purge("q")
    assert await session.message_count("q") == 0
    await session.queue_delete("q", if_empty=True, if_unused=True)
    assert await session.queue_query("q") is None
    with pytest.raises(errors.NotFound):
        await session.message_count("q")
    assert not session.is_closed


async def test_exchanges_and_bindings(session: Session) -> None:
    await session.exchange_declare("x", "topic", alternate_exchange="amq.direct")
    found = await session.exchange_query("x")
    assert found is not None
    assert (found.type, found.durable) == ("topic", False)
    await session.queue_declare("q")
    assert not await session.bound("x", "q")
    await session.queue_bind("q", "x", "a.*")
    assert await session.bound("x")
    assert await session.bound("x", "q", "a.*")
    assert not await session.bound("x", "q", "b.*")
    await session.publish(b"1", "x", "a.b")
    assert await session.message_count("q") == 1
    await session.queue_unbind("q", "x", "a.*")
    assert not await session.bound("x", "q")
    await session.queue_bind("q", "amq.headers", "h", arguments={"x-match": "all", "n": 1})
    assert await session.bound("amq.headers", "q", arguments={"x-match": "all", "n": 1})
    await session.exchange_delete("x", if_unused=True)
    assert await session.exchange_query("x") is None


async def test_an_exclusive_queue_is_the_sessions_own_over_a_loss(
    session: Session, other: Session, proxy: FaultProxy
) -> None:
    await session.queue_declare("q", exclusive=True, auto_delete=True)
    proxy.cut()
    await session.queue_declare("q", passive=True)
    with pytest.raises(errors.ResourceLocked):
        await other.queue_purge("q")


# -- errors -------------------------------------------------------------------------------------------------------


async def test_an_error_ends_its_session_alone(connection: Connection, session: Session) -> None:
    async with connection.session() as second:
        waiting = asyncio.ensure_future(second.consume("missing").start())
        with pytest.raises(errors.NotFound, match="missing") as caught:
            await waiting
        assert (caught.value.reply_code, caught.value.class_id, caught.value.method_id) == (404, 4, 7)
        assert "message.subscribe" in caught.value.__notes__[0]
        assert second.is_closed
        assert isinstance(second.closed_reason, errors.NotFound)
        with pytest.raises(errors.ChannelClosed, match="missing"):
            await second.sync()
        assert "closed" in repr(second)
    await session.sync()
    assert "attached" in repr(session)


async def test_all_that_waits_fails_with_the_session(connection: Connection) -> None:
    async with connection.session() as session:
        calls = [session.queue_purge("missing"), session.sync(), session.publish(b"", "", "q")]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [errors.NotFound] * 3
        assert len({id(result) for result in results}) == 3


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [("amq.own", 530, errors.NotAllowed), ("", 531, errors.IllegalArgument)],
)
async def test_codes(connection: Connection, name: str, code: int, kind: type[errors.AmqpError]) -> None:
    async with connection.session() as session:
        with pytest.raises(kind) as caught:
            await session.queue_declare(name)
        assert caught.value.reply_code == code


# -- deadlines and cancelling -------------------------------------------------------------------------------------


async def test_after_its_deadline_a_publication_still_comes_once(
    session: Session, other: Session, proxy: FaultProxy
) -> None:
    await session.queue_declare("q")
    with proxy.stalled("to_server"):
        with pytest.raises(errors.DeadlineExceeded, match=r"message\.transfer"):
            await session.publish(b"late", "", "q", timeout=0.05)
        assert session.incomplete == 1
    await session.sync()
    assert await drained(other, "q") == [b"late"]


async def test_a_cancelled_publication_still_comes_once(session: Session, other: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")
    with proxy.stalled("to_server"):
        task = asyncio.ensure_future(session.publish(b"late", "", "q"))
        await until(lambda: session.incomplete)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.cut()
    await session.sync()
    assert await drained(other, "q") == [b"late"]


async def test_calls_wait_for_a_connection_in_their_order(session: Session, proxy: FaultProxy) -> None:
    await session.queue_declare("q")
    proxy.refuse()
    proxy.cut(reset=True)
    bodies = [b"%d" % number for number in range(100)]
    tasks = [asyncio.ensure_future(session.publish(body, "", "q")) for body in bodies]
    with pytest.raises(errors.DeadlineExceeded):
        await session.publish(b"impatient", "", "q", timeout=0.05)
    cancelled = asyncio.ensure_future(session.publish(b"cancelled", "", "q"))
    await asyncio.sleep(0)
    cancelled.cancel()
    proxy.accept()
    await asyncio.gather(*tasks)
    found = await drained(session, "q")
    assert [body for body in found if body not in (b"impatient", b"cancelled")] == bodies


# -- the loss of the state ----------------------------------------------------------------------------------------


async def test_the_loss_of_the_state_is_told(connection: Connection, other: Session, proxy: FaultProxy) -> None:
    async with connection.session(timeout=0) as session:
        await session.queue_declare("q")
        await session.publish(b"held", "", "q")
        async with session.consume("q") as consumer:
            delivery = await anext(consumer)
            with proxy.stalled("to_server"):
                lost = asyncio.ensure_future(session.publish(b"unknown", "", "q"))
                await until(lambda: session.incomplete == 1)
                proxy.cut(reset=True)
            with pytest.raises(errors.SessionStateLost) as caught:
                await lost
            assert (caught.value.unknown, caught.value.deliveries) == (1, 1)
            assert session.state_lost is not None
            with pytest.raises(errors.SessionStateLost):
                await anext(consumer)
            with pytest.raises(errors.SessionStateLost):
                delivery.accept()
            with pytest.raises(errors.SessionStateLost, match="start_over"):
                await session.sync()
            await session.start_over()
            assert session.state_lost is None
            with pytest.raises(errors.SessionStateLost):
                delivery.accept()  # of the lost state
        with pytest.raises(errors.LocalProtocolError):
            await session.start_over()
        again = await session.get("q")
        assert again is not None
        assert (again.body, again.redelivered) == (b"held", True)
        again.accept()
        await session.publish(b"after", "", "q")
    assert (await drained(other, "q"))[-1] == b"after"


async def test_a_session_that_is_left_without_its_state_says_so(connection: Connection, proxy: FaultProxy) -> None:
    with pytest.raises(errors.SessionStateLost):
        async with connection.session(timeout=0) as session:
            await session.queue_declare("q")
            proxy.cut(reset=True)
            await until(lambda: session.state_lost is not None)
    assert session.is_closed


async def test_a_restart_of_the_broker_loses_the_state() -> None:
    with EmbeddedBroker() as server:
        async with connect(server.url, timeout=60, backoff=FAST) as connection:
            async with connection.session() as session:
                await session.queue_declare("q")
                await asyncio.to_thread(server.restart)
                with pytest.raises(errors.SessionStateLost):
                    while True:
                        await session.sync()
                await session.start_over()
                assert await session.queue_query("q") is None
