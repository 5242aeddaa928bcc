"""A wait for the first message that is given up: the subscription goes on starting, in every kind of consumer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.sessions import connect
from harebell.client.starting import start_by_waiting, stop_starting
from harebell.testing import FaultProxy
from tests.client.outages import eventually

SLOW = 0.03  # seconds that the broker's bytes take
POLL = 0.005  # seconds of a wait, which is over before the broker has answered


async def iterated(it: Any) -> bytes | None:
    """The next body; None when it has not come in time."""
    try:
        return bytes((await asyncio.wait_for(anext(it), POLL)).body)
    except TimeoutError:
        return None


async def received(it: Any) -> bytes | None:
    """As `iterated`, as a batch."""
    try:
        (found,) = await asyncio.wait_for(it.receive(timeout=60), POLL)
    except TimeoutError:
        return None
    return bytes(found.body)


class Kind(NamedTuple):
    """What can be polled: made in a connection, where it is the only one that consumes from the queue "q"."""

    make: Callable[[AsyncExitStack, Any], Awaitable[Any]]
    takes: tuple[Callable[[Any], Awaitable[bytes | None]], ...]
    connect: Callable[..., Any] = harebell.connect
    end: str = "close"


async def consumer(stack: AsyncExitStack, connection: Any) -> Any:
    return (await stack.enter_async_context(connection.channel())).consume("q")


async def session_consumer(stack: AsyncExitStack, connection: Any) -> Any:
    return (await stack.enter_async_context(connection.session())).consume("q")


async def deliveries(stack: AsyncExitStack, connection: Any) -> Any:
    return connection.deliveries("q")


async def stream(stack: AsyncExitStack, connection: Any) -> Any:
    return connection.stream("s-0", offset="first")


async def super_stream(stack: AsyncExitStack, connection: Any) -> Any:
    return connection.super_stream("s", 1).read(offset="first")


KINDS = {
    "consumer": Kind(consumer, (iterated, received), end="cancel"),
    "session": Kind(session_consumer, (iterated,), connect, "cancel"),
    "deliveries": Kind(deliveries, (iterated, received)),
    "stream": Kind(stream, (iterated, received)),
    "super stream": Kind(super_stream, (iterated,)),
}


class Place:
    """A broker behind a proxy, with a message in "q" and in the stream "s-0", and a channel that is not slow."""

    def __init__(self, proxy: FaultProxy, channel: harebell.Channel) -> None:
        self.proxy, self.channel = proxy, channel
        self.url = f"amqp://127.0.0.1:{proxy.port}"

    async def consumers(self) -> int:
        found = [await self.channel.queue_declare(queue, passive=True) for queue in ("q", "s-0")]
        return sum(each.consumer_count for each in found)

    async def nobody(self) -> bool:
        return await self.consumers() == 0


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Broker() as broker, FaultProxy("127.0.0.1", broker.port or 0) as proxy:
        async with harebell.connect(broker.url) as connection, connection.channel() as channel:
            await channel.confirm_select()
            await channel.queue_declare("q")
            await connection.super_stream("s", 1).declare()
            for queue in ("q", "s-0"):
                await channel.publish(b"1", "", queue)
            yield Place(proxy, channel)


@pytest.mark.parametrize(("kind", "take"), [(kind, take) for kind, it in KINDS.items() for take in it.takes])
async def test_waits_that_are_shorter_than_the_round_trip_get_the_message(place: Place, kind: str, take: Any) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(KINDS[kind].connect(place.url, timeout=60))
        polled = await KINDS[kind].make(stack, connection)
        with place.proxy.stalled("to_client"):
            assert await take(polled) is None
        place.proxy.delay(SLOW, "to_client")
        while (found := await take(polled)) is None:
            pass
        assert found == b"1"
        place.proxy.delay(0.0)
        assert await place.consumers() == 1
        await getattr(polled, KINDS[kind].end)()
    await eventually(place.nobody)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What the last reference's end does not free stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["end", "end under a wait", "drop"])
async def test_what_is_ended_while_it_starts_leaves_no_subscription(place: Place, kind: str, way: str) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(KINDS[kind].connect(place.url, timeout=60))
        polled = await KINDS[kind].make(stack, connection)
        waiting = ending = None
        with place.proxy.stalled("to_client"):
            assert await iterated(polled) is None
            if way == "end under a wait":
                waiting = asyncio.create_task(anext(polled, None))
                await asyncio.sleep(0)
            if way != "drop":
                ending = asyncio.create_task(getattr(polled, KINDS[kind].end)())
            del polled
            await asyncio.sleep(0)
        if ending is not None:
            await ending
        if waiting is not None:
            assert await waiting is None  # the iteration has ended, and nobody was cancelled
        del waiting, ending
        await eventually(place.nobody)


async def taken(make: Callable[[], Awaitable[Any]]) -> None:
    async for _ in await make():
        await asyncio.Event().wait()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_iteration_that_is_cancelled_at_any_step_leaves_no_subscription(place: Place, kind: str) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(KINDS[kind].connect(place.url, timeout=60))
        for steps in [*range(1, 25), *range(25, 120, 5)]:
            async with AsyncExitStack() as channels:
                iterating = asyncio.create_task(taken(partial(KINDS[kind].make, channels, connection)))
                for _ in range(steps):
                    await asyncio.sleep(0)
                iterating.cancel()
                await asyncio.wait([iterating])
                del iterating
                await eventually(place.nobody)


async def test_the_next_wait_is_told_why_the_start_failed(place: Place) -> None:
    async with harebell.connect(place.url, timeout=60) as connection, connection.channel() as channel:
        for polled in (channel.consume("none"), connection.deliveries("none"), connection.stream("none")):
            with place.proxy.stalled("to_client"):
                assert await iterated(polled) is None
            with pytest.raises(errors.NotFound):
                await anext(polled)


class Scripted:
    """A consumer whose starts end as the test says."""

    def __init__(self) -> None:
        self.first: asyncio.Task[object] | None = None
        self.answers: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


async def given_up(consumer: Scripted) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start_by_waiting(consumer), 0.001)


async def test_one_start_for_all_waits() -> None:
    consumer = Scripted()
    await given_up(consumer)
    await given_up(consumer)
    waiting = [asyncio.create_task(start_by_waiting(consumer)) for _ in range(2)]
    await asyncio.sleep(0)
    (answer,) = consumer.answers
    answer.set_result(None)
    await asyncio.gather(*waiting)
    assert consumer.first is None


async def test_an_error_is_raised_once_and_the_next_wait_starts_again() -> None:
    consumer = Scripted()
    await given_up(consumer)
    consumer.answers[0].set_exception(errors.NotFound("no queue"))
    await asyncio.sleep(0.001)
    with pytest.raises(errors.NotFound):
        await start_by_waiting(consumer)
    await given_up(consumer)
    assert len(consumer.answers) == 2
    await stop_starting(consumer)
    assert consumer.answers[1].cancelled()
    await stop_starting(consumer)


async def test_who_waits_while_the_start_is_ended_is_not_cancelled() -> None:
    consumer = Scripted()
    waiting = asyncio.create_task(start_by_waiting(consumer))
    await asyncio.sleep(0)
    await stop_starting(consumer)
    await waiting
    assert consumer.first is None


async def entered(it: Any) -> None:
    async with it:
        pass


@pytest.mark.parametrize("kind", KINDS)
async def test_all_who_start_a_consumer_are_told_why_it_fails(place: Place, kind: str) -> None:
    await place.channel.queue_delete("q")
    await place.channel.queue_delete("s-0")
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(KINDS[kind].connect(place.url, timeout=60))
        started = await KINDS[kind].make(stack, connection)
        ways = (started.start(), entered(started), anext(started), anext(started), started.start())
        found = await asyncio.gather(*ways, return_exceptions=True)
        assert [type(error) for error in found] == [errors.NotFound] * len(ways), found
        assert len({id(error) for error in found[:2]}) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_others_go_on_starting_where_one_was_cancelled(place: Place, kind: str) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(KINDS[kind].connect(place.url, timeout=60))
        started = await KINDS[kind].make(stack, connection)
        with place.proxy.stalled("to_client"):
            first, second, third = (asyncio.create_task(started.start()) for _ in range(3))
            await asyncio.sleep(0.01)
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
        await third
        assert first.cancelled()
        assert second.cancelled()
        assert (await anext(started)).body == b"1"
        await getattr(started, KINDS[kind].end)()
    await eventually(place.nobody)
