"""What comes back after a loss, and what is told about it; against both brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

import warren
from warren import errors
from warren.broker import Broker
from warren.client import events as e
from warren.client.channel import Channel
from warren.client.connection import Connection
from warren.client.records import Message, Publication
from warren.client.recovery import Backoff, Recovery
from warren.testing import FaultProxy, RabbitMQ

FAST = Recovery(backoff=Backoff(0.001, 0.05))
E = TypeVar("E", bound=e.Event)


@pytest.fixture
async def connection(broker_url: str) -> AsyncIterator[Connection]:
    async with warren.connect(broker_url, timeout=20, recovery=FAST) as connection:
        yield connection


@pytest.fixture
async def other(broker_url: str) -> AsyncIterator[Channel]:
    """A channel of somebody else's, whom no outage touches."""
    async with warren.connect(broker_url, timeout=20) as connection, connection.channel() as channel:
        yield channel


async def next_of(events: e.Events, kind: type[E]) -> E:
    async with asyncio.timeout(10):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended without {kind.__name__}")


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():
            pass


async def bodies(channel: Channel, queue: str) -> list[bytes]:
    """What is in the queue now; it is taken out."""
    found = []
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body)
    return found


# -- topology ----------------------------------------------------------------------------------------------------------


async def test_everything_declared_is_declared_again_in_order(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    source, target, queue = f"{name}.source", f"{name}.target", f"{name}.q"
    await channel.queue_declare(queue)
    await channel.exchange_declare(target, "topic")
    await channel.exchange_declare(source, "fanout")
    await channel.queue_bind(queue, target, "a.*")
    await channel.exchange_bind(target, source)
    with connection.test().reconnect_blocked():
        await other.queue_delete(queue)
        await other.exchange_delete(source)
        await other.exchange_delete(target)
    await channel.confirm_select()  # waits for the reconnect
    await channel.publish(b"m", source, "a.b", mandatory=True)
    assert await bodies(channel, queue) == [b"m"]
    await channel.queue_delete(queue)
    await channel.exchange_delete(source)
    await channel.exchange_delete(target)


async def test_what_was_deleted_or_unbound_stays_so(connection: Connection, channel: Channel, name: str) -> None:
    exchange, keeps, goes = f"{name}.x", f"{name}.keeps", f"{name}.goes"
    await channel.exchange_declare(exchange, "direct", auto_delete=True)
    for queue in (keeps, goes):
        await channel.queue_declare(queue, exclusive=True)
        for key in ("a", "b"):
            await channel.queue_bind(queue, exchange, key)
    await channel.queue_unbind(keeps, exchange, "a")
    await channel.queue_delete(goes)
    await connection.test().force_reconnect()
    await channel.confirm_select()
    with pytest.raises(errors.Unroutable):
        await channel.publish(b"a", exchange, "a", mandatory=True)
    await channel.publish(b"b", exchange, "b", mandatory=True)
    assert await bodies(channel, keeps) == [b"b"]
    with pytest.raises(errors.NotFound):
        await channel.queue_declare(goes, passive=True)


async def test_header_bindings_that_differ_in_arguments_only(
    connection: Connection, channel: Channel, name: str
) -> None:
    exchange = f"{name}.h"
    await channel.exchange_declare(exchange, "headers", auto_delete=True)
    await channel.queue_declare(name, exclusive=True)
    for colour in ("red", "green", "blue"):
        await channel.queue_bind(name, exchange, arguments={"x-match": "all", "colour": colour})
    await channel.queue_unbind(name, exchange, arguments={"x-match": "all", "colour": "green"})
    await connection.test().force_reconnect()
    for colour in ("red", "green", "blue"):
        await channel.publish(Message(colour.encode(), headers={"colour": colour}), exchange)
    assert await bodies(channel, name) == [b"red", b"blue"]


async def test_a_server_named_queue_takes_its_bindings_and_consumers_along(
    connection: Connection, channel: Channel
) -> None:
    events = connection.events()
    queue = (await channel.queue_declare(exclusive=True)).name
    await channel.queue_bind(queue, "amq.fanout")
    consumer = channel.consume(queue)
    await consumer.start()
    await connection.test().force_reconnect()
    renamed = (await next_of(events, e.Recovered)).renamed
    assert list(renamed) == [queue]
    assert renamed[queue] != queue
    await channel.publish(b"bound", "amq.fanout")
    await channel.publish(b"by its first name", "", queue)
    await channel.publish(b"by its present name", "", renamed[queue])
    async with asyncio.timeout(10):
        assert [(await anext(consumer)).body for _ in range(3)] == [
            b"bound", b"by its first name", b"by its present name"
        ]  # fmt: skip
    info = await channel.queue_declare(queue, passive=True)
    assert (info.name, info.consumer_count) == (queue, 1)
    await channel.queue_delete(queue)


async def test_a_server_named_queue_that_outlives_its_connection_is_kept(
    connection: Connection, channel: Channel
) -> None:
    queue = (await channel.queue_declare()).name
    await channel.confirm_select()
    await channel.publish(b"m", "", queue)
    await connection.test().force_reconnect()
    assert await bodies(channel, queue) == [b"m"]
    await channel.queue_delete(queue)


async def test_an_auto_delete_queue_is_not_revived_after_its_last_consumer(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    gone, alive = f"{name}.gone", f"{name}.alive"
    for queue in (gone, alive):
        await channel.queue_declare(queue, auto_delete=True)
    kept = channel.consume(alive)
    await kept.start()
    async with channel.consume(gone):
        pass
    await connection.test().force_reconnect()
    assert (await channel.queue_declare(alive, passive=True)).consumer_count == 1
    with pytest.raises(errors.NotFound):
        await channel.queue_declare(gone, passive=True)


async def test_an_entity_that_conflicts_is_skipped_and_told(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    """One bad queue harms nobody else: not the rest of the topology, not other channels, not other consumers."""
    events = connection.events()
    bad, good = f"{name}.bad", f"{name}.good"
    second = await connection.channel()
    await channel.queue_declare(bad)
    await channel.queue_declare(good, exclusive=True)
    consumer = second.consume(good)
    await consumer.start()
    with connection.test().reconnect_blocked():
        await other.queue_delete(bad)
        await other.queue_declare(bad, arguments={"x-max-length": 3})
    skipped = (await next_of(events, e.Recovered)).skipped
    assert [skip.entity for skip in skipped] == [f"queue '{bad}'"]
    assert isinstance(skipped[0].error, errors.PreconditionFailed)
    await channel.publish(b"m", "", good)
    async with asyncio.timeout(10):
        assert (await anext(consumer)).body == b"m"
    await other.queue_delete(bad)


@pytest.mark.parametrize("broker", ["rabbitmq", "warren"])
async def test_an_exclusive_queue_that_the_dead_connection_holds_is_waited_for(
    broker: str, request: pytest.FixtureRequest, name: str
) -> None:
    url = request.getfixturevalue("rabbitmq").url if broker == "rabbitmq" else request.getfixturevalue("warren_url")
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0
    async with FaultProxy(host, port) as proxy:
        urls = [f"amqp://guest:guest@{proxy.host}:{proxy.port}/", url]
        async with warren.connect(urls, timeout=20, recovery=FAST) as connection, connection.channel() as channel:
            events = connection.events()
            await channel.queue_declare(name, exclusive=True)
            await channel.queue_bind(name, "amq.direct", name)
            consumer = channel.consume(name)
            await consumer.start()
            proxy.refuse()
            proxy.stall()  # the broker hears nothing of the end of the first connection
            connection.test().disconnect_transport()
            assert (await next_of(events, e.Recovered)).skipped == []
            await channel.exchange_declare("amq.direct", passive=True)  # everything else works
            with pytest.raises(errors.ResourceLocked):
                await channel.queue_declare(name, exclusive=True)
            proxy.resume()
            assert (await next_of(events, e.QueueRecovered)).queue == name
            await channel.publish(b"m", "amq.direct", name)
            async with asyncio.timeout(10):
                assert (await anext(consumer)).body == b"m"


async def test_the_transient_part_only(broker_url: str, other: Channel, name: str) -> None:
    recovery = Recovery(backoff=Backoff(0, 0), topology="transient")
    async with warren.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        await channel.queue_declare(f"{name}.durable", durable=True)
        await channel.queue_declare(f"{name}.mine", exclusive=True)
        with connection.test().reconnect_blocked():
            await other.queue_delete(f"{name}.durable")
        await channel.queue_declare(f"{name}.mine", passive=True)
        with pytest.raises(errors.NotFound):
            await channel.queue_declare(f"{name}.durable", passive=True)


async def test_no_topology_at_all(broker_url: str, name: str) -> None:
    recovery = Recovery(backoff=Backoff(0, 0), topology="none")
    async with warren.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        consumer = channel.consume(name)
        await consumer.start()
        await connection.test().force_reconnect()
        with pytest.raises(errors.NotFound):  # its queue is gone, and the iterator says so
            await anext(consumer)
        with pytest.raises(errors.NotFound):
            await channel.queue_declare(name, passive=True)


async def test_a_passive_declare_is_never_answered_from_memory(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    await channel.queue_declare(name, auto_delete=True)
    await connection.test().force_reconnect()
    await other.confirm_select()
    for count in (1, 2, 3):
        await other.publish(b"m", "", name)
        assert (await channel.queue_declare(name, passive=True)).message_count == count
    await channel.queue_delete(name)


# -- channels ----------------------------------------------------------------------------------------------------------


async def test_prefetch_confirms_and_subscriptions_come_back(
    connection: Connection, channel: Channel, name: str
) -> None:
    queues = [f"{name}.{n}" for n in range(3)]
    for queue in queues:
        await channel.queue_declare(queue, exclusive=True)
    consumers = [channel.consume(queue, prefetch=limit) for queue, limit in zip(queues, (3, 5, None), strict=True)]
    for consumer in consumers:
        await consumer.start()
    await channel.confirm_select()
    await connection.test().force_reconnect()
    for queue in queues:
        await channel.publish_many([Publication(b"m", "", queue)] * 10)
    left = [(await channel.queue_declare(queue, passive=True)).message_count for queue in queues]
    # Warren applies a new prefetch to running consumers, too.
    limits = [3, 5, 5] if connection.server_properties["product"] == "RabbitMQ" else [5, 5, 5]
    assert [10 - count for count in left] == limits
    assert [consumer.buffered for consumer in consumers] == limits
    fresh = f"{name}.fresh"
    await channel.queue_declare(fresh, exclusive=True)
    await channel.publish_many([Publication(b"m", "", fresh)] * 10)
    async with channel.consume(fresh) as late:
        await channel.queue_declare(fresh, passive=True)
        assert late.buffered == 5  # the channel's last prefetch holds for later consumers too


async def test_a_prefetch_for_the_whole_channel_comes_back(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True)
    await channel.qos(prefetch_count=4, global_=True)
    consumers = [channel.consume(name) for _ in range(2)]
    for consumer in consumers:
        await consumer.start()
    await connection.test().force_reconnect()
    await channel.confirm_select()
    await channel.publish_many([Publication(b"m", "", name)] * 10)
    assert (await channel.queue_declare(name, passive=True)).message_count == 6


async def test_what_was_not_handed_out_is_delivered_again_with_tags_that_go_on(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    await channel.confirm_select()
    await channel.publish_many([Publication(str(n).encode(), "", name) for n in range(6)])
    consumer = channel.consume(name)
    await consumer.start()
    first, second = await anext(consumer), await anext(consumer)
    first.ack()
    await channel.queue_declare(name, passive=True)  # the ack is there
    assert consumer.buffered == 4
    await connection.test().force_reconnect()
    async with asyncio.timeout(10):
        again = [await anext(consumer) for _ in range(5)]
    assert [delivery.delivery_tag for delivery in again] == [3, 4, 5, 6, 7]
    assert sorted(delivery.body for delivery in again) == [b"1", b"2", b"3", b"4", b"5"]
    with pytest.raises(errors.AcknowledgeOrphans) as caught:
        channel.ack(7, multiple=True)
    assert (caught.value.first, caught.value.last) == (second.delivery_tag, second.delivery_tag)
    assert (caught.value.success_first, caught.value.success_last) == (3, 7)
    assert (await channel.queue_delete(name)) == 0
    assert not channel.is_closed


async def test_what_came_without_acknowledgement_is_kept(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True)
    async with channel.consume(name, no_ack=True) as consumer:
        await channel.publish_many([Publication(b"m", "", name)] * 3)
        await eventually(lambda: _true(channel, lambda: consumer.buffered == 3))
        await connection.test().force_reconnect()
        assert [(await anext(consumer)).delivery_tag for _ in range(3)] == [1, 2, 3]
        await channel.publish(b"m", "", name)
        async with asyncio.timeout(10):
            assert (await anext(consumer)).delivery_tag == 4


async def _true(channel: Channel, holds: Callable[[], bool]) -> bool:
    await channel.exchange_declare("amq.direct", passive=True)  # a round trip
    return holds()


async def test_an_empty_get_is_no_delivery(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True)
    for _ in range(3):
        assert await channel.get(name) is None
    await connection.test().force_reconnect()
    await channel.publish(b"m", "", name)
    delivery = await channel.get(name)
    assert delivery is not None
    assert delivery.delivery_tag == 1
    delivery.ack()
    assert await channel.get(name) is None


async def test_recover_makes_old_tags_orphans(channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True)
    await channel.confirm_select()
    await channel.publish_many([Publication(b"m", "", name)] * 3)
    async with channel.consume(name) as consumer:
        first = await anext(consumer)
        await eventually(lambda: _true(channel, lambda: consumer.buffered == 2))
        await channel.recover(requeue=True)
        async with asyncio.timeout(10):
            again = [await anext(consumer) for _ in range(3)]
        assert all(delivery.redelivered for delivery in again)
        with pytest.raises(errors.AcknowledgeOrphans):
            first.ack()
        for delivery in again:
            delivery.ack()
    assert await channel.get(name) is None
    assert not channel.is_closed


@pytest.mark.parametrize("what", ["404", "406"])
async def test_a_channel_error_ends_its_call_and_nothing_else(
    connection: Connection, channel: Channel, name: str, what: str
) -> None:
    events = connection.events()
    untouched = await connection.channel()
    number = untouched.number
    await channel.queue_declare(name, auto_delete=True)
    await channel.queue_declare(f"{name}.fixed", exclusive=True)
    consumer = channel.consume(name, prefetch=1)
    await consumer.start()
    await channel.confirm_select()
    if what == "404":
        with pytest.raises(errors.NotFound):
            await channel.queue_bind(name, f"{name}.missing")
    else:
        with pytest.raises(errors.PreconditionFailed):
            await channel.queue_declare(f"{name}.fixed", exclusive=True, arguments={"x-max-length": 1})
    reopened = await next_of(events, e.ChannelReopened)
    assert (reopened.skipped, str(reopened.error)[:3]) == ([], what)
    confirmation = await channel.publish(b"m", "", name)
    assert confirmation is not None
    assert confirmation.acked
    async with asyncio.timeout(10):
        delivery = await anext(consumer)
    delivery.ack()
    assert (untouched.number, untouched.is_open) == (number, True)
    assert connection.test().reconnection_count == 1


async def test_a_publication_that_kills_the_channel_gets_its_reason(channel: Channel, name: str) -> None:
    await channel.confirm_select()
    with pytest.raises(errors.NotFound, match=name):
        await channel.publish(b"m", name, "k")
    confirmation = await channel.publish(b"m", "amq.fanout", "k")
    assert confirmation is not None
    assert confirmation.publish_tag == 2  # publish tags go on


async def test_consuming_from_a_missing_queue_is_an_error_of_that_call(channel: Channel, name: str) -> None:
    with pytest.raises(errors.NotFound, match=name):
        await channel.consume(name).start()
    await channel.queue_declare(name, exclusive=True)
    async with channel.consume(name):
        pass


async def test_a_subscription_that_cannot_come_back_ends_alone(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    events = connection.events()
    theirs, ours = f"{name}.theirs", f"{name}.ours"
    await other.queue_declare(theirs, auto_delete=True)
    await channel.queue_declare(ours, exclusive=True)
    doomed, fine = channel.consume(theirs), channel.consume(ours)
    await doomed.start()
    await fine.start()
    await connection.test().force_reconnect()  # the auto-delete queue of somebody else goes with its last consumer
    assert (await next_of(events, e.ConsumerEnded)).queue == theirs
    skipped = (await next_of(events, e.Recovered)).skipped
    assert len(skipped) == 1
    assert theirs in str(skipped[0])
    with pytest.raises(errors.NotFound):
        await anext(doomed)
    await channel.publish(b"m", "", ours)
    async with asyncio.timeout(10):
        assert (await anext(fine)).body == b"m"


async def test_consumer_tags_stay_unique(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, exclusive=True)
    consumers = [channel.consume(name)]
    await consumers[0].start()
    await connection.test().force_reconnect()
    consumers.append(channel.consume(name))
    await consumers[1].start()
    assert len({consumer.tag for consumer in consumers}) == 2
    assert (await channel.queue_declare(name, passive=True)).consumer_count == 2


async def test_an_iterator_that_was_left_during_an_outage_is_not_revived(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    consumer = channel.consume(name)
    await consumer.start()
    dropped = channel.consume(name)
    await dropped.start()
    with connection.test().reconnect_blocked():
        await consumer.cancel()
        del dropped
    assert (await channel.queue_declare(name, passive=True)).consumer_count == 0
    await channel.queue_delete(name)


async def test_flow_comes_back(warren_url: str, name: str) -> None:
    async with warren.connect(warren_url, recovery=FAST) as connection, connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        async with channel.consume(name) as consumer:
            await channel.flow(False)
            await connection.test().force_reconnect()
            await channel.publish(b"m", "", name)
            assert (await channel.queue_declare(name, passive=True)).message_count == 1
            assert consumer.buffered == 0
            await channel.flow(True)
            async with asyncio.timeout(10):
                assert (await anext(consumer)).body == b"m"


async def test_an_orphan_costs_nobody_else_anything(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name)
    await channel.confirm_select()
    await channel.publish_many([Publication(str(n).encode(), "", name) for n in range(3)])
    consumer = channel.consume(name)
    await consumer.start()
    old = [await anext(consumer) for _ in range(3)]
    await connection.test().force_reconnect()
    async with asyncio.timeout(10):
        new = [await anext(consumer) for _ in range(3)]
    for delivery in old:
        for settle in (delivery.ack, delivery.nack, delivery.reject):
            with pytest.raises((errors.AcknowledgeOrphans, errors.LocalProtocolError)):
                settle()
    for delivery in new:
        delivery.ack()
    assert await channel.queue_delete(name) == 0
    assert (connection.test().reconnection_count, channel.test().reconnection_count) == (2, 2)


async def test_a_consumer_whose_queue_is_deleted_is_told(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    await connection.test().force_reconnect()
    consumer = channel.consume(name)
    await consumer.start()
    await connection.test().force_reconnect()
    await other.queue_delete(name)
    with pytest.raises(errors.ConsumerCancelled, match=name):
        async with asyncio.timeout(10):
            await anext(consumer)
    await channel.queue_declare(name, exclusive=True)


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
    async with asyncio.timeout(10):
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
    async with warren.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
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
    assert not connection._channels


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


# -- publications that a loss cuts -------------------------------------------------------------------------------------


@pytest.fixture
async def cut(connection: Connection, channel: Channel, name: str) -> Callable[[], None]:
    """Loses the connection before the broker can have answered what was published in this turn."""
    await channel.queue_declare(name)
    return connection.test().disconnect_transport


async def test_an_orphaned_publication_raises(channel: Channel, name: str, cut: Callable[[], None]) -> None:
    await channel.confirm_select()
    publish = asyncio.ensure_future(channel.publish(b"m", "", name))
    many = asyncio.ensure_future(channel.publish_many([Publication(b"m", "", name)] * 10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cut()
    with pytest.raises(errors.PublishOrphaned, match="may or may not have arrived") as caught:
        await publish
    assert isinstance(caught.value, errors.Nacked)
    assert caught.value.publish_tags == caught.value.orphaned == (1,)
    with pytest.raises(errors.PublishOrphaned) as several:
        await many
    assert set(several.value.orphaned) <= set(range(2, 12))
    assert (await channel.publish(b"m", "", name)).publish_tag == 12  # type: ignore[union-attr]
    await channel.queue_delete(name)


async def test_an_orphaned_publication_is_published_again(
    channel: Channel, name: str, cut: Callable[[], None]
) -> None:
    await channel.confirm_select(on_orphan="retry")
    publish = asyncio.ensure_future(channel.publish(b"single", "", name))
    many = asyncio.ensure_future(
        channel.publish_many([Publication(str(n).encode(), "", name) for n in range(1000)], window=300)
    )
    await asyncio.sleep(0)
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
    publish = asyncio.ensure_future(channel.publish(b"one", "", name))
    await asyncio.sleep(0)
    many = asyncio.ensure_future(channel.publish_many([Publication(b"many", "", name)] * 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cut()
    confirmation = await publish
    assert confirmation is not None
    assert (confirmation.acked, confirmation.orphaned) == (False, True)
    confirmed = await many
    parked = [publication.message for _, publication in channel.parked]
    assert parked.count(b"one") == 1
    assert parked.count(b"many") == 5 - confirmed
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


async def test_giving_up(broker_url: str) -> None:
    recovery = Recovery(backoff=Backoff(0.01, 0.01), give_up_after=0.05)
    host, port = urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0
    async with FaultProxy(host, port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        connection = await warren.connect(url, recovery=recovery)
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
        async with warren.connect(urls, timeout=20, recovery=FAST) as connection:
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
        await warren.connect([])


async def test_credentials_are_asked_at_each_dial(broker_url: str) -> None:
    asked = 0

    async def credentials() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise OSError("the vault is sealed")
        return "guest", "wrong" if asked == 3 else "guest"

    wrong = broker_url.replace("guest:guest", "nobody:nothing")
    async with warren.connect(wrong, timeout=20, recovery=FAST, credentials=credentials) as connection:
        events = connection.events()
        await connection.test().force_reconnect()
        assert asked == 4
        failures = []
        async for event in events:
            if isinstance(event, e.Reconnecting):
                failures.append(event.error)
            elif isinstance(event, e.Recovered):
                break
        assert [type(failure) for failure in failures] == [errors.ConnectionLost, OSError, errors.AccessRefused]


async def test_a_new_secret_is_used_for_the_next_dial(rabbitmq: RabbitMQ, name: str) -> None:
    rabbitmq.ctl("add_user", name, "old")
    rabbitmq.ctl("set_permissions", name, ".*", ".*", ".*")
    url = rabbitmq.url.replace("guest:guest", f"{name}:old")
    async with warren.connect(url, timeout=20, recovery=FAST) as connection:
        rabbitmq.ctl("change_password", name, "new")
        await connection.update_secret("new", "rotation")
        await connection.test().force_reconnect()
    rabbitmq.ctl("delete_user", name)


async def test_the_first_dial_may_wait_for_the_broker() -> None:
    recovery = Recovery(backoff=Backoff(0.01, 0.02), first="retry")
    async with FaultProxy("127.0.0.1", 1) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        with pytest.raises(errors.ConnectionLost):
            await warren.connect(url, timeout=0.2, recovery=recovery)
        assert proxy.accepted > 2
        before = proxy.accepted
        with pytest.raises(errors.ConnectionLost):
            await warren.connect(url, timeout=5)
        assert proxy.accepted == before + 1


async def test_dialling_ends_with_close(broker_url: str) -> None:
    connection = await warren.connect(broker_url, recovery=FAST)
    channel = await connection.channel()
    connection.test().block_reconnect()
    connection.test().disconnect_transport()
    parked = asyncio.ensure_future(channel.queue_declare("q"))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(errors.ChannelClosed, match="closed by this client"):
        await parked
    assert not connection._tasks
    assert isinstance(connection.closed_reason, errors.ChannelClosed)


async def test_a_loss_while_coming_back_is_one_more_attempt(broker_url: str, name: str) -> None:
    host, port = urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0
    async with FaultProxy(host, port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        async with warren.connect(url, timeout=20, recovery=FAST) as connection, connection.channel() as channel:
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
                confirmation = await channel.publish(b"m", "amq.direct", name, mandatory=True)
                assert confirmation is not None
                async with asyncio.timeout(10):
                    (await anext(consumer)).ack()
            assert (await channel.queue_declare(name, passive=True)).consumer_count == 1


async def test_a_channel_that_fails_while_others_are_still_coming_back(
    connection: Connection, channel: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = await connection.channel()
    restored, go_on = slow._restored, asyncio.Event()

    async def held_up(*arguments: object) -> object:
        await go_on.wait()
        return await restored(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slow, "_restored", held_up)
    signal = connection.test().signal_on_reconnect()
    connection.test().disconnect_transport()
    async with asyncio.timeout(10):
        while channel.test().reconnection_count < 2:  # noqa: ASYNC110  there is no event for half a recovery
            await asyncio.sleep(0)
    with pytest.raises(errors.NotFound):
        await channel.queue_declare(name, passive=True)
    go_on.set()
    await signal.wait()
    for one in (channel, slow):
        async with asyncio.timeout(10):
            await one.exchange_declare("amq.direct", passive=True)


@pytest.mark.parametrize("how", ["half-close", "stall"])
async def test_a_network_that_goes_quiet(broker_url: str, name: str, how: str) -> None:
    """An end of stream is seen at once, a silence by the missing heartbeats."""
    async with FaultProxy(urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=1"
        async with warren.connect(url, timeout=20, recovery=FAST) as connection, connection.channel() as channel:
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
            async with asyncio.timeout(10):
                await channel.queue_declare(name, passive=True)
    async with asyncio.timeout(10):
        await eventually(lambda: _unused(channel, name))
        await channel.queue_delete(name)
    assert list(connection._channels) == [channel]
    assert not channel._subscriptions


async def _unused(channel: Channel, queue: str) -> bool:
    return (await channel.queue_declare(queue, passive=True)).consumer_count == 0


async def test_a_broker_that_is_restarted(name: str) -> None:
    """All its queues are gone; what was declared is there again, and the consumer goes on."""
    broker = Broker()
    await broker.start()
    port = urlsplit(broker.url).port
    async with warren.connect(broker.url, timeout=20, recovery=FAST) as connection, connection.channel() as channel:
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
            async with asyncio.timeout(10):
                assert (await anext(consumer)).body == b"after"
            await connection.close()


@pytest.mark.slow
async def test_a_rabbitmq_that_is_restarted(name: str) -> None:
    with RabbitMQ() as server:
        async with warren.connect(server.url, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
            await channel.queue_declare(name, durable=True)
            await channel.queue_declare(f"{name}.mine", exclusive=True)
            await channel.confirm_select()
            await channel.publish(Message(b"kept", delivery_mode=2), "", name)
            consumer = channel.consume(name)
            await consumer.start()
            (await anext(consumer)).nack()
            events = connection.events()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(60):
                async for event in events:
                    if isinstance(event, e.Recovered):
                        assert event.skipped == []
                        break
                async for delivery in consumer:
                    assert delivery.body == b"kept"
                    delivery.ack()
                    break
            assert (await channel.queue_declare(f"{name}.mine", passive=True)).message_count == 0


async def test_a_mistake_in_recovery_ends_the_connection(
    connection: Connection, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistake(*arguments: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(type(channel), "_put_back", mistake)
    connection.test().disconnect_transport()
    assert "a mistake" in str(await connection.wait_closed())
    with pytest.raises(errors.ChannelClosed, match="a mistake"):
        await channel.queue_declare("q")


def test_a_program_that_fails_ends(warren_url: str) -> None:
    """With a live iterator, a killed connection and a redial under way, an error still leaves through asyncio.run."""

    async def program() -> None:
        connection = await warren.connect(warren_url)
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
    for bad in (lambda: Backoff(-1, 1), lambda: Backoff(2, 1), lambda: Backoff(1, 2, 0.5)):
        with pytest.raises(errors.InvalidArgument):
            bad()
    with pytest.raises(errors.InvalidArgument, match="topology='some'"):
        Recovery(topology="some")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="give_up_after"):
        Recovery(give_up_after=-1)
