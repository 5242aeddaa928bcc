"""What comes back after a loss, topology and channels, and what is told about it; against both brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication
from harebell.client.middleware.hooks import SubscribeArgs
from harebell.client.middleware.registry import Middlewares
from harebell.client.recovery.policy import Backoff, Pauses, Recovery
from harebell.client.recovery.recorded_topology import Bind
from harebell.client.recovery.redeclare import Redeclaration
from harebell.client.servers import product_of
from harebell.testing import FaultProxy
from tests.client.outages import FAST, bodies, eventually, next_of
from tests.fixtures.rabbitmq import EACH

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
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
        assert (await anext(consumer)).body == b"m"
    await other.queue_delete(bad)


@pytest.mark.parametrize("broker", [*EACH, "harebell"])
async def test_an_exclusive_queue_that_the_dead_connection_holds_is_waited_for(
    broker: str, request: pytest.FixtureRequest, name: str
) -> None:
    url = request.getfixturevalue(broker).url if broker in EACH else request.getfixturevalue("harebell_url")
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0
    async with FaultProxy(host, port) as proxy:
        urls = [f"amqp://guest:guest@{proxy.host}:{proxy.port}/", url]
        async with harebell.connect(urls, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
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
            said = f"queue '{name}' is not back within 0.1 s: 405 RESOURCE_LOCKED"
            with pytest.raises(errors.DeadlineExceeded, match=said):
                await channel.queue_declare(name, exclusive=True, timeout=0.1)
            asked = asyncio.ensure_future(channel.queue_declare(name, passive=True))
            await channel.exchange_declare("amq.direct", passive=True)
            assert not asked.done()
            proxy.resume()
            assert (await next_of(events, e.QueueRecovered)).queue == name
            assert (await asked).consumer_count == 1
            await channel.publish(b"m", "amq.direct", name)
            async with asyncio.timeout(60):
                assert (await anext(consumer)).body == b"m"


@pytest.mark.parametrize("when", ["before its bindings", "before its consumers"])
async def test_an_auto_delete_queue_that_goes_with_the_dead_connection(
    connection: Connection, other: Channel, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was still there when it was declared again, and its last consumer was the lost connection's."""
    gone = asyncio.Event()

    async def goes() -> None:
        if not gone.is_set():
            gone.set()
            await other.queue_delete(name)

    async def subscribing(call_next: Callable[[SubscribeArgs], Awaitable[None]], args: SubscribeArgs) -> None:
        if args.again and when == "before its consumers":
            await goes()
        await call_next(args)

    bind = Redeclaration._bind

    async def gone_before(self: Redeclaration, binds: Sequence[Bind]) -> None:
        if when == "before its bindings":
            await goes()
        await bind(self, binds)

    monkeypatch.setattr(Redeclaration, "_bind", gone_before)
    async with connection.channel(middleware=Middlewares().add("subscribe", subscribing)) as channel:
        await channel.queue_declare(name, auto_delete=True)
        await channel.queue_bind(name, "amq.direct", name)
        await channel.queue_bind(name, "amq.fanout")
        consumer = channel.consume(name)
        await consumer.start()
        events = connection.events()
        await connection.test().force_reconnect()
        assert (await next_of(events, e.Recovered)).skipped == []
        assert (await next_of(events, e.QueueRecovered)).skipped == []
        assert gone.is_set()
        assert (await channel.queue_declare(name, passive=True)).consumer_count == 1
        await channel.confirm_select()
        for exchange in ("amq.direct", "amq.fanout"):
            await channel.publish(b"m", exchange, name, mandatory=True)
            async with asyncio.timeout(60):
                (await anext(consumer)).ack()


async def test_the_transient_part_only(broker_url: str, other: Channel, name: str) -> None:
    recovery = Recovery(backoff=Backoff(0, 0), topology="transient")
    async with harebell.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        await channel.queue_declare(f"{name}.durable", durable=True)
        await channel.queue_declare(f"{name}.mine", exclusive=True)
        with connection.test().reconnect_blocked():
            await other.queue_delete(f"{name}.durable")
        await channel.queue_declare(f"{name}.mine", passive=True)
        with pytest.raises(errors.NotFound):
            await channel.queue_declare(f"{name}.durable", passive=True)


async def test_no_topology_at_all(broker_url: str, name: str) -> None:
    recovery = Recovery(backoff=Backoff(0, 0), topology="none")
    async with harebell.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
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
    # Harebell applies a new prefetch to running consumers, too.
    limits = [3, 5, 5] if product_of(connection.server_properties) == "RabbitMQ" else [5, 5, 5]
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
    async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
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


async def test_flow_comes_back(harebell_url: str, name: str) -> None:
    async with harebell.connect(harebell_url, recovery=FAST) as connection, connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        async with channel.consume(name) as consumer:
            await channel.flow(False)
            await connection.test().force_reconnect()
            await channel.publish(b"m", "", name)
            assert (await channel.queue_declare(name, passive=True)).message_count == 1
            assert consumer.buffered == 0
            await channel.flow(True)
            async with asyncio.timeout(60):
                assert (await anext(consumer)).body == b"m"


async def test_an_orphan_costs_nobody_else_anything(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name)
    await channel.confirm_select()
    await channel.publish_many([Publication(str(n).encode(), "", name) for n in range(3)])
    consumer = channel.consume(name)
    await consumer.start()
    old = [await anext(consumer) for _ in range(3)]
    await connection.test().force_reconnect()
    async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            await anext(consumer)
    await channel.queue_declare(name, exclusive=True)


# -- a channel alone ---------------------------------------------------------------------------------------------------


async def test_a_program_that_polls_for_a_queue_is_not_held_back(
    connection: Connection, channel: Channel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal costs the channel, and is the answer to a call: the program sets its pace itself."""
    slow = await connection.channel()
    monkeypatch.setattr(slow.recovery, "_pauses", Pauses(Backoff(60, 60)))
    async with asyncio.timeout(60):
        for _ in range(10):
            with pytest.raises(errors.NotFound):
                await slow.queue_inspect(f"{name}.missing")
        assert (await slow.queue_declare(name, exclusive=True)).message_count == 0
    assert slow.test().reconnection_count == 11


async def test_a_channel_that_no_call_has_closed_is_opened_more_and_more_slowly_to_a_limit(
    connection: Connection, channel: Channel, name: str
) -> None:
    pauses: list[float] = []
    policy = Recovery(backoff=Backoff(20, 1000))
    async with harebell.connect(connection.parameters, timeout=60, recovery=policy) as patient:
        slow = await patient.channel()
        pause = slow.recovery._pauses
        assert pause is not None
        pauses = [pause.next(n) for n in range(20)]
    assert pauses[0] == 0
    assert 0.5 < max(pauses) <= 2


async def test_what_a_channel_has_declared_is_declared_again_when_it_alone_drops(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    exchange, queue, elses = f"{name}.x", f"{name}.q", f"{name}.elses"
    async with connection.channel() as second:
        await second.queue_declare(elses)
        await channel.exchange_declare(exchange, "topic")
        await channel.queue_declare(queue)
        await channel.queue_bind(queue, exchange, "a.*")
        await channel.exchange_bind("amq.fanout", exchange, name)
        await channel.queue_declare(f"{name}.gone")
        await channel.queue_delete(f"{name}.gone")
        for missing in (queue, elses):
            await other.queue_delete(missing)
        await other.exchange_delete(exchange)
        await channel.test().force_reconnect()
        await channel.confirm_select()
        await channel.publish(b"m", exchange, "a.b", mandatory=True)
        assert await bodies(channel, queue) == [b"m"]
        for missing in (elses, f"{name}.gone"):  # another channel's, and what was deleted
            with pytest.raises(errors.NotFound):
                await other.queue_declare(missing, passive=True)
    await other.queue_delete(queue)
    await other.exchange_delete(exchange)


async def test_an_exclusive_consumer_that_waits_costs_the_channel_once(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    """Another program has taken the queue during an outage: other consumers of the channel go on meanwhile."""
    busy, ours = f"{name}.busy", f"{name}.ours"
    for queue in (busy, ours):
        await other.queue_declare(queue)
    events = connection.events()
    waiting, going_on = channel.consume(busy, exclusive=True), channel.consume(ours)
    await waiting.start()
    await going_on.start()
    with connection.test().reconnect_blocked():
        async with asyncio.timeout(60):
            while True:
                rival = other.consume(busy, exclusive=True)
                try:
                    await rival.start()
                    break
                except errors.AccessRefused:  # until the broker has noticed the cut
                    continue
    assert (await next_of(events, e.ConsumerWaiting)).queue == busy
    count = 0
    while count < 16:
        await other.publish(b"%d" % count, "", ours)
        async with asyncio.timeout(60):
            (await anext(going_on)).ack()
        count += 1
        await asyncio.sleep(0.01)
    reopened = channel.test().reconnection_count
    assert reopened <= 3
    await rival.cancel()
    await next_of(events, e.QueueRecovered)
    await other.publish(b"m", "", busy)
    async with asyncio.timeout(60):
        (await anext(waiting)).ack()
    assert channel.test().reconnection_count == reopened
    for queue in (busy, ours):
        await other.queue_delete(queue)
