"""The client's features are middlewares: what each does over a loss, what being without it means; on both brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.middleware.registry import FEATURES, Middlewares
from harebell.client.recovery.confirms import Confirms
from harebell.client.recovery.features import DEFAULT_FEATURES
from harebell.client.recovery.qos import Qos
from harebell.protocol.v091 import methods as m
from tests.client.outages import FAST, bodies, eventually, next_of, ready


@asynccontextmanager
async def without(url: str, *features: str) -> AsyncIterator[tuple[Connection, Channel]]:
    async with harebell.connect(
        url, timeout=60, recovery=FAST, middleware=Middlewares().without(*features)
    ) as connection:
        yield connection, await connection.channel()


def test_their_names() -> None:
    assert set(FEATURES) == {
        "qos", "flow", "confirms", "transactions", "publish_tags", "delivery_tags", "topology", "logging",
    }  # fmt: skip


@pytest.mark.parametrize("has", [True, False])
async def test_qos(broker_url: str, name: str, other: Channel, has: bool) -> None:
    async with without(broker_url, *([] if has else ["qos"])) as (_, channel):
        await other.queue_declare(name)
        await channel.qos(prefetch_count=1)
        await channel.test().force_reconnect()
        async with channel.consume(name) as consumer:
            await other.confirm_select()
            await other.publish_many([harebell.Publication(b"m", "", name)] * 3)
            first = await anext(consumer)

            async def all_came() -> bool:
                await channel.queue_inspect(name)
                return consumer.buffered == 2

            if has:
                assert not await all_came()
                assert consumer.buffered == 0
            else:
                await eventually(all_came)
            first.ack()
            for _ in range(2):
                (await anext(consumer)).ack()
        assert ("qos" in channel.chains.providers) == has
        await other.queue_delete(name)


async def test_the_limit_of_each_consumer_comes_back(harebell_url: str, name: str) -> None:
    """Each consumer gets what limited it when it was made, and later ones what the channel was told last."""
    async with without(harebell_url) as (_, channel):
        await channel.queue_declare(name, exclusive=True)
        consumers = [channel.consume(name, prefetch=n, consumer_tag=f"c{n}") for n in (5, 7)]
        for consumer in consumers:
            await consumer.start()
        await channel.qos(prefetch_count=3)
        await channel.qos(prefetch_count=100, global_=True)
        sent: list[m.Method] = []
        request = type(channel.core).request

        def requesting(core: object, slot: object) -> None:
            sent.append(slot.request)  # type: ignore[attr-defined]
            request(core, slot)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(channel.core), "request", requesting)
            await channel.test().force_reconnect()
        limits = [
            (method.prefetch_count, method.global_) if isinstance(method, m.BasicQos) else type(method)
            for method in sent
            if isinstance(method, m.BasicQos | m.BasicConsume)
        ]
        assert limits == [
            (3, False), (100, True),
            (5, False), m.BasicConsume, (3, False), (100, True),
            (7, False), m.BasicConsume, (3, False), (100, True),
        ]  # fmt: skip


async def test_ended_consumers_are_forgotten(harebell_url: str, name: str) -> None:
    async with without(harebell_url) as (_, channel):
        await channel.queue_declare(name, exclusive=True)
        for _ in range(100):
            async with channel.consume(name, prefetch=1):
                pass
        feature = channel.test().provider("qos")
        assert isinstance(feature, Qos)
        assert len(feature._consumers) < 40


@pytest.mark.parametrize("has", [True, False])
async def test_flow(harebell_url: str, name: str, has: bool) -> None:
    """RabbitMQ refuses to hold deliveries back: Harebell alone."""
    async with without(harebell_url, *([] if has else ["flow"])) as (_, channel):
        await channel.queue_declare(name, exclusive=True)
        async with channel.consume(name) as consumer:
            await channel.flow(False)
            await channel.test().force_reconnect()
            await channel.publish(b"m", "", name)
            if has:
                assert (await channel.queue_inspect(name)).message_count == 1
                await channel.flow(True)
            assert (await anext(consumer)).body == b"m"


@pytest.mark.parametrize("has", [True, False])
async def test_confirms(broker_url: str, name: str, other: Channel, has: bool) -> None:
    async with without(broker_url, *([] if has else ["confirms"])) as (_, channel):
        await other.queue_declare(name)
        await channel.confirm_select()
        assert await channel.publish(b"1", "", name) is not None
        await channel.test().force_reconnect()
        assert (await channel.publish(b"2", "", name) is not None) == has
        assert await channel.publish_many([harebell.Publication(b"3", "", name)]) == 1
        channel.confirmations()
        if not has:
            with pytest.raises(errors.LocalProtocolError, match="confirm_select"):
                await channel.send(b"4", "", name)
            await channel.confirm_select()  # asked for again, it is there again
            assert await channel.publish(b"4", "", name) is not None
        await channel.queue_inspect(name)
        assert await bodies(other, name) == [b"1", b"2", b"3"] + ([] if has else [b"4"])
        await other.queue_delete(name)


@pytest.mark.parametrize("has", [True, False])
async def test_transactions(broker_url: str, name: str, other: Channel, has: bool) -> None:
    async with without(broker_url, *([] if has else ["transactions"])) as (_, channel):
        await other.queue_declare(name)
        await channel.tx_select()
        await channel.publish(b"before", "", name)
        await channel.test().force_reconnect()
        await channel.publish(b"after", "", name)
        with pytest.raises(errors.TransactionLost if has else errors.PreconditionFailed):
            await channel.tx_commit()
        # Without the feature the channel came back without a transaction.
        assert await bodies(other, name) == ([] if has else [b"after"])
        if has:
            await channel.publish(b"again", "", name)
            await channel.tx_commit()
            assert await bodies(other, name) == [b"again"]
        await other.queue_delete(name)


@pytest.mark.parametrize("has", [True, False])
async def test_publish_tags(broker_url: str, name: str, other: Channel, has: bool) -> None:
    async with without(broker_url, *([] if has else ["publish_tags"])) as (connection, channel):
        await other.queue_declare(name)
        await channel.confirm_select()
        tags = [tag for _ in range(2) if (tag := await channel.publish(b"m", "", name))]
        await channel.test().force_reconnect()
        tags += [tag for _ in range(2) if (tag := await channel.publish(b"m", "", name))]
        assert [confirmation.publish_tag for confirmation in tags] == ([1, 2, 3, 4] if has else [1, 2, 1, 2])
        assert channel.statistics().published == channel.statistics().confirmed == 4
        waiting = asyncio.ensure_future(channel.publish(b"m", "", name))
        await asyncio.sleep(0)
        channel.core.lose(errors.ConnectionLost("cut"))
        with pytest.raises(errors.PublishOrphaned):
            await waiting
        assert await channel.publish(b"m", "", name) is not None
        assert channel.statistics().orphaned == 1
        assert not connection.is_closed
        await other.queue_delete(name)


async def test_delivery_tags(broker_url: str, name: str, other: Channel) -> None:
    async with without(broker_url) as (_, channel):
        await other.queue_declare(name)
        await other.publish(b"m", "", name)
        async with channel.consume(name) as consumer:
            first = await anext(consumer)
            await channel.test().force_reconnect()
            second = await anext(consumer)
            assert (first.delivery_tag, second.delivery_tag) == (1, 2)
            with pytest.raises(errors.AcknowledgeOrphans):
                first.ack()
            second.ack()
        await other.queue_delete(name)


@pytest.mark.parametrize("how", ["the delivery", "the channel"])
async def test_without_delivery_tags(broker_url: str, name: str, other: Channel, how: str) -> None:
    """The tags are those of the wire, and a stale acknowledgement reaches the broker: what it settles is chance."""
    async with without(broker_url, "delivery_tags") as (_, channel):
        await other.queue_declare(name)
        await other.confirm_select()
        await other.publish_many([harebell.Publication(b"%d" % n, "", name) for n in range(3)])
        stale = []
        for _ in range(3):
            delivery = await channel.get(name)
            assert delivery is not None
            stale.append(delivery)
        assert [delivery.delivery_tag for delivery in stale] == [1, 2, 3]
        await channel.test().force_reconnect()
        await ready(other, name, 3)
        again = await channel.get(name)
        assert again is not None
        assert again.delivery_tag == 1
        if how == "the delivery":
            stale[0].ack()
        else:
            channel.ack(1)
        await channel.queue_inspect(name)
        assert channel.statistics().unacked == 0  # it has settled the other delivery
        with pytest.raises(errors.LocalProtocolError, match="3, which never came"):
            stale[2].ack()  # a tag that this wire channel has not delivered
        assert await bodies(other, name) == [b"1", b"2"]
        await other.queue_delete(name)


@pytest.mark.parametrize("has", [True, False])
async def test_topology(broker_url: str, name: str, has: bool) -> None:
    async with without(broker_url, *([] if has else ["topology"])) as (connection, channel):
        queue = await channel.queue_declare(name, exclusive=True)
        ends = connection.events()
        async with channel.consume(queue.name) as consumer:
            await connection.test().force_reconnect()
            if has:
                await channel.publish(b"m", "", queue.name)
                (await anext(consumer)).ack()
            else:
                gone = (errors.NotFound, errors.ResourceLocked)  # locked: RabbitMQ has yet to notice the cut
                assert (await next_of(ends, e.ConsumerEnded)).queue == name
                with pytest.raises(gone):
                    await anext(consumer)
                with pytest.raises(gone):
                    await channel.queue_inspect(name)


async def test_without_topology_on_one_channel(harebell_url: str, name: str) -> None:
    async with without(harebell_url) as (connection, channel):
        async with connection.channel(middleware=Middlewares().without("topology")) as forgetful:
            await forgetful.queue_declare(f"{name}.1", auto_delete=True, exclusive=True)
            await channel.queue_declare(f"{name}.2", exclusive=True)
            await connection.test().force_reconnect()
            await channel.queue_inspect(f"{name}.2")
            with pytest.raises(errors.NotFound):
                await channel.queue_inspect(f"{name}.1")


async def test_a_feature_of_ones_own_in_its_place(harebell_url: str, name: str) -> None:
    class Mine(Confirms):
        id = "confirms"

    middlewares = Middlewares().without("confirms").add_provider(Mine)
    async with harebell.connect(harebell_url, recovery=FAST, middleware=middlewares) as connection:
        async with connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            await channel.confirm_select()
            await channel.test().force_reconnect()
            assert await channel.publish(b"m", "", name) is not None
            assert isinstance(channel.test().provider("confirms"), Mine)


async def test_everything_comes_back_in_its_order(harebell_url: str, name: str) -> None:
    """Tags and topology, confirms, flow, limits, and last the consumers."""
    async with without(harebell_url) as (_, channel):
        await channel.queue_declare(name, auto_delete=True)
        await channel.confirm_select()
        await channel.flow(False)
        await channel.qos(prefetch_count=9)
        async with channel.consume(name):
            sent: list[type] = []
            request = type(channel.core).request

            def requesting(core: object, slot: object) -> None:
                sent.append(type(slot.request))  # type: ignore[attr-defined]
                request(core, slot)  # type: ignore[arg-type]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(channel.core), "request", requesting)
                await channel.test().force_reconnect()
            assert sent == [
                m.ChannelOpen,  # the channel's own
                m.ChannelOpen,  # the topology's
                m.QueueDeclare,
                m.ConfirmSelect,
                m.ChannelFlow,
                m.BasicQos,
                m.BasicConsume,
            ]


def test_their_names_are_those_that_can_be_taken_out() -> None:
    assert tuple(feature.id for feature in DEFAULT_FEATURES) == FEATURES
