"""The producer: its window, its outcomes, its end; against both brokers."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication
from harebell.client.patterns import producer as producer_module
from harebell.protocol.v091.fields import Table
from tests.client.outages import bodies, eventually


async def test_each_way_to_publish(connection: Connection, channel: Channel, queue: str) -> None:
    async with connection.producer(window=10) as producer:
        confirmation = await producer.publish(b"one", queue)
        assert (confirmation.publish_tag, confirmation.acked) == (1, True)
        pending = await producer.publish_soon(Message(b"two", message_id="2"), queue)
        assert (await pending).acked
        assert pending.done
        assert [c.acked for c in await producer.publish_many([Publication(b"three", "", queue)] * 25)] == [True] * 25
        assert producer.unconfirmed == 0
    assert await bodies(channel, queue) == [b"one", b"two", *[b"three"] * 25]
    assert producer.channel.is_closed


async def test_the_end_of_the_block_waits_for_confirms(connection: Connection, channel: Channel, queue: str) -> None:
    async with connection.producer(window=50) as producer:
        for n in range(300):
            await producer.publish_soon(b"%d" % n, queue)
            assert producer.unconfirmed <= 50
    assert producer.unconfirmed == 0
    assert await channel.message_count(queue) == 300
    assert await bodies(channel, queue) == [b"%d" % n for n in range(300)]


async def test_who_comes_when_the_window_is_full_waits_in_line(connection: Connection, queue: str) -> None:
    async with connection.producer(window=1) as producer:
        done: list[int] = []

        async def one(n: int) -> None:
            await producer.publish(b"%d" % n, queue)
            done.append(n)

        async with asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(one(n))
        assert done == list(range(20))


async def test_returns_belong_to_their_publication_whatever_its_id(
    connection: Connection, queue: str, name: str
) -> None:
    """Equal message ids, equal bodies: only the address tells them apart."""
    async with connection.producer(mandatory=True) as producer:
        same = Message(b"same", message_id="same")
        lost = await producer.publish_soon(same, f"{name}.nowhere")
        found = await producer.publish_soon(same, queue)
        lost_too = await producer.publish_soon(same, f"{name}.nowhere")
        assert (await found).acked
        for pending in (lost, lost_too):
            with pytest.raises(errors.Unroutable, match="312 NO_ROUTE"):
                await pending
        with pytest.raises(errors.Unroutable):
            await producer.publish(same, f"{name}.nowhere")
        assert (await producer.publish(same, f"{name}.nowhere", mandatory=False)).acked


async def test_each_item_of_many_has_its_outcome(
    connection: Connection, channel: Channel, queue: str, name: str
) -> None:
    publications = [Publication(b"%d" % n, "", queue if n % 3 else f"{name}.nowhere", True) for n in range(9)]

    async def source() -> AsyncIterator[Publication]:
        for publication in publications:
            yield publication

    async with connection.producer() as producer:
        with pytest.raises(errors.PublishesFailed, match="3 of 9 publications failed: 0: publication 1 to") as caught:
            await producer.publish_many(source())
        assert list(caught.value.failures) == [0, 3, 6]
        assert all(isinstance(error, errors.Unroutable) for error in caught.value.failures.values())
    assert len(await bodies(channel, queue)) == 6


async def test_a_refusal_nobody_awaits_is_told_at_the_end(
    connection: Connection, channel: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: Table = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.queue_declare(name, exclusive=False, arguments=arguments)
    producer = await connection.producer().start()
    first = await producer.publish_soon(b"1", name)
    assert (await first).acked
    for n in range(5):
        await producer.publish_soon(b"%d" % n, name)
    with pytest.raises(errors.PublishesFailed, match=r"5 of 6 publications failed: 1: .*; and 2 more") as caught:
        await producer.drain()
    assert isinstance(caught.value.failures[5], errors.Nacked)
    await producer.drain()  # told once
    monkeypatch.setattr(producer_module, "MAX_KEPT", 2)
    for n in range(5):
        await producer.publish_soon(b"%d" % n, name)
    with pytest.raises(errors.PublishesFailed, match="5 of 11 publications failed") as caught:
        await producer.drain()
    assert len(caught.value.failures) == 2
    late = await producer.publish_soon(b"x", name)
    with pytest.raises(errors.Nacked):
        await late
    await producer.close()
    await channel.queue_delete(name)


@pytest.mark.parametrize("policy", ["raise", "retry", "park"])
async def test_an_outage_on_the_way(connection: Connection, other: Channel, queue: str, policy: str) -> None:
    on_orphan = {"raise": "raise", "retry": "retry", "park": "park"}[policy]
    async with connection.producer(on_orphan=on_orphan) as producer:  # type: ignore[call-overload]
        pendings = [await producer.publish_soon(b"%d" % n, queue) for n in range(5)]
        connection.recovery.availability.transport.engine.data_to_send()  # cut before the broker has read any of it
        await connection.test().force_reconnect()
        if policy == "raise":
            for pending in pendings:
                with pytest.raises(errors.PublishOrphaned, match="may or may not have arrived"):
                    await pending
        else:
            confirmations = [await pending for pending in pendings]
            assert [c.orphaned for c in confirmations] == [policy == "park"] * 5
        if policy == "park":
            assert [p.message for _, p in producer.parked] == [b"%d" % n for n in range(5)]
        else:
            assert not producer.parked
        assert (await producer.publish(b"after", queue)).acked
    expected = [b"0", b"1", b"2", b"3", b"4"] if policy == "retry" else []
    assert await bodies(other, queue) == [*expected, b"after"]


async def test_publishing_waits_for_the_end_of_an_outage(connection: Connection, other: Channel, queue: str) -> None:
    async with connection.producer(timeout=60) as producer:
        with connection.test().reconnect_blocked():
            soon = asyncio.ensure_future(producer.publish_soon(b"soon", queue))
            now = asyncio.ensure_future(producer.publish(b"now", queue))
            await asyncio.sleep(0)
            with pytest.raises(errors.DeadlineExceeded):
                await producer.publish_soon(b"never", queue, timeout=0.01)
            with pytest.raises(errors.DeadlineExceeded):
                await producer.publish_many([Publication(b"never", "", queue)], timeout=0.01)
            assert not soon.done()
        await now
        await (await soon)
    assert sorted(await bodies(other, queue)) == [b"now", b"soon"]


async def test_orphans_wait_when_calls_do_not(broker_url: str, name: str) -> None:
    recovery = harebell.Recovery(backoff=harebell.Backoff(0, 0), calls="fail")
    async with harebell.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        await channel.queue_declare(name, durable=True)
        async with connection.producer(on_orphan="retry") as producer:
            pending = await producer.publish_soon(b"m", name)
            with connection.test().reconnect_blocked():
                await asyncio.sleep(0)
                assert not pending.done
                signal = connection.test().signal_on_reconnect()
            await signal.wait()
            assert (await pending).acked
        assert set(await bodies(channel, name)) == {b"m"}
        await channel.queue_delete(name)


async def test_the_end_of_the_connection_fails_what_is_under_way(broker_url: str, queue: str) -> None:
    connection = await harebell.connect(broker_url)
    producer = await connection.producer(on_orphan="retry").start()
    with connection.test().reconnect_blocked():
        waiting = asyncio.ensure_future(producer.publish(b"m", queue))
        await asyncio.sleep(0)
        await connection.close()
    with pytest.raises(errors.ChannelClosed):
        await waiting
    with pytest.raises(errors.ChannelClosed):
        await producer.publish_soon(b"m", queue)
    await producer.close()


async def test_an_error_in_the_block_still_drains(
    connection: Connection, channel: Channel, queue: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError):
        async with connection.producer() as producer:
            await producer.publish_soon(b"kept", queue)
            await producer.publish_soon(b"lost", f"{name}.nowhere", mandatory=True)
            raise KeyError("mine")
    assert "1 of 2 publications failed" in caplog.text
    assert await bodies(channel, queue) == [b"kept"]


async def test_who_is_cancelled_waits_for_no_confirm(connection: Connection, queue: str) -> None:
    async def publishing() -> None:
        async with connection.producer() as producer:
            await producer.publish_soon(b"m", queue)
            inside.set()
            await asyncio.Event().wait()

    inside = asyncio.Event()
    task = asyncio.ensure_future(publishing())
    await inside.wait()
    with connection.test().reconnect_blocked():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancelled_wait_for_room_lets_the_next_in(connection: Connection, queue: str) -> None:
    async with connection.producer(window=1) as producer:
        first = await producer.publish_soon(b"1", queue)
        waiting = [asyncio.ensure_future(producer.publish(b"%d" % n, queue)) for n in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await first
        assert (await waiting[1]).acked
        assert (await waiting[2]).acked
        assert waiting[0].cancelled()


async def test_an_outcome_may_be_awaited_by_several_and_by_none(connection: Connection, queue: str) -> None:
    async with connection.producer() as producer:
        pending = await producer.publish_soon(b"m", queue)

        async def confirmed() -> bool:
            return (await pending).acked

        impatient = asyncio.ensure_future(confirmed())
        await asyncio.sleep(0)
        impatient.cancel()
        assert [*await asyncio.gather(confirmed(), confirmed())] == [True, True]


async def test_a_codec_encodes_every_body(connection: Connection, channel: Channel, queue: str) -> None:
    async with connection.producer(codec=harebell.JSON()) as producer:
        await producer.publish({"a": 1}, queue)
        message: object = [1, 2]
        await producer.publish_many([Publication(message, "", queue)])  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument):
            await producer.publish(object(), queue)
    assert await bodies(channel, queue) == [b'{"a":1}', b"[1,2]"]


async def test_bad_arguments(connection: Connection) -> None:
    with pytest.raises(errors.InvalidArgument, match="window is 0"):
        connection.producer(window=0)
    with pytest.raises(errors.InvalidArgument, match="on_orphan"):
        await connection.producer(on_orphan="ignore").start()  # type: ignore[call-overload]
    with pytest.raises(errors.LocalProtocolError, match="not started"):
        await connection.producer().publish(b"")
    async with connection.producer() as producer:
        with pytest.raises(errors.InvalidArgument, match="not str"):
            await producer.publish_soon("text", "q")  # type: ignore[arg-type]
        assert producer.unconfirmed == 0


async def test_a_broker_that_blocks_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str | None] = []
    caplog.set_level(logging.INFO, "harebell.client")
    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_declare("q")
        async with connection.producer(on_blocked=told.append) as producer:
            broker.node.raise_alarm("memory")
            waiting = asyncio.ensure_future(producer.publish(b"1", "q"))  # a connection is told once it publishes
            await eventually(lambda: _is(lambda: bool(told)))
            with pytest.raises(errors.DeadlineExceeded, match="takes no publishes now"):
                await producer.publish_soon(b"3", "q", timeout=0.01)
            assert not waiting.done()
            broker.node.clear_alarm("memory")
            assert (await waiting).acked
            await eventually(lambda: _is(lambda: len(told) == 2))
    assert told[0] is not None
    assert told[1] is None
    assert "publishing waits" in caplog.text
    assert "publishing goes on" in caplog.text


async def _is(holds: object) -> bool:
    await asyncio.sleep(0)
    assert callable(holds)
    return bool(holds())


async def dropped(connection: Connection, nowhere: str) -> None:
    producer = await connection.producer().start()
    await producer.publish_soon(b"1", nowhere)
    await eventually(lambda: _is(lambda: producer.unconfirmed == 0))


async def test_a_producer_that_is_dropped_has_its_failures_in_the_log(
    broker_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with harebell.connect(broker_url, timeout=60) as connection:
        await dropped(connection, f"{name}.nowhere")
        gc.collect()
        await asyncio.sleep(0)
        assert not caplog.records
    await eventually(lambda: _is(lambda: "1 failures were not told" in caplog.text))
    assert "destroyed" not in caplog.text


async def test_a_source_that_fails_leaves_nothing_untold(connection: Connection, queue: str, name: str) -> None:
    def source() -> Iterator[Publication]:
        yield Publication(b"1", "", f"{name}.nowhere", True)
        yield Publication(b"2", "", queue)
        raise LookupError("the source")

    async with connection.producer() as producer:
        with pytest.raises(LookupError, match="the source"):
            await producer.publish_many(source())
        with pytest.raises(errors.PublishesFailed, match="1 of 2 publications failed: 0: "):
            await producer.drain()
        failed = await producer.publish_soon(b"3", f"{name}.nowhere", mandatory=True)
        with pytest.raises(LookupError):
            await producer.publish_many(source())
        with pytest.raises(errors.Unroutable):
            await failed
        with pytest.raises(errors.PublishesFailed, match="1 of 5"):
            await producer.drain()


async def test_the_end_of_the_connection_ends_what_waits_to_be_sent_again(broker_url: str, queue: str) -> None:
    connection = await harebell.connect(broker_url)
    producer = await connection.producer(on_orphan="retry").start()
    pending = await producer.publish_soon(b"m", queue)
    with connection.test().reconnect_blocked():
        with pytest.raises(errors.DeadlineExceeded, match=r"1 publications were not confirmed .* reconnecting"):
            await producer.drain(timeout=0.01)
        await connection.close()
    with pytest.raises(errors.PublishOrphaned, match="closed by this client"):
        await pending
    await producer.close()


async def test_who_is_cancelled_when_its_turn_has_come(connection: Connection, queue: str) -> None:
    async with connection.producer(window=1) as producer:
        await producer.publish_soon(b"1", queue)
        waiting = [asyncio.ensure_future(producer.publish(b"%d" % n, queue)) for n in range(2)]
        await asyncio.sleep(0)
        producer._window = 2
        producer._wake()  # the first one is to go on in the next turn of the loop
        waiting[0].cancel()
        assert (await waiting[1]).acked


async def test_a_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(reason: str | None) -> None:
        raise RuntimeError("mine")

    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_declare("q")
        async with connection.producer(on_blocked=fail) as producer:
            broker.node.raise_alarm("memory")
            waiting = asyncio.ensure_future(producer.publish(b"1", "q"))
            await eventually(lambda: _is(lambda: "on_blocked failed" in caplog.text))
            broker.node.clear_alarm("memory")
            assert (await waiting).acked
