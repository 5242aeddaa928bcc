"""The connection is cut at every byte of a publish, a confirm, a delivery and an ack, and everything is counted.

Through a proxy that lets so many bytes, or frames and bytes, through and then resets the connection: before, inside and
after every frame. Transactions, gets, returns and subscriptions, which are several frames, are cut at each of these.
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

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication
from harebell.testing import FaultProxy
from tests.client.outages import FAST

# A publish is some 100 bytes in 3 frames, a confirm 21, a delivery some 120, an ack 21: every place in the first two
# rounds of each, and then steps that do not divide them.
PLACES = {"harebell": [*range(260), *range(260, 2000, 37)], "rabbitmq": [*range(0, 130, 5), *range(130, 900, 61)]}

Direction = Literal["to_server", "to_client"]


def broker_of(url: str, harebell_url: str) -> str:
    return "harebell" if url == harebell_url else "rabbitmq"


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[FaultProxy, Connection]]:
    async with FaultProxy(urlsplit(url).hostname or "", urlsplit(url).port or 0) as proxy:
        through = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        async with harebell.connect(through, timeout=60, recovery=FAST) as connection:
            yield proxy, connection


@asynccontextmanager
async def cut_beside(url: str, queue: str) -> AsyncIterator[tuple[FaultProxy, Connection, Channel, Channel]]:
    """A proxy, a connection and a channel through it, and a channel past it, on which the queue is declared."""
    async with (
        harebell.connect(url) as own,
        own.channel() as beside,
        proxied(url) as (proxy, connection),
        connection.channel() as channel,
    ):
        await beside.queue_declare(queue)
        yield proxy, connection, channel, beside


async def drained(channel: Channel, queue: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found[delivery.body] += 1
    return found


@pytest.mark.repeats
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_every_publication_ends_acked_nacked_or_orphaned(
    broker_url: str, harebell_url: str, name: str, direction: Direction
) -> None:
    ends: Counter[str] = Counter()
    seen: Counter[bytes] = Counter()
    async with cut_beside(broker_url, name) as (proxy, connection, channel, observer):
        await channel.confirm_select()
        last_tag = 0
        for place in PLACES[broker_of(broker_url, harebell_url)]:
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
                    assert isinstance(result, harebell.Confirmation), result
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
    assert sum(ends.values()) == 4 * len(PLACES[broker_of(broker_url, harebell_url)])


async def test_published_again_nothing_is_lost(broker_url: str, harebell_url: str, name: str) -> None:
    async with cut_beside(broker_url, name) as (proxy, _, channel, observer):
        await channel.confirm_select(on_orphan="retry")
        for place in PLACES[broker_of(broker_url, harebell_url)][::5]:
            proxy.cut_after(place, "to_client" if place % 2 else "to_server")
            messages = [f"{place}.{n}".encode() for n in range(30)]
            assert await channel.publish_many([Publication(body, "", name) for body in messages], window=8) == 30
            proxy.cut_after(1 << 40, "to_client")
            proxy.cut_after(1 << 40, "to_server")
            assert set(await drained(observer, name)) == set(messages)
        await observer.queue_delete(name)


@pytest.mark.repeats
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_every_delivery_is_acked_or_delivered_again(
    broker_url: str, harebell_url: str, name: str, direction: Direction
) -> None:
    places = PLACES[broker_of(broker_url, harebell_url)]
    counts: Counter[str] = Counter()
    told: list[tuple[bool, int]] = []
    async with cut_beside(broker_url, name) as (proxy, connection, channel, publisher):
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
                async with asyncio.timeout(60):
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


async def test_acks_are_never_taken_for_those_of_another_delivery(harebell_url: str, name: str) -> None:
    """Single and multiple acks over many cuts: no ack of an old delivery settles a new one, or kills the channel."""
    async with harebell.connect(harebell_url, recovery=FAST) as connection, connection.channel() as channel:
        await channel.queue_declare(name)
        await channel.confirm_select()
        await channel.publish_many([Publication(str(n).encode(), "", name) for n in range(200)])
        consumer = channel.consume(name, prefetch=10)
        await consumer.start()
        held: list[harebell.Delivery] = []
        done: set[bytes] = set()

        def ack(chosen: harebell.Delivery, multiple: bool) -> None:
            covered = [d for d in held if d is chosen or (multiple and d.delivery_tag <= chosen.delivery_tag)]
            held[:] = [d for d in held if d not in covered]
            alive = {d.body for d in covered if d.delivery_tag > channel.core.deliveries.offset}
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
            async with asyncio.timeout(60):
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


# -- frame by frame: what more than one frame, or more than one method, makes whole ------------------------------------

INSIDE = (0, 3, 9)  # bytes of the next frame: none, half of its header, two of its payload


def frame_cuts(frames: int) -> list[tuple[Direction, int, int]]:
    """Before, inside and after each of so many frames, both ways."""
    return [
        (direction, count, inside)
        for direction in ("to_server", "to_client")
        for count in range(frames)
        for inside in INSIDE
    ]


async def test_a_transaction_is_whole_or_nothing(broker_url: str, name: str) -> None:
    """Three publications are nine frames; the commit is the tenth, its answer the first the other way."""
    told: dict[bytes, str] = {}
    async with cut_beside(broker_url, name) as (proxy, _, channel, observer):
        await channel.tx_select()
        for direction, count, inside in frame_cuts(11):
            transaction = f"{direction}.{count}.{inside}".encode()
            proxy.cut_after_frames(count, direction, inside=inside)
            for _ in range(3):
                await channel.publish(transaction, "", name)
            if inside == 3:  # the loss comes before the commit, or behind it
                await channel.exchange_declare("amq.direct", passive=True)
            try:
                await channel.tx_commit()
                told[transaction] = "whole"
            except errors.TransactionLost as error:
                told[transaction] = "either" if "whole, or not at all" in str(error) else "nothing"
            proxy.no_cut()
            await channel.tx_rollback()
        found = await drained(observer, name)
        await observer.queue_delete(name)
    allowed = {"whole": {3}, "nothing": {0}, "either": {0, 3}}
    assert [(t, end, found[t]) for t, end in told.items() if found[t] not in allowed[end]] == []
    assert set(told.values()) == {"whole", "nothing", "either"}


async def test_what_is_got_and_what_is_acked_in_bulk(broker_url: str, name: str) -> None:
    """get, ack, nack and an ack of several: every message is taken once for good, and none is lost."""
    done: Counter[bytes] = Counter()
    async with cut_beside(broker_url, name) as (proxy, connection, channel, publisher):
        await publisher.confirm_select()
        cuts = frame_cuts(6)
        for direction, frames, inside in cuts:
            bodies = [f"{direction}.{frames}.{inside}.{n}".encode() for n in range(3)]
            await publisher.publish_many([Publication(body, "", name) for body in bodies])
            proxy.cut_after_frames(frames, direction, inside=inside)
            held = [delivery for _ in range(3) if (delivery := await channel.get(name)) is not None]
            first, last = held[0], held[-1]
            settled, count = held[1:], len(held) - 1
            try:
                first.nack()
            except errors.AcknowledgeOrphans:
                pass  # it comes again
            try:
                last.ack(multiple=True)
            except errors.AcknowledgeOrphans as told:
                settled = [d for d in settled if told.success_first <= d.delivery_tag <= told.success_last]
                count = told.success_count
            assert len(settled) == count
            done.update(delivery.body for delivery in settled)
            proxy.no_cut()
            await channel.exchange_declare("amq.direct", passive=True)
        left = await drained(publisher, name)
        await publisher.queue_delete(name)
    expected = {f"{direction}.{count}.{inside}.{n}".encode() for direction, count, inside in cuts for n in range(3)}
    assert set(left) | set(done) == expected
    assert max(left.values()) == 1
    assert connection.test().reconnection_count > len(cuts) // 3


async def test_a_return_that_is_cut_off_from_its_confirm(broker_url: str, name: str) -> None:
    ends: Counter[str] = Counter()
    async with proxied(broker_url) as (proxy, connection), connection.channel() as channel:
        await channel.confirm_select()
        for direction, count, inside in frame_cuts(5):
            proxy.cut_after_frames(count, direction, inside=inside)
            with pytest.raises((errors.Unroutable, errors.PublishOrphaned)) as caught:
                await channel.publish(b"nobody's", "", name, mandatory=True)
            ends[type(caught.value).__name__] += 1
            proxy.no_cut()
            await channel.exchange_declare("amq.direct", passive=True)
    # Cut in the three frames of the publication, or before the end of the third one back: a return is three, too, and
    # says what the confirm behind it would say.
    assert ends == {"PublishOrphaned": 3 * 3 + 3 * 3, "Unroutable": 2 * 3 + 2 * 3}


async def test_a_subscription_and_its_cancellation(broker_url: str, name: str) -> None:
    async with cut_beside(broker_url, name) as (proxy, _, channel, publisher):
        await publisher.confirm_select()
        for direction, count, inside in frame_cuts(6):
            await publisher.publish(b"m", "", name)
            proxy.cut_after_frames(count, direction, inside=inside)
            async with asyncio.timeout(60), channel.consume(name, prefetch=1) as consumer:
                while True:
                    try:
                        (await anext(consumer)).ack()
                        break
                    except errors.AcknowledgeOrphans:
                        pass
            proxy.no_cut()
            await channel.exchange_declare("amq.direct", passive=True)
            assert not channel.subscriptions.active
            assert not channel.core.consumers
            await publisher.queue_purge(name)  # an ack that was cut
        assert await publisher.queue_delete(name) == 0


async def test_an_opening_that_is_cut_raises_and_a_patient_one_connects(broker_url: str) -> None:
    """The header and three frames one way, three the other way; a fourth is channel.open, or its answer."""
    async with FaultProxy(urlsplit(broker_url).hostname or "", urlsplit(broker_url).port or 0) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        for direction, count, inside in frame_cuts(4):
            if (direction, count) == ("to_client", 3):
                continue
            proxy.cut_after_frames(count, direction, inside=inside)
            with pytest.raises(errors.ConnectionLost) as caught:
                await harebell.connect(url, timeout=60)
            assert f":{proxy.port}" in str(caught.value)
            proxy.cut_after_frames(count, direction, inside=inside)
            recovery = harebell.Recovery(backoff=harebell.Backoff(0.001, 0.01), first="retry")
            async with harebell.connect(url, timeout=60, recovery=recovery) as connection, connection.channel():
                assert connection.is_open
        async with asyncio.timeout(60):
            await proxy.wait_connections(0)  # no socket is left


async def test_a_goodbye_that_is_cut_is_one_all_the_same(broker_url: str) -> None:
    for direction, count, inside in frame_cuts(3):
        async with proxied(broker_url) as (proxy, connection):
            channel = await connection.channel()
            proxy.cut_after_frames(count, direction, inside=inside)
            async with asyncio.timeout(60):
                await channel.close()
                await connection.close()
            assert channel.is_closed
            assert connection.is_closed


async def test_a_long_and_narrow_line_changes_nothing(broker_url: str, name: str) -> None:
    async with proxied(broker_url) as (proxy, connection), connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        await channel.confirm_select()
        proxy.delay(0.01)
        proxy.throttle(200_000)
        async with channel.consume(name, prefetch=10) as consumer:
            bodies = [str(n).encode() * 100 for n in range(100)]
            published = asyncio.ensure_future(channel.publish_many([Publication(body, "", name) for body in bodies]))
            for body in bodies:
                delivery = await anext(consumer)
                assert delivery.body == body
                delivery.ack()
            assert await published == 100
        assert connection.test().reconnection_count == 1


async def test_a_stall_that_ends_in_time_changes_nothing(broker_url: str, name: str) -> None:
    async with proxied(broker_url) as (proxy, connection), connection.channel() as channel:
        await channel.queue_declare(name, exclusive=True)
        await channel.confirm_select()
        for direction in ("to_server", "to_client"):
            with proxy.stalled(direction):
                publish = asyncio.ensure_future(channel.publish(b"m", "", name))
                declare = asyncio.ensure_future(channel.queue_declare(name, passive=True))
                with pytest.raises(errors.DeadlineExceeded):
                    await channel.get(name, timeout=0.05)
                assert not publish.done()
                assert not declare.done()
            assert await publish
            assert (await declare).name == name
            delivery = await channel.get(name)  # what the late answer to the first get brought is in the queue again
            assert delivery is not None
            delivery.ack()
        assert await channel.get(name) is None
        assert connection.test().reconnection_count == 1
