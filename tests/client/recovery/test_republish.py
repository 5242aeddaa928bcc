"""What is published again: in its order and before what is new, alone where it may be at fault, never without doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Confirmation, Message, OnOrphan, Publication
from harebell.client.recovery import republish
from harebell.client.recovery.policy import Backoff
from harebell.protocol.v091 import Content, methods as m
from harebell.testing import FaultProxy
from tests.client.outages import FAST, bodies, eventually, next_of
from tests.client.publications.relay import Relay
from tests.client.publications.ways import until
from tests.client.scripted import Peer, scripted


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republish, "NACKED", Backoff(0.001, 0.01))


class Later(Backoff):
    """Pauses that outlast the test."""

    def delay(self, attempt: int) -> float:
        return 600.0


@asynccontextmanager
async def relayed(url: str) -> AsyncIterator[tuple[Relay, FaultProxy, Connection]]:
    at = urlsplit(url)
    async with (
        Relay(at.hostname or "", at.port or 0) as relay,
        FaultProxy("127.0.0.1", relay.port) as proxy,
        harebell.connect(f"amqp://guest:guest@{proxy.host}:{proxy.port}/", timeout=60, recovery=FAST) as connection,
    ):
        yield relay, proxy, connection


@pytest.fixture
async def other(harebell_url: str) -> AsyncIterator[Channel]:
    async with harebell.connect(harebell_url, timeout=60) as connection, connection.channel() as channel:
        yield channel


async def arrived(other: Channel, queue: str, count: int) -> None:
    async def are() -> bool:
        return await other.message_count(queue) >= count

    await eventually(are)


async def test_in_its_order_and_before_what_is_new(harebell_url: str, other: Channel, name: str) -> None:
    """What did not arrive arrives as if nothing had happened; every way to publish waits for it."""
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        confirmations = channel.confirmations()
        count = republish.CHUNK + 10
        for n in range(count):
            channel.publish_nowait(b"%d" % n, "", name)
        sent = await channel.send(b"%d" % count, "", name)
        channel.transport.engine.data_to_send()  # none of it is written
        with connection.test().reconnect_blocked():
            new = asyncio.ensure_future(channel.publish(b"%d" % (count + 2), "", name))
            many = asyncio.ensure_future(
                channel.publish_many([Publication(b"%d" % n, "", name) for n in range(count + 3, count + 6)])
            )
            channel_of_its_own = await _waits(channel)
            assert not channel_of_its_own
        assert (await anext(confirmations)).publish_tag == sent
        confirmation = await new
        assert confirmation is not None
        assert confirmation.publish_tag > sent
        assert await many == 3
        found = [int(body) for body in await bodies(other, name)]
        assert found == [*range(count + 1), *range(count + 2, count + 6)]
        await other.queue_delete(name)


async def _waits(channel: Channel) -> bool:
    await asyncio.sleep(0)
    return channel.may_publish


async def test_a_second_loss_on_the_way_keeps_the_order(harebell_url: str, other: Channel, name: str) -> None:
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        for n in range(20):
            channel.publish_nowait(b"%d" % n, "", name)
        for _ in range(3):
            channel.transport.engine.data_to_send()
            await connection.test().force_reconnect()
        await channel.publish(b"20", "", name)
        found = [int(body) for body in await bodies(other, name)]
        assert sorted(set(found)) == list(range(21))
        assert found == sorted(found) or len(found) > 21  # what arrived twice may stand between
        await other.queue_delete(name)


async def test_what_may_be_at_fault_is_published_again_alone(harebell_url: str, other: Channel, name: str) -> None:
    """The innocent go through; one of those at fault is refused alone, and so the others need not be tried."""
    async with relayed(harebell_url) as (relay, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        relay.withholding = True
        to = [name, f"{name}.missing", name, f"{name}.missing", f"{name}.missing", name]
        calls = [
            asyncio.ensure_future(channel.publish(b"%d" % n, "" if key == name else key, key))
            for n, key in enumerate(to)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for key, result in zip(to, results, strict=True):
            if key == name:
                assert isinstance(result, Confirmation), result
                assert result.acked
            else:
                assert isinstance(result, errors.PublishOrphaned), result
                assert isinstance(result.__cause__, errors.NotFound)
        assert channel.test().reconnection_count == 3  # the fault, and one of them alone
        assert set(await bodies(other, name)) == {b"0", b"2", b"5"}
        await other.queue_delete(name)


async def test_the_broker_may_not_say_which(harebell_url: str, other: Channel, name: str) -> None:
    """An expiration that is no number: the text names no exchange, and each is tried alone."""
    async with relayed(harebell_url) as (relay, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        relay.withholding = True
        messages = [Message(b"0"), Message(b"1"), Message(b"2", expiration="soon"), Message(b"3")]
        calls = [asyncio.ensure_future(channel.publish(message, "", name)) for message in messages]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [
            Confirmation, Confirmation, errors.PublishOrphaned, Confirmation,
        ]  # fmt: skip
        assert set(await bodies(other, name)) == {b"0", b"1", b"3"}
        await other.queue_delete(name)


async def test_one_that_costs_the_connection_is_given_up(harebell_url: str, other: Channel, name: str) -> None:
    """Malformed properties: the broker closes the connection, and would do so for ever."""
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        heard: asyncio.Queue[Confirmation] = asyncio.Queue()
        channel.notify_publish(heard.put_nowait)
        tag = channel.publish_nowait(b"bad", "", name, raw_properties=b"\x80\x00\xff")
        end = await heard.get()
        assert (end.publish_tag, end.orphaned) == (tag, True)
        assert connection.test().reconnection_count <= 1 + republish.MOST_STRIKES
        assert (await channel.publish(b"good", "", name)) is not None
        assert await bodies(other, name) == [b"good"]
        await other.queue_delete(name)


@pytest.mark.parametrize("answer", ["nacked", "returned", "refused"])
async def test_no_later_answer_takes_the_doubt_away(harebell_url: str, other: Channel, name: str, answer: str) -> None:
    """The first attempt has arrived, and was not confirmed; the second is not accepted."""
    async with relayed(harebell_url) as (relay, proxy, connection), connection.channel() as channel:
        await other.exchange_declare(name, "fanout")
        await other.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await other.queue_bind(name, name)
        await channel.confirm_select(on_orphan="retry")
        relay.withholding = True
        call = asyncio.ensure_future(channel.publish(b"m", name, mandatory=True))
        await arrived(other, name, 1)
        if answer == "returned":
            await other.queue_unbind(name, name)
        elif answer == "refused":
            await other.exchange_delete(name)
        relay.withholding = False
        proxy.cut()
        with pytest.raises(errors.PublishOrphaned) as caught:
            await call
        assert type(caught.value.__cause__) is {
            "nacked": errors.Nacked, "returned": errors.Unroutable, "refused": errors.NotFound,
        }[answer]  # fmt: skip
        assert await bodies(other, name) == [b"m"]
        await other.queue_delete(name)
        await other.exchange_delete(name)


async def test_who_gives_up_is_not_published_again(harebell_url: str, other: Channel, name: str) -> None:
    async with relayed(harebell_url) as (relay, _, connection), connection.channel() as channel:
        await other.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        heard: list[Confirmation] = []
        channel.notify_publish(heard.append)
        relay.withholding = True
        cancelled = asyncio.ensure_future(channel.publish(b"cancelled", "", name))
        late = asyncio.ensure_future(channel.publish(b"late", "", name, timeout=0.2))
        many = asyncio.ensure_future(channel.publish_many([Publication(b"many", "", name)], timeout=0.2))
        await arrived(other, name, 3)
        relay.withholding = False
        with connection.test().reconnect_blocked():
            cancelled.cancel()
            for call in (late, many):
                with pytest.raises(errors.ConfirmTimeout):
                    await call
        await channel.publish(b"next", "", name)
        assert sorted(await bodies(other, name)) == [b"cancelled", b"late", b"many", b"next"]
        assert sorted((c.publish_tag, c.orphaned) for c in heard) == [(1, True), (2, True), (3, True), (4, False)]
        await other.queue_delete(name)


async def test_what_is_nacked_waits_and_goes_through(harebell_url: str, other: Channel, name: str) -> None:
    await other.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    async with (
        relayed(harebell_url) as (_, _, connection),
        connection.producer(on_orphan="retry", on_nack="retry") as producer,
    ):
        await producer.publish(b"0", name)
        pending = [await producer.publish_soon(b"%d" % n, name) for n in range(1, 4)]
        with pytest.raises(errors.DeadlineExceeded):
            await producer.drain(timeout=0.05)
        await connection.test().force_reconnect()
        found: set[bytes] = set()
        while len(found) < 4:
            found |= set(await bodies(other, name))
        assert all([(await one).acked for one in pending])
    await other.queue_delete(name)


async def nacking(peer: Peer, number: int) -> list[bytes]:
    """Nack what is published until the client closes the channel; the bodies, in their order."""
    bodies: list[bytes] = []
    while True:
        _, event = await peer.next()
        if isinstance(event, m.ChannelClose):
            peer.send(number, m.ChannelCloseOk())
            return bodies
        assert isinstance(event, Content)
        bodies.append(bytes(event.body))
        peer.send(number, m.BasicNack(len(bodies)))


async def acking(peer: Peer, number: int, count: int) -> list[bytes]:
    """Ack so many; their bodies."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        bodies.append(bytes((await peer.expect(Content)).body))
        peer.send(number, m.BasicAck(len(bodies)))
    return bodies


async def test_another_wire_channel_for_what_is_nacked_again_and_again() -> None:
    """RabbitMQ 3.10 nacks for ever on a channel that published while the leader of a quorum queue died."""
    seen: list[list[bytes]] = []

    async def script(peer: Peer) -> None:
        await peer.handshake()
        seen.append(await nacking(peer, await peer.confirming()))
        seen.append(await nacking(peer, await peer.confirming()))
        seen.append(await acking(peer, await peer.confirming(), 4))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=FAST) as connection:
        events = connection.events()
        async with connection.producer(on_nack="retry") as producer:
            calls = [asyncio.ensure_future(producer.publish(b"%d" % n, "q")) for n in range(3)]
            for _ in range(2):
                assert "nacked again and again" in str((await next_of(events, e.ChannelReopened)).error)
            calls.append(asyncio.ensure_future(producer.publish(b"3", "q")))
            assert [(await call).publish_tag for call in calls][:3] == [1, 2, 3]
            assert producer.channel.statistics().orphaned == 0
    for patience, nacked in zip((republish.PATIENCE, republish.PATIENCE + 1), seen, strict=False):
        assert max(nacked.count(body) for body in nacked) >= patience
    assert set(seen[2]) == {b"0", b"1", b"2", b"3"}


@pytest.mark.parametrize("on_orphan", ["raise", "retry"])
async def test_no_answer_is_lost_for_another_wire_channel(monkeypatch: pytest.MonkeyPatch, on_orphan: OnOrphan) -> None:
    """One under way without an answer would be orphaned: only with on_orphan="retry" the channel is opened again."""
    monkeypatch.setattr(republish, "ANSWERS", 0.05)

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        assert (await peer.expect(Content)).body == b"slow"
        if on_orphan == "retry":
            tag = 1
            while isinstance(event := (await peer.next())[1], Content):
                tag += 1
                peer.send(number, m.BasicNack(tag))
            assert isinstance(event, m.ChannelClose)
            peer.send(number, m.ChannelCloseOk())
            assert await acking(peer, await peer.confirming(), 2) == [b"slow", b"nacked"]
        else:
            for tag in range(2, 3 * republish.MOST_PATIENCE):
                assert (await peer.expect(Content)).body == b"nacked"
                peer.send(number, m.BasicNack(tag))
            await peer.expect(Content)
            peer.send(number, m.BasicAck(tag + 1, multiple=True))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=FAST) as connection:
        async with connection.channel() as channel:
            await channel.confirm_select(on_orphan=on_orphan, on_nack="retry")
            calls = [asyncio.ensure_future(channel.publish(body, "", "q")) for body in (b"slow", b"nacked")]
            told = [await call for call in calls]
            assert all(confirmation is not None and confirmation.acked for confirmation in told)


async def test_a_channel_that_consumes_keeps_its_wire_channel(
    harebell_url: str, other: Channel, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its deliveries would come a second time; the log says what helps."""
    await other.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await channel.confirm_select(on_nack="retry")
        await channel.publish(b"first", "", name)
        delivery = await channel.get(name)
        assert delivery is not None
        await channel.publish(b"second", "", name)
        call = asyncio.ensure_future(channel.publish(b"third", "", name))
        await until(lambda: "publish on a channel of its own" in caplog.text)
        delivery.ack()
        assert b"second" in await bodies(other, name)
        confirmation = await call
        assert confirmation is not None
        assert confirmation.acked
        assert channel.statistics().reopened == 0
    await other.queue_delete(name)


async def test_a_close_between_two_attempts_that_were_nacked(
    harebell_url: str, other: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told Nacked: no attempt may have arrived."""
    monkeypatch.setattr(republish, "NACKED", Later())
    await other.queue_declare(name, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await channel.confirm_select(on_nack="retry")
        call = asyncio.ensure_future(channel.publish(b"m", "", name))
        with pytest.raises(errors.ConfirmTimeout):
            await channel.publish(b"late", "", name, timeout=0.1)
        await until(lambda: channel.statistics().nacked == 2)
        await channel.close()
        with pytest.raises(errors.Nacked) as caught:
            await call
        assert type(caught.value) is errors.Nacked
    await other.queue_delete(name)


async def test_a_close_with_an_attempt_on_the_wire(harebell_url: str, other: Channel, name: str) -> None:
    """It is told PublishOrphaned: those before were nacked, and this one has no answer."""
    await other.queue_declare(name, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    async with relayed(harebell_url) as (relay, _, connection), connection.channel() as channel:
        await channel.confirm_select(on_nack="retry")
        call = asyncio.ensure_future(channel.publish(b"m", "", name))
        await until(lambda: channel.statistics().nacked > 0)
        relay.withholding = True
        await until(lambda: relay.withheld > 0)
        await channel.close()
        with pytest.raises(errors.PublishOrphaned) as caught:
            await call
        assert isinstance(caught.value.__cause__, errors.ChannelClosed)
    await other.queue_delete(name)


async def test_set_aside_with_all_that_it_had(
    harebell_url: str, other: Channel, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with relayed(harebell_url) as (_, _, connection), connection.channel() as channel:
        await channel.confirm_select(on_orphan="park")
        channel.publish_nowait(Message(b"1", message_id="7"), "amq.fanout", "k", mandatory=True)
        channel.publish_nowait(b"2", "amq.fanout", raw_properties=b"\x80\x00\xff")
        channel.transport.engine.data_to_send()
        await connection.test().force_reconnect()
        (tag, first), (_, second) = channel.parked
        assert (tag, first.exchange, first.routing_key, first.mandatory) == (1, "amq.fanout", "k", True)
        assert isinstance(first.message, Message)
        assert (first.message.body, first.message.properties.message_id) == (b"1", "7")
        assert second.message == b"2"
        assert "without its properties, which are malformed" in caplog.text
        await channel.publish_many([second])  # a publication that was set aside is one


async def test_a_broker_with_shorter_frames_and_a_channel_without_confirms(harebell_url: str, name: str) -> None:
    """What cannot be published again is told so."""
    middlewares = harebell.middleware.Middlewares().without("confirms")
    async with harebell.connect(harebell_url, recovery=FAST, middleware=middlewares) as connection:
        channel = await connection.channel()
        await channel.confirm_select(on_orphan="retry")
        events = connection.events()
        call = asyncio.ensure_future(channel.publish(b"m", "amq.fanout"))
        await asyncio.sleep(0)
        channel.transport.engine.data_to_send()
        connection.test().disconnect_transport()
        await next_of(events, e.Recovered)
        with pytest.raises(errors.PublishOrphaned):
            await call
