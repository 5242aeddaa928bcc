"""The connection is cut at every byte of a publish, a confirm, a delivery and an ack, and everything is counted.

Through a proxy that lets so many bytes through and then resets the connection: before, inside and after every frame.
What must hold, wherever the cut falls: every publication ends acked, nacked or orphaned, and one that was acked is in
the queue; every message that is in the queue is delivered until it is acknowledged, and none that was is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

import pytest

import warren
from warren import errors
from warren.client.channel import Channel
from warren.client.connection import Connection
from warren.client.records import Message, Publication
from warren.client.recovery import Backoff, Recovery
from warren.testing import FaultProxy

FAST = Recovery(backoff=Backoff(0.0, 0.02))
# A publish is some 100 bytes in 3 frames, a confirm 21, a delivery some 120, an ack 21: every place in the first two
# rounds of each, and then steps that do not divide them.
PLACES = {"warren": [*range(260), *range(260, 2000, 37)], "rabbitmq": [*range(0, 130, 5), *range(130, 900, 61)]}

Direction = Literal["to_server", "to_client"]


def broker_of(url: str, warren_url: str) -> str:
    return "warren" if url == warren_url else "rabbitmq"


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[FaultProxy, Connection]]:
    async with FaultProxy(urlsplit(url).hostname or "", urlsplit(url).port or 0) as proxy:
        through = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        async with warren.connect(through, timeout=30, recovery=FAST) as connection:
            yield proxy, connection


async def drained(channel: Channel, queue: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found[delivery.body] += 1
    return found


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_every_publication_ends_acked_nacked_or_orphaned(
    broker_url: str, warren_url: str, name: str, direction: Direction
) -> None:
    ends: Counter[str] = Counter()
    seen: Counter[bytes] = Counter()
    async with (
        warren.connect(broker_url) as own,
        own.channel() as observer,
        proxied(broker_url) as (proxy, connection),
        connection.channel() as channel,
    ):
        await observer.queue_declare(name)
        await channel.confirm_select()
        last_tag = 0
        for place in PLACES[broker_of(broker_url, warren_url)]:
            cuts = connection.test().reconnection_count
            proxy.cut_after(place, direction)
            messages = [f"{place}.{n}".encode() for n in range(4)]
            results = await asyncio.gather(
                *[channel.publish(Message(body, message_id="1"), "", name) for body in messages],
                return_exceptions=True,
            )
            acked = set()
            for body, result in zip(messages, results, strict=True):
                if isinstance(result, errors.PublishOrphaned):
                    ends["orphaned"] += 1
                    tag = result.publish_tags[0]
                else:
                    assert isinstance(result, warren.Confirmation), result
                    ends["acked"] += 1
                    acked.add(body)
                    tag = result.publish_tag
                assert tag > last_tag  # the numbers go on over every cut
                last_tag = tag
            if connection.test().reconnection_count == cuts and connection.state == "open":
                await channel.exchange_declare("amq.direct", passive=True)  # meets the cut, or there was none
            proxy.cut_after(1 << 40, direction)
            found = await drained(observer, name)
            assert acked <= set(found), f"cut after {place} bytes {direction}: a confirmed message is not in the queue"
            seen += found  # an orphaned one may come late: the broker reads what the dead connection left
        assert max(seen.values()) == 1
        await observer.queue_delete(name)
    assert ends["acked"]
    assert ends["orphaned"]
    assert sum(ends.values()) == 4 * len(PLACES[broker_of(broker_url, warren_url)])


async def test_published_again_nothing_is_lost(broker_url: str, warren_url: str, name: str) -> None:
    async with (
        warren.connect(broker_url) as own,
        own.channel() as observer,
        proxied(broker_url) as (proxy, connection),
        connection.channel() as channel,
    ):
        await observer.queue_declare(name)
        await channel.confirm_select(on_orphan="retry")
        for place in PLACES[broker_of(broker_url, warren_url)][::5]:
            proxy.cut_after(place, "to_client" if place % 2 else "to_server")
            messages = [f"{place}.{n}".encode() for n in range(30)]
            assert await channel.publish_many([Publication(body, "", name) for body in messages], window=8) == 30
            proxy.cut_after(1 << 40, "to_client")
            proxy.cut_after(1 << 40, "to_server")
            assert set(await drained(observer, name)) == set(messages)
        await observer.queue_delete(name)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_every_delivery_is_acked_or_delivered_again(
    broker_url: str, warren_url: str, name: str, direction: Direction
) -> None:
    places = PLACES[broker_of(broker_url, warren_url)]
    counts: Counter[str] = Counter()
    told: list[tuple[bool, int]] = []
    async with (
        warren.connect(broker_url) as own,
        own.channel() as publisher,
        proxied(broker_url) as (proxy, connection),
        connection.channel() as channel,
    ):
        await publisher.queue_declare(name)
        await publisher.confirm_select()
        consumer = channel.consume(name, prefetch=3)
        await consumer.start()
        last_tag = 0
        for place in places:
            proxy.cut_after(place, direction)
            bodies = [f"{place}.{n}".encode() for n in range(3)]
            await publisher.publish_many([Publication(body, "", name) for body in bodies])
            waiting = set(bodies)  # for an acknowledgement that nothing went wrong with
            while waiting:
                async with asyncio.timeout(20):
                    delivery = await anext(consumer)
                assert delivery.delivery_tag == last_tag + 1  # without a gap, over every cut
                last_tag = delivery.delivery_tag
                counts["delivered"] += 1
                if delivery.body not in bodies:  # acked before, and the cut came first
                    assert delivery.redelivered
                try:
                    delivery.ack()
                except errors.AcknowledgeOrphans as orphan:
                    told.append((orphan.first == orphan.last == last_tag, orphan.success_count))
                    counts["orphaned"] += 1
                    continue  # it will come again
                waiting.discard(delivery.body)
            proxy.cut_after(1 << 40, direction)
        # What was written as an ack and cut on its way comes again; nothing else does, and nothing is left behind.
        await channel.exchange_declare("amq.direct", passive=True)
        await consumer.cancel()
        left = await drained(publisher, name)
        assert sum(left.values()) <= 3
        await publisher.queue_delete(name)
    assert connection.closed_reason is not None
    assert set(told) <= {(True, 0)}
    assert counts["delivered"] >= 3 * len(places)
    assert connection.test().reconnection_count >= 5


async def test_acks_are_never_taken_for_those_of_another_delivery(warren_url: str, name: str) -> None:
    """Single and multiple acks over many cuts: no ack of an old delivery settles a new one, or kills the channel."""
    async with warren.connect(warren_url, recovery=FAST) as connection, connection.channel() as channel:
        await channel.queue_declare(name)
        await channel.confirm_select()
        await channel.publish_many([Publication(str(n).encode(), "", name) for n in range(200)])
        consumer = channel.consume(name, prefetch=10)
        await consumer.start()
        held: list[warren.Delivery] = []
        done: set[bytes] = set()

        def ack(chosen: warren.Delivery, multiple: bool) -> None:
            covered = [d for d in held if d is chosen or (multiple and d.delivery_tag <= chosen.delivery_tag)]
            held[:] = [d for d in held if d not in covered]
            alive = {d.body for d in covered if d.delivery_tag > channel._core.deliveries.offset}
            told = (0, len(alive))
            try:
                chosen.ack(multiple=multiple)
            except errors.AcknowledgeOrphans as error:
                told = (error.orphan_count, error.success_count)
            assert told == (len(covered) - len(alive), len(alive))
            done.update(alive)

        for n in range(2000):
            if len(done) == 200:
                break
            async with asyncio.timeout(20):
                held.append(await anext(consumer))
            if n % 5 == 4:
                ack(held[len(held) // 2], multiple=n % 2 == 0)
            if n % 7 == 6:
                await channel.test().force_reconnect()
            elif len(held) >= 10 or len(done | {d.body for d in held}) == 200:  # nothing more will come
                ack(held[-1], multiple=True)
        await consumer.cancel()
        left = await drained(channel, name)
        assert not (set(left) & done), "an acknowledged message came back"
        assert not channel.is_closed
        assert connection.test().reconnection_count == 1
        await channel.queue_delete(name)
