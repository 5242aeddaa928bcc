"""Publications around confirm.select: those written behind it are numbered and confirmed, those before it are not.

Every other publication goes to a queue that refuses it, so a confirm that were another publication's would show.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import blocking, errors
from harebell.client.channel import Channel
from harebell.client.confirms import Bulk
from harebell.client.messages import Confirmation, Publication, Returned
from harebell.protocol.v091 import Content, methods as m
from harebell.testing import FaultProxy
from tests.client.outages import NOTICED
from tests.client.publications.ways import Recorder, Told, kind_of
from tests.client.scripted import Peer, scripted
from tests.client.stepping import Moment, cancelled_at

COUNT: Final = 6  # publications of each step
RIGHT: Final = ["confirmed", "nacked"] * (COUNT // 2)
UNNUMBERED: Final = ["unnumbered"] * COUNT
Publish = Callable[[Channel, Sequence[str]], Awaitable[list[str]]]


def said(confirmation: Confirmation | None) -> str:
    return "unnumbered" if confirmation is None else kind_of(confirmation)


async def publish(channel: Channel, queues: Sequence[str]) -> list[str]:
    async def one(queue: str) -> str:
        try:
            return said(await channel.publish(b"m", "", queue))
        except errors.HarebellError as error:
            return kind_of(error)

    return await asyncio.gather(*map(one, queues))


async def send(channel: Channel, queues: Sequence[str]) -> list[str]:
    confirmations = channel.confirmations()
    try:
        tags = [await channel.send(b"m", "", queue) for queue in queues]
    except errors.LocalProtocolError:
        return ["unnumbered"] * len(queues)
    found: dict[int, str] = {}
    while len(found) < len(tags):
        found = {one.publish_tag: kind_of(one) for one in confirmations.waiting if one.publish_tag in tags}
        await asyncio.sleep(0.001)  # two of these share one iterator: each looks, and takes nothing
    return [found[tag] for tag in tags]


async def publish_nowait(channel: Channel, queues: Sequence[str]) -> list[str]:
    told = Told()
    tags = [channel.publish_nowait(b"m", "", to, waiter=Recorder(told, at)) for at, to in enumerate(queues)]
    while len(told.of) < len([tag for tag in tags if tag]):  # noqa: ASYNC110 - a waiter has no event
        await asyncio.sleep(0.001)
    return [told.of[at][0] if tag else "unnumbered" for at, tag in enumerate(tags)]


async def publish_bulk(channel: Channel, queues: Sequence[str]) -> list[str]:
    bulk: Bulk = await channel.publish_bulk([b"m"] * len(queues), [b"\0\0"] * len(queues), "", queues)
    with suppress(errors.HarebellError):
        await bulk.wait()
    if not bulk.first_tag:
        return ["unnumbered"] * len(queues)
    lost = dict.fromkeys(bulk.unanswered, "maybe") | dict.fromkeys(bulk.nacked, "nacked")
    return [lost.get(at, "confirmed") for at in range(len(queues))]


async def publish_many(channel: Channel, queues: Sequence[str]) -> list[str]:
    before = channel.core.publishes.last_tag
    failures: dict[int, str] = {}
    try:
        await channel.publish_many([Publication(b"m", "", queue) for queue in queues])
    except errors.HarebellError as error:
        failures = failures_of(error)
    numbered = channel.core.publishes.last_tag > before
    return [failures.get(at, "confirmed" if numbered else "unnumbered") for at in range(len(queues))]


def failures_of(error: errors.HarebellError) -> dict[int, str]:
    return {at: kind_of(failure) for at, failure in (error.failures or {}).items()}


KINDS: Final[list[Publish]] = [publish, send, publish_nowait, publish_bulk, publish_many]


@asynccontextmanager
async def open_for(broker_url: str, name: str) -> AsyncIterator[tuple[FaultProxy, Channel, Channel, list[str]]]:
    """A proxy, the channel behind it, one that is not, and queues: one that accepts, one that refuses, and so on."""
    address = urlsplit(broker_url)
    taking, refusing = f"{name}.taking", f"{name}.refusing"
    async with (
        harebell.connect(broker_url, timeout=60) as direct,
        direct.channel() as other,
        FaultProxy(address.hostname or "", address.port or 0) as proxy,
        harebell.connect(
            f"amqp://{address.username}:{address.password}@{proxy.host}:{proxy.port}{address.path}",
            timeout=60, recovery=NOTICED,
        ) as connection,
    ):  # fmt: skip
        await other.queue_declare(taking)
        await other.queue_declare(refusing, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await other.publish(b"the one that fits", "", refusing)
        await other.queue_inspect(refusing)
        try:
            yield proxy, await connection.channel(), other, [taking, refusing] * (COUNT // 2)
        finally:
            await other.queue_delete(taking)
            await other.queue_delete(refusing)


async def begun(channel: Channel, **options: object) -> asyncio.Task[None]:
    """A task that has written confirm.select, and waits."""
    selecting = asyncio.ensure_future(channel.confirm_select(**options))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return selecting


@pytest.mark.parametrize("answer", ["at once", "late", "late to two", "late to one cancelled", "late to one timed out"])
@pytest.mark.parametrize("kind", KINDS)
async def test_published_before_while_and_after(broker_url: str, name: str, kind: Publish, answer: str) -> None:
    async with open_for(broker_url, name) as (proxy, channel, _, queues):
        assert await kind(channel, queues) == UNNUMBERED
        if answer != "at once":
            proxy.stall("to_client")
        selecting = [await begun(channel, **({"timeout": 0.01} if "timed out" in answer else {}))]
        if "two" in answer:
            selecting.append(await begun(channel))
        meanwhile = asyncio.ensure_future(kind(channel, queues))
        await asyncio.sleep(0)
        if "cancelled" in answer:
            selecting[0].cancel()
        if "timed out" in answer:
            await asyncio.wait(selecting)
        proxy.resume()
        for done in await asyncio.gather(*selecting, return_exceptions=True):
            if "cancelled" in answer:
                assert isinstance(done, asyncio.CancelledError)
            elif "timed out" in answer:
                assert isinstance(done, errors.DeadlineExceeded)
            else:
                assert done is None
        assert await kind(channel, queues) == RIGHT
        assert await meanwhile == RIGHT
        await channel.confirm_select()  # once more changes nothing
        assert await kind(channel, queues) == RIGHT


@pytest.mark.parametrize("kind", [publish, publish_nowait])
async def test_published_in_the_turn_before(broker_url: str, name: str, kind: Publish) -> None:
    async with open_for(broker_url, name) as (_, channel, _, queues):
        before = asyncio.ensure_future(kind(channel, queues))
        await asyncio.sleep(0)
        await asyncio.gather(channel.confirm_select(), kind(channel, queues))
        assert await before == UNNUMBERED
        assert await kind(channel, queues) == RIGHT


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("on_orphan", ["raise", "retry"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_answer_is_cut(broker_url: str, name: str, kind: Publish, on_orphan: str, given_up: bool) -> None:
    """The next connection is told to confirm before anything is published there."""
    async with open_for(broker_url, name) as (proxy, channel, _, queues):
        proxy.stall("to_client")
        selecting = await begun(channel, on_orphan=on_orphan)
        meanwhile = asyncio.ensure_future(kind(channel, queues))
        await asyncio.sleep(0)
        if given_up:
            selecting.cancel()
            await asyncio.wait([selecting])
        reconnected = channel.test().signal_on_reconnect()
        proxy.cut()
        proxy.resume()
        await reconnected.wait(60)
        assert await kind(channel, queues) == RIGHT
        # One that is refused the second time may have been accepted the first time.
        assert await meanwhile == (["confirmed", "maybe"] * (COUNT // 2) if on_orphan == "retry" else ["maybe"] * COUNT)
        if not given_up:
            await selecting
        await channel.test().force_reconnect()
        assert await kind(channel, queues) == RIGHT


async def test_cancelled_at_every_await(broker_url: str, name: str) -> None:
    """Confirm mode or not: both ends agree."""
    moments: tuple[Moment, ...] = ("waiting", "answered")
    for moment in moments:
        at = 1
        cancelled = True
        while cancelled:
            async with open_for(broker_url, name) as (_, channel, _, queues):
                cancelled = await cancelled_at(channel.confirm_select(), at, moment)
                assert await publish(channel, queues) == RIGHT
            at += 1


async def test_given_up_before_it_is_written(broker_url: str, name: str) -> None:
    async with open_for(broker_url, name) as (_, channel, _, queues):
        reconnected = channel.test().signal_on_reconnect()
        with channel.test().reconnect_blocked():
            selecting = await begun(channel)
            selecting.cancel()
            await asyncio.wait([selecting])
        await reconnected.wait(60)
        assert await publish(channel, queues) == UNNUMBERED
        await asyncio.gather(channel.confirm_select(), publish(channel, queues))
        assert await publish(channel, queues) == RIGHT


async def test_selected_in_the_midst_of_publish_many(broker_url: str, name: str) -> None:
    """The first ones are unnumbered, and the failures of the others have their own positions."""
    async with open_for(broker_url, name) as (_, channel, _, queues):

        async def source() -> AsyncIterator[Publication]:
            for queue in queues:
                yield Publication(b"m", "", queue)
            await channel.confirm_select()
            for queue in queues:
                yield Publication(b"m", "", queue)

        with pytest.raises(errors.Nacked) as raised:
            await channel.publish_many(source())
        assert raised.value.failures is not None
        assert sorted(raised.value.failures) == [at for at in range(COUNT, 2 * COUNT) if at % 2]
        assert channel.statistics().published == 2 * COUNT


async def test_the_broker_refuses_it(broker_url: str, name: str) -> None:
    """A transactional channel cannot confirm: it comes back as it was."""
    async with open_for(broker_url, name) as (_, channel, other, queues):
        await channel.tx_select()
        selecting = await begun(channel)
        meanwhile = await publish(channel, queues)
        assert meanwhile == ["maybe"] * COUNT
        with pytest.raises(errors.PreconditionFailed):
            await selecting
        await channel.queue_inspect(queues[0])
        assert await publish(channel, queues[:1]) == ["unnumbered"]
        assert await other.message_count(queues[0]) == 0
        with pytest.raises(errors.TransactionLost):
            await channel.tx_commit()
        assert await publish(channel, queues[:1]) == ["unnumbered"]
        await channel.tx_commit()
        assert await other.message_count(queues[0]) == 1


async def test_what_comes_back_of_an_unnumbered_one(broker_url: str, name: str) -> None:
    """Of two equal publications around confirm.select only the first comes back: it is not taken for the other."""
    async with open_for(broker_url, name) as (_, channel, other, queues):
        await other.exchange_declare(name, "fanout")
        came: list[Returned] = []
        channel.on_return = came.append
        channel.publish_nowait(b"m", name, "", mandatory=True)
        binding = asyncio.ensure_future(channel.queue_bind(queues[0], name))
        await asyncio.sleep(0)
        selecting = await begun(channel)
        confirmation = await channel.publish(b"m", name, "", mandatory=True)
        assert confirmation is not None
        assert confirmation.acked
        await asyncio.gather(binding, selecting)
        assert [returned.body for returned in came] == [b"m"]
        await other.exchange_delete(name)


async def test_the_answer_never_comes() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.ConfirmSelect)
        await peer.expect(Content)
        peer.send(number, m.BasicAck(1))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60) as connection:
        channel = await connection.channel()
        selecting = await begun(channel)
        assert said(await channel.publish(b"m", "", "q")) == "confirmed"
        selecting.cancel()
        await asyncio.wait([selecting])


async def test_threads(broker_url: str, name: str) -> None:
    async with open_for(broker_url, name) as (proxy, _, _, queues):
        address = urlsplit(broker_url)
        url = f"amqp://{address.username}:{address.password}@{proxy.host}:{proxy.port}{address.path}"
        connection = await asyncio.to_thread(blocking.connect, url, timeout=60)
        channel = await asyncio.to_thread(connection.channel)
        before = await asyncio.to_thread(channel.publish, b"m", "", queues[0])
        assert before is None
        proxy.stall("to_client")
        selecting = asyncio.ensure_future(asyncio.to_thread(channel.confirm_select))
        while not channel.inner.core.publishes.confirming:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.001)

        def outcome(queue: str) -> str:
            try:
                return said(channel.publish(b"m", "", queue))
            except errors.Nacked as error:
                return kind_of(error)

        def outcomes() -> list[str]:
            try:
                return ["confirmed"] * channel.publish_many(Publication(b"m", "", queue) for queue in queues)
            except errors.Nacked as error:
                return [failures_of(error).get(at, "confirmed") for at in range(COUNT)]

        async def each() -> list[str]:
            return [await asyncio.to_thread(outcome, queue) for queue in queues]

        meanwhile = asyncio.ensure_future(each())
        many = asyncio.ensure_future(asyncio.to_thread(outcomes))
        proxy.resume()
        await selecting
        assert await meanwhile == RIGHT
        assert await many == RIGHT
        assert await each() == RIGHT
        await asyncio.to_thread(connection.close)
