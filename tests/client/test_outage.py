"""Calls, publications and transactions that an outage meets, and how it ends; against both brokers."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message, Publication
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.protocol.v091 import methods as m
from harebell.testing import FaultProxy, RabbitMQ
from tests.client.outages import FAST, bodies, eventually, next_of
from tests.client.scripted import Peer, scripted

# -- calls during an outage --------------------------------------------------------------------------------------------


async def test_calls_wait_for_the_end_of_the_outage(connection: Connection, channel: Channel, name: str) -> None:
    with connection.test().reconnect_blocked():
        assert (connection.state, channel.is_open, channel.is_closed) == ("reconnecting", False, False)
        calls = [
            asyncio.ensure_future(call)
            for call in (
                channel.queue_declare(name, exclusive=True),
                channel.publish(b"m", "", f"{name}.nowhere"),
                _opened(connection),
                channel.consume("amq.rabbitmq.reply-to", no_ack=True).start(),
            )
        ]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
    async with asyncio.timeout(60):
        await asyncio.gather(*calls)
    assert connection.state == "open"


async def _opened(connection: Connection) -> Channel:
    return await connection.channel()


async def test_calls_during_an_outage_meet_their_deadline(connection: Connection, channel: Channel) -> None:
    with connection.test().reconnect_blocked():
        for call in (
            channel.queue_declare("q", timeout=0.01),
            channel.publish(b"m", "", "q", timeout=0.01),
            channel.publish_many([Publication(b"m", "", "q")], timeout=0.01),
            channel.get("q", timeout=0.01),
        ):
            with pytest.raises(errors.DeadlineExceeded):
                await call
        with pytest.raises(errors.DeadlineExceeded, match=r"channel\.open: no connection to .*the test cut"):
            await connection.channel(timeout=0.01)
    await channel.exchange_declare("amq.direct", passive=True)


async def test_calls_may_fail_instead(broker_url: str) -> None:
    recovery = Recovery(backoff=Backoff(0, 0), calls="fail")
    async with harebell.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        asked = asyncio.ensure_future(channel.queue_declare("q", passive=True))
        await asyncio.sleep(0)
        with connection.test().reconnect_blocked():
            with pytest.raises(errors.ConnectionLost):
                await asked
            with pytest.raises(errors.ConnectionLost, match="reconnecting"):
                await channel.publish(b"m", "", "q")
            with pytest.raises(errors.ConnectionLost, match="reconnecting"):
                await connection.channel()
            signal = connection.test().signal_on_reconnect()
        await signal.wait()
        await channel.exchange_declare("amq.direct", passive=True)


async def test_a_call_that_the_loss_cut_is_made_again(connection: Connection, channel: Channel, name: str) -> None:
    declared = asyncio.ensure_future(channel.queue_declare(name, exclusive=True))
    nameless = asyncio.ensure_future(channel.queue_declare())
    await asyncio.sleep(0)
    connection.test().disconnect_transport()
    assert (await declared).name == name
    with pytest.raises(errors.ConnectionLost):  # another one may exist already, under a name that nobody knows
        await nameless


async def test_a_cancelled_call_leaves_the_channel_alone(connection: Connection, channel: Channel, name: str) -> None:
    number = channel.number
    call = asyncio.ensure_future(channel.queue_declare(name, exclusive=True))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await channel.queue_declare(name, passive=True)).message_count == 0
    assert (channel.number, channel.test().reconnection_count) == (number, 1)
    with connection.test().reconnect_blocked():
        parked = asyncio.ensure_future(channel.queue_declare(name, passive=True))
        await asyncio.sleep(0)
        parked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await parked
    await channel.queue_declare(name, exclusive=True)


async def test_a_channel_can_be_closed_during_an_outage(connection: Connection, channel: Channel) -> None:
    with connection.test().reconnect_blocked():
        waiting = asyncio.ensure_future(channel.queue_declare("q"))
        await asyncio.sleep(0)
        await channel.close()
        with pytest.raises(errors.ChannelClosed, match="closed by this client"):
            await waiting
        signal = connection.test().signal_on_reconnect()
    await signal.wait()
    assert not connection.recovery.channels


async def test_a_repeated_call_outlasts_the_lock_of_the_dead_connection(name: str) -> None:
    """As RabbitMQ does it while it still believes in the connection that is gone."""

    peers: list[Peer] = []

    async def cut_and_locked(peer: Peer) -> None:
        peers.append(peer)
        await peer.handshake()
        number = await peer.channel()
        if len(peers) == 1:
            await peer.expect(m.QueueDeclare)
            return
        for _ in range(2):
            await peer.expect(m.QueueDeclare)
            peer.send(number, m.ChannelClose(405, f"RESOURCE_LOCKED - cannot obtain access to '{name}'", 50, 10))
            await peer.expect(m.ChannelCloseOk)
            number = await peer.channel()
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk(name, 0, 0))
        await peer.goodbye()

    async with scripted(cut_and_locked) as url, harebell.connect(url, timeout=60, recovery=FAST) as connection:
        channel = await connection.channel()
        assert (await channel.queue_declare(name, exclusive=True)).name == name


async def test_a_lock_that_stays_is_told_at_the_deadline(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    await other.queue_declare(name, exclusive=True)
    with pytest.raises(errors.ResourceLocked):  # a call that nothing has cut is not made again
        await channel.queue_declare(name, exclusive=True, timeout=60)
    call = asyncio.ensure_future(channel.queue_declare(name, exclusive=True, timeout=0.3))
    await asyncio.sleep(0)
    connection.test().disconnect_transport()
    with pytest.raises((errors.ResourceLocked, errors.DeadlineExceeded)):
        await call


async def test_what_a_cut_transaction_acknowledged_is_orphaned(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    for body in (b"1", b"2", b"3", b"4"):
        await channel.publish(body, "", name)
    await channel.tx_select()
    first, second, third, fourth = [await taken(channel, name) for _ in range(4)]
    first.ack()
    await channel.tx_commit()
    second.ack()
    await channel.tx_rollback()
    second.ack()  # it waits for one again
    third.nack()
    fourth.ack(multiple=True)
    await connection.test().force_reconnect()
    for late in (second, third, fourth):
        with pytest.raises(errors.AcknowledgeOrphans):
            late.ack()
    with pytest.raises(errors.LocalProtocolError, match="settle each delivery once"):
        first.ack()
    with pytest.raises(errors.TransactionLost):
        await channel.tx_commit()
    assert sorted([(await taken(channel, name)).body for _ in range(3)]) == [b"2", b"3", b"4"]
    await channel.queue_delete(name)


async def taken(channel: Channel, queue: str) -> Delivery:
    delivery = await channel.get(queue)
    assert delivery is not None
    return delivery


async def test_a_transaction_that_was_cut_raises_and_leaves_nothing(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    await channel.tx_select()
    await channel.publish(b"before", "", name)
    await connection.test().force_reconnect()
    await channel.publish(b"after", "", name)
    with pytest.raises(errors.TransactionLost, match="do it again"):
        await channel.tx_commit()
    assert await bodies(channel, name) == []
    await channel.publish(b"again", "", name)
    await channel.tx_commit()
    assert await bodies(channel, name) == [b"again"]
    await channel.publish(b"undone", "", name)
    await connection.test().force_reconnect()
    await channel.tx_rollback()
    await channel.tx_commit()
    assert await bodies(channel, name) == []
    await channel.queue_delete(name)


async def test_a_commit_that_was_cut_says_so(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, auto_delete=True)
    await channel.tx_select()
    await channel.publish(b"m", "", name)
    commit = asyncio.ensure_future(channel.tx_commit())
    await asyncio.sleep(0)
    connection.test().disconnect_transport()
    with pytest.raises(errors.TransactionLost, match="whole, or not at all"):
        await commit
    await channel.publish(b"m", "", name)
    await channel.tx_commit()  # the next one begins afresh
    await channel.queue_delete(name)


async def test_a_refused_transaction_costs_the_next_one_nothing(channel: Channel, name: str) -> None:
    await channel.queue_declare(name)
    await channel.tx_select()
    await channel.publish(b"refused", "", name)
    await channel.publish(b"refused", f"{name}.missing", name)
    with pytest.raises(errors.NotFound):
        await channel.tx_commit()
    await channel.publish(b"next", "", name)
    await channel.tx_commit()
    assert await bodies(channel, name) == [b"next"]
    await channel.queue_delete(name)


# -- publications that a loss cuts -------------------------------------------------------------------------------------


@pytest.fixture
async def cut(connection: Connection, channel: Channel, name: str) -> Callable[[], None]:
    """Loses the connection before the broker can have answered what was published in this turn, which is written."""
    await channel.queue_declare(name)

    def cut() -> None:
        channel.transport.flush_now()
        connection.test().disconnect_transport()

    return cut


async def test_an_orphaned_publication_raises(channel: Channel, name: str, cut: Callable[[], None]) -> None:
    await channel.confirm_select()
    many = asyncio.ensure_future(channel.publish_many([Publication(b"m", "", name)] * 10))
    await asyncio.sleep(0)
    publish = asyncio.ensure_future(channel.publish(b"m", "", name))  # in the turn in which the many publish
    await asyncio.sleep(0)
    cut()
    with pytest.raises(errors.PublishOrphaned, match="may or may not have arrived") as caught:
        await publish
    assert isinstance(caught.value, errors.Nacked)
    assert caught.value.publish_tags == caught.value.orphaned == (11,)
    with pytest.raises(errors.PublishOrphaned) as several:
        await many
    assert several.value.orphaned == tuple(range(1, 11))
    assert (await channel.publish(b"m", "", name)).publish_tag == 12  # type: ignore[union-attr]
    await channel.queue_delete(name)


async def test_an_orphaned_publication_is_published_again(channel: Channel, name: str, cut: Callable[[], None]) -> None:
    await channel.confirm_select(on_orphan="retry")
    many = asyncio.ensure_future(
        channel.publish_many([Publication(str(n).encode(), "", name) for n in range(1000)], window=300)
    )
    await asyncio.sleep(0)
    publish = asyncio.ensure_future(channel.publish(b"single", "", name))
    await asyncio.sleep(0)
    cut()
    confirmation = await publish
    assert confirmation is not None
    assert confirmation.acked
    assert await many == 1000
    found = await bodies(channel, name)
    assert set(found) == {b"single", *(str(n).encode() for n in range(1000))}
    await channel.queue_delete(name)


async def test_an_orphaned_publication_is_set_aside(channel: Channel, name: str, cut: Callable[[], None]) -> None:
    await channel.confirm_select(on_orphan="park")
    many = asyncio.ensure_future(channel.publish_many([Publication(b"many", "", name)] * 5))
    await asyncio.sleep(0)
    publish = asyncio.ensure_future(channel.publish(b"one", "", name))
    await asyncio.sleep(0)
    cut()
    confirmation = await publish
    assert confirmation is not None
    assert (confirmation.acked, confirmation.orphaned) == (False, True)
    confirmed = await many
    parked = [publication.message for _, publication in channel.parked]
    assert parked.count(b"one") == 1
    assert (parked.count(b"many"), confirmed) == (5, 0)
    await channel.queue_delete(name)


async def test_confirmations_of_what_was_sent_and_cut(channel: Channel, name: str, cut: Callable[[], None]) -> None:
    await channel.confirm_select()
    with pytest.raises(errors.LocalProtocolError, match="confirmations"):
        await channel.send(b"m", "", name)
    confirmations = channel.confirmations()
    tags = [await channel.send(b"m", "", name) for _ in range(3)]
    cut()
    tags.append(await channel.send(b"m", "", f"{name}.nowhere", mandatory=True))
    answers = [await anext(confirmations) for _ in range(4)]
    assert [answer.publish_tag for answer in answers] == tags == [1, 2, 3, 4]
    assert [(answer.acked, answer.orphaned) for answer in answers] == [(False, True)] * 3 + [(True, False)]
    assert answers[3].returned is not None
    await channel.queue_delete(name)


async def test_returns_after_a_reconnect(connection: Connection, channel: Channel, name: str) -> None:
    await channel.confirm_select()
    returned: list[object] = []
    channel.on_return = returned.append
    await connection.test().force_reconnect()
    results = await asyncio.gather(
        *[channel.publish(Message(b"same", message_id="1"), "", f"{name}.none", mandatory=True) for _ in range(2)],
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [errors.Unroutable] * 2
    other = await connection.channel()
    other.on_return = returned.append
    await connection.test().force_reconnect()
    await other.publish(b"m", "", f"{name}.none", mandatory=True)
    await other.exchange_declare("amq.direct", passive=True)
    assert len(returned) == 1


# -- dialling ----------------------------------------------------------------------------------------------------------


async def test_the_events_of_an_outage(connection: Connection, broker_url: str) -> None:
    events = connection.events()
    await connection.test().force_reconnect()
    await connection.close()
    seen = [event async for event in events]
    assert [type(event) for event in seen] == [e.Reconnecting, e.Connecting, e.Open, e.Recovered, e.Closed]
    reconnecting = seen[0]
    assert isinstance(reconnecting, e.Reconnecting)
    assert reconnecting.attempt == 1
    assert "the test cut the connection" in str(reconnecting.error)
    assert [type(event) async for event in connection.events()] == [e.Closed]


async def test_a_task_that_waits_for_events_lives_as_long_as_the_connection(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    seen: Counter[str] = Counter()

    async def watch(events: e.Events) -> None:
        async for event in events:
            seen[type(event).__name__] += 1

    for _ in range(2):
        events = connection.events()
        tasks = [asyncio.create_task(watch(events)) for _ in range(2)]
        alone = asyncio.create_task(watch(connection.events()))
        await asyncio.sleep(0)
        del events, tasks, alone
        gc.collect()
    await connection.test().force_reconnect()
    gc.collect()
    await connection.close()
    await asyncio.sleep(0)
    assert seen == dict.fromkeys(["Reconnecting", "Connecting", "Open", "Recovered", "Closed"], 4)
    assert not connection.recovery._readers.awaited
    assert "destroyed" not in caplog.text


async def test_giving_up(broker_url: str) -> None:
    recovery = Recovery(backoff=Backoff(0.01, 0.01), give_up_after=0.05)
    host, port = urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0
    async with FaultProxy(host, port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        connection = await harebell.connect(url, recovery=recovery)
        channel = await connection.channel()
        consumer = channel.consume("amq.rabbitmq.reply-to", no_ack=True)
        await consumer.start()
        events = connection.events()
        proxy.refuse()
        proxy.cut()
        parked = asyncio.ensure_future(channel.queue_declare("q"))
        with pytest.raises(errors.RecoveryGaveUp, match=r"0\.05 s"):
            await anext(consumer)
        with pytest.raises(errors.ChannelClosed, match=r"0\.05 s"):
            await parked
        assert isinstance(await connection.wait_closed(), errors.RecoveryGaveUp)
        assert (connection.state, channel.is_closed) == ("closed", True)
        with pytest.raises(errors.ChannelClosed):
            await connection.channel()
        await connection.close()
        attempts = [event.attempt async for event in events if isinstance(event, e.Reconnecting)]
        assert attempts == list(range(1, len(attempts) + 1))
        assert attempts


async def test_several_hosts(broker_url: str) -> None:
    host, port = urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0
    async with FaultProxy(host, port) as one, FaultProxy(host, port) as two:
        urls = [f"amqp://guest:guest@{proxy.host}:{proxy.port}/" for proxy in (one, two)]
        async with harebell.connect(urls, timeout=60, recovery=FAST) as connection:
            assert (connection.parameters.port, two.accepted) == (one.port, 0)
            one.refuse()
            signal = connection.test().signal_on_reconnect()
            one.cut()
            await signal.wait()
            assert connection.parameters.port == two.port
            one.accept()
            signal = connection.test().signal_on_reconnect()
            two.cut()
            await signal.wait()
            assert connection.parameters.port == one.port
    with pytest.raises(errors.InvalidArgument, match="at least one host"):
        await harebell.connect([])


async def test_credentials_are_asked_at_each_dial(broker_url: str) -> None:
    asked = 0

    async def credentials() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise OSError("the vault is sealed")
        return "guest", "wrong" if asked == 3 else "guest"

    wrong = broker_url.replace("guest:guest", "nobody:nothing")
    async with harebell.connect(wrong, timeout=60, recovery=FAST, credentials=credentials) as connection:
        events = connection.events()
        await connection.test().force_reconnect()
        assert asked == 4
        failures = []
        async for event in events:
            if isinstance(event, e.Reconnecting):
                failures.append(event.error)
            elif isinstance(event, e.Recovered):
                break
        assert [type(failure) for failure in failures] == [errors.ConnectionLost] * 2 + [errors.AccessRefused]
        assert isinstance(failures[1] and failures[1].__cause__, OSError)


async def test_a_new_secret_is_used_for_the_next_dial(any_rabbitmq: RabbitMQ, name: str) -> None:
    users, user, by = "rabbit_auth_backend_internal", f'<<"{name}">>', '<<"test">>'
    any_rabbitmq.evaluate(f'{users}:add_user({user}, <<"old">>, {by})')
    any_rabbitmq.evaluate(f'{users}:set_permissions({user}, <<"/">>, <<".*">>, <<".*">>, <<".*">>, {by})')
    url = any_rabbitmq.url.replace("guest:guest", f"{name}:old")
    async with harebell.connect(url, timeout=60, recovery=FAST) as connection:
        any_rabbitmq.evaluate(f'{users}:change_password({user}, <<"new">>, {by})')
        await connection.update_secret("new", "rotation")
        await connection.test().force_reconnect()
    any_rabbitmq.evaluate(f"{users}:delete_user({user}, {by})")


async def test_the_first_dial_may_wait_for_the_broker() -> None:
    recovery = Recovery(backoff=Backoff(0.01, 0.02), first="retry")
    async with FaultProxy("127.0.0.1", 1) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        with pytest.raises(errors.ConnectionLost):
            await harebell.connect(url, timeout=0.2, recovery=recovery)
        assert proxy.accepted > 2
    async with FaultProxy("127.0.0.1", 1) as proxy:
        with pytest.raises(errors.ConnectionLost):
            await harebell.connect(f"amqp://guest:guest@{proxy.host}:{proxy.port}/", timeout=5)
        assert proxy.accepted == 1


async def test_dialling_ends_with_close(broker_url: str) -> None:
    connection = await harebell.connect(broker_url, recovery=FAST)
    channel = await connection.channel()
    connection.test().block_reconnect()
    connection.test().disconnect_transport()
    parked = asyncio.ensure_future(channel.queue_declare("q"))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(errors.ChannelClosed, match="closed by this client"):
        await parked
    assert not connection.recovery.tasks
    assert isinstance(connection.closed_reason, errors.ChannelClosed)


async def test_a_loss_while_coming_back_is_one_more_attempt(broker_url: str, name: str) -> None:
    host, port = urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0
    async with FaultProxy(host, port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        async with harebell.connect(url, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            await channel.queue_bind(name, "amq.direct", name)
            consumer = channel.consume(name, prefetch=7)
            await consumer.start()
            await channel.confirm_select()
            total = proxy.forwarded("to_server")
            signal = connection.test().signal_on_reconnect()
            proxy.cut()
            await signal.wait()
            needed = proxy.forwarded("to_server") - total
            for after in range(0, needed, 7):
                proxy.cut_after(after, "to_server")
                signal = connection.test().signal_on_reconnect()
                connection.test().disconnect_transport()
                await signal.wait()
                proxy.no_cut()  # this return may have needed fewer bytes than the one that was measured
                confirmation = await channel.publish(b"m", "amq.direct", name, mandatory=True)
                assert confirmation is not None
                async with asyncio.timeout(60):
                    (await anext(consumer)).ack()
            assert (await channel.queue_declare(name, passive=True)).consumer_count == 1


async def test_a_channel_that_fails_while_others_are_still_coming_back(
    connection: Connection, channel: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = await connection.channel()
    restored, go_on = slow.recovery._restore, asyncio.Event()

    async def held_up(*arguments: object) -> object:
        await go_on.wait()
        return await restored(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slow.recovery, "_restore", held_up)
    signal = connection.test().signal_on_reconnect()
    connection.test().disconnect_transport()
    async with asyncio.timeout(60):
        while channel.test().reconnection_count < 2:  # noqa: ASYNC110  there is no event for half a recovery
            await asyncio.sleep(0)
    with pytest.raises(errors.NotFound):
        await channel.queue_declare(name, passive=True)
    go_on.set()
    await signal.wait()
    for one in (channel, slow):
        async with asyncio.timeout(60):
            await one.exchange_declare("amq.direct", passive=True)


@pytest.mark.parametrize("how", ["half-close", "stall"])
async def test_a_network_that_goes_quiet(broker_url: str, name: str, how: str) -> None:
    """An end of stream is seen at once, a silence by the missing heartbeats."""
    async with FaultProxy(urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=1"
        async with harebell.connect(url, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            events, signal = connection.events(), connection.test().signal_on_reconnect()
            if how == "half-close":
                proxy.half_close("to_client")
            else:
                proxy.stall("to_client")
            lost = await next_of(events, e.Reconnecting)
            assert ("without a word" if how == "half-close" else "two heartbeats") in str(lost.error)
            proxy.resume()
            await signal.wait()
            await channel.queue_declare(name, passive=True)


@pytest.mark.parametrize("outage", [False, True])
async def test_cancelled_at_every_await(connection: Connection, name: str, outage: bool) -> None:
    """Whatever is cancelled, and however far it is, the channel is usable afterwards, in an outage too."""
    channel = await connection.channel()
    await channel.queue_declare(name)
    await channel.confirm_select()

    async def declare() -> None:
        await channel.queue_declare(f"{name}.other", auto_delete=True)
        await channel.queue_delete(f"{name}.other")

    async def publish() -> None:
        await channel.publish(b"m", "", name)
        await channel.publish_many([Publication(b"m", "", name)] * 3)

    async def get() -> None:
        delivery = await channel.get(name)
        assert delivery is not None
        delivery.ack()

    async def consume() -> None:
        async with channel.consume(name, prefetch=2) as consumer:
            (await anext(consumer)).ack()

    async def open_another() -> None:
        async with connection.channel():
            pass

    for program in (declare, publish, get, consume, open_another):
        for turns in range(0, 24, 3 if outage else 1):
            await channel.publish(b"m", "", name)
            task = asyncio.ensure_future(program())
            for turn in range(turns):
                if outage and turn == turns // 2:
                    connection.test().disconnect_transport()
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(60):
                await channel.queue_declare(name, passive=True)
    async with asyncio.timeout(60):
        await eventually(lambda: _unused(channel, name))
        await channel.queue_delete(name)
    assert list(connection.recovery.channels) == [channel.recovery]
    assert not channel.subscriptions.active


async def _unused(channel: Channel, queue: str) -> bool:
    return (await channel.queue_declare(queue, passive=True)).consumer_count == 0


async def test_a_broker_that_is_restarted(name: str) -> None:
    """All its queues are gone; what was declared is there again, and the consumer goes on."""
    broker = Broker()
    await broker.start()
    port = urlsplit(broker.url).port
    async with harebell.connect(broker.url, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
        await channel.exchange_declare(name, "topic", durable=True)
        await channel.queue_declare(name, durable=True)
        await channel.queue_bind(name, name, "#")
        await channel.confirm_select()
        consumer = channel.consume(name)
        await consumer.start()
        events = connection.events()
        await broker.stop()
        published = asyncio.ensure_future(channel.publish(b"after", name, "k", mandatory=True))
        async with Broker(port=port):
            await next_of(events, e.Recovered)
            assert (await published) is not None
            async with asyncio.timeout(60):
                assert (await anext(consumer)).body == b"after"
            await connection.close()


@pytest.mark.slow
@pytest.mark.rabbitmq
async def test_a_rabbitmq_that_is_restarted(name: str) -> None:
    with RabbitMQ() as server:
        async with (
            harebell.connect(server.url, timeout=60, recovery=FAST) as connection,
            connection.channel() as channel,
        ):
            await channel.queue_declare(name, durable=True)
            await channel.queue_declare(f"{name}.mine", exclusive=True)
            await channel.confirm_select()
            await channel.publish(Message(b"kept", delivery_mode=2), "", name)
            consumer = channel.consume(name)
            await consumer.start()
            (await anext(consumer)).nack()
            held = await anext(consumer)
            events = connection.events()
            await asyncio.to_thread(server.sync_declarations)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(120):
                async for event in events:
                    if isinstance(event, e.Recovered):
                        assert event.skipped == []
                        break
                with pytest.raises(errors.AcknowledgeOrphans):
                    held.ack()
                await channel.publish(Message(b"new", delivery_mode=2), "", name)
                arrived = []
                async for delivery in consumer:
                    delivery.ack()
                    arrived.append(delivery.body)
                    if delivery.body == b"new":
                        break
            assert arrived == [b"kept", b"new"]
            assert (await channel.queue_declare(f"{name}.mine", passive=True)).message_count == 0


async def test_a_mistake_in_recovery_ends_the_connection(
    connection: Connection, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistake(*arguments: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(type(channel.recovery), "_restore", mistake)
    connection.test().disconnect_transport()
    assert "a mistake" in str(await connection.wait_closed())
    with pytest.raises(errors.ChannelClosed, match="a mistake"):
        await channel.queue_declare("q")


def test_a_program_that_fails_ends(harebell_url: str) -> None:
    """With a live iterator, a killed connection and a redial under way, an error still leaves through asyncio.run."""

    async def program() -> None:
        connection = await harebell.connect(harebell_url)
        channel = await connection.channel()
        consumer = channel.consume("amq.rabbitmq.reply-to", no_ack=True)
        await consumer.start()
        waiting = asyncio.ensure_future(anext(consumer))
        connection.test().block_reconnect()
        connection.test().disconnect_transport()
        await asyncio.sleep(0)
        assert not waiting.done()
        raise ValueError("the program's own")

    with pytest.raises(ValueError, match="the program's own"):
        asyncio.run(program())


def test_backoff_and_recovery_check_what_they_are_given() -> None:
    backoff = Backoff(1, 8)
    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10**6, 8)):
        assert all(0 <= backoff.delay(attempt) <= most for _ in range(20))
    assert max(backoff.delay(9) for _ in range(200)) > 4  # the jitter is full, not none
    for bad in ((-1, 1), (2, 1), (1, 2, 0.5)):
        with pytest.raises(errors.InvalidArgument):
            Backoff(*bad)
    with pytest.raises(errors.InvalidArgument, match="topology='some'"):
        Recovery(topology="some")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="give_up_after"):
        Recovery(give_up_after=-1)
