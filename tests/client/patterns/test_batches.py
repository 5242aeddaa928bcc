"""A queue worked on by a handler of batches; against both brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Publication
from harebell.client.middleware import AckArgs, HandleArgs
from tests.client.outages import FAST, bodies, eventually, ready
from tests.client.test_consumer import fill
from tests.fixtures.profiles import scaled


class Calls:
    """What a handler was called with, and a way to wait for it."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self._changed = asyncio.Event()

    def add(self, deliveries: list[Delivery]) -> list[bytes]:
        found = [delivery.body for delivery in deliveries]
        self.batches.append(found)
        self._changed.set()
        return found

    def handle(self, deliveries: list[Delivery]) -> None:
        self.add(deliveries)

    async def messages(self, count: int) -> list[bytes]:
        async with asyncio.timeout(60):
            while sum(map(len, self.batches)) < count:
                self._changed.clear()
                await self._changed.wait()
        return [body for batch in self.batches for body in batch]


class Watching:
    """A middleware that sees handlers and acknowledgements."""

    def __init__(self) -> None:
        self.handled: list[tuple[int, bool, int]] = []
        self.acks: list[bool] = []

    async def handle(self, call_next: Callable[[HandleArgs], Awaitable[object]], args: HandleArgs) -> object:
        self.handled.append((len(args.batch), args.delivery is args.batch[0], args.attempt))
        return await call_next(args)

    def ack(self, call_next: Callable[[AckArgs], None], args: AckArgs) -> None:
        self.acks.append(args.multiple)
        call_next(args)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


async def test_a_full_batch_does_not_wait_and_is_acknowledged_at_once(
    broker_url: str, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 200)
    calls, watching = Calls(), Watching()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)

    middlewares = harebell.middleware.Middlewares().add_shared(watching)
    async with (
        harebell.connect(broker_url, middleware=middlewares) as connection,
        connection.consume(queue, handle, batch=100, within=600),
    ):
        await calls.messages(200)
    assert calls.batches == [numbers(0, 100), numbers(100, 200)]
    assert watching.handled == [(100, True, 1), (100, True, 1)]
    assert watching.acks == [True, True]
    await ready(channel, queue, 0)


@pytest.mark.parametrize("within", [0, 0.05])
async def test_a_batch_that_is_not_full_has_what_came(
    connection: Connection, channel: Channel, queue: str, within: float
) -> None:
    calls = Calls()
    async with connection.consume(queue, calls.handle, batch=100, within=within):  # a plain function, too
        for n in range(3):
            await channel.publish(b"%d" % n, "", queue)
        assert await calls.messages(3) == numbers(0, 3)
    await ready(channel, queue, 0)


async def test_several_workers_settle_their_own(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 40)
    first, calls = asyncio.Event(), Calls()

    async def handle(deliveries: list[Delivery]) -> None:
        found = calls.add(deliveries)
        if found[0] == b"0":
            await first.wait()  # later ones are done before

    async with connection.consume(queue, handle, batch=10, within=600, workers=2, grace=0) as workers:
        await calls.messages(40)
        assert workers.running == 1
        assert [len(batch) for batch in calls.batches] == [10] * 4
    assert sorted(await bodies(channel, queue), key=int) == numbers(0, 10)  # cancelled, and only that one is back


async def test_a_message_at_fault_costs_the_others_nothing(
    connection: Connection, channel: Channel, queue: str
) -> None:
    await fill(channel, queue, 20)
    calls, told = Calls(), []

    async def handle(deliveries: list[Delivery]) -> None:
        if b"7" in calls.add(deliveries):
            raise ValueError("seven")

    dead = f"{queue}.dead"
    async with connection.consume(
        queue, handle, batch=20, within=600, dead_letter=dead,
        on_error=lambda delivery, error: told.append((delivery.body, str(error))),
    ):  # fmt: skip
        await calls.messages(40)
    assert calls.batches == [numbers(0, 20), *([body] for body in numbers(0, 20))]
    assert told == [(b"7", "seven")]
    assert (await bodies(channel, queue), await bodies(channel, dead)) == ([], [b"7"])
    await channel.queue_delete(dead)


async def test_what_fails_is_tried_again_later(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 4)
    calls = Calls()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)
        if any(delivery.body == b"2" and "x-retry-attempts" not in delivery.headers for delivery in deliveries):
            raise ConnectionError("not yet")

    retry = harebell.Retry(delays=(0.01,))
    async with connection.consume(queue, handle, batch=4, within=0.1, retry=retry):
        found = await calls.messages(9)
    assert found[-1] == b"2"
    assert await bodies(channel, queue) == await bodies(channel, f"{queue}.dead") == []
    for name in (f"{queue}.retry.10", f"{queue}.dead"):
        await channel.queue_delete(name)


@pytest.mark.parametrize("decision, left", [(harebell.Reject, 0), (harebell.Requeue, 5)])
async def test_a_decision_is_for_the_whole_batch(
    connection: Connection, channel: Channel, queue: str, decision: type[Exception], left: int
) -> None:
    await fill(channel, queue, 5)
    calls, decided = Calls(), asyncio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        if decided.is_set():
            await asyncio.get_running_loop().create_future()  # until the end
        calls.add(deliveries)
        decided.set()
        raise decision

    dead = f"{queue}.dead"
    async with connection.consume(queue, handle, batch=5, within=600, dead_letter=dead, grace=0):
        await calls.messages(5)
        await ready(channel, dead, 5 - left)
    assert calls.batches == [numbers(0, 5)]
    await ready(channel, queue, left)
    assert sorted(await bodies(channel, dead)) == numbers(left, 5)
    await channel.queue_delete(dead)


async def test_what_the_handler_settles_stays_settled(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 6)
    calls = Calls()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)
        if len(deliveries) == 6:
            with pytest.raises(errors.LocalProtocolError, match="multiple"):
                deliveries[5].ack(multiple=True)
            for delivery in deliveries[:4]:
                delivery.ack()
            raise ValueError("half of it")

    async with connection.consume(queue, handle, batch=6, within=600):
        assert await calls.messages(8) == [*numbers(0, 6), b"4", b"5"]
    await ready(channel, queue, 0)


async def test_bodies_that_cannot_be_read_are_given_up_and_the_others_handled(
    connection: Connection, channel: Channel, queue: str
) -> None:
    texts = [b"1", b"no", b"2", b"{", b"3"]
    await channel.confirm_select()
    await channel.publish_many([Publication(text, "", queue) for text in texts])
    seen: list[tuple[list[object], int]] = []
    handled = asyncio.Event()

    async def handle(values: list[object], deliveries: list[Delivery]) -> None:
        seen.append((values, len(deliveries)))
        handled.set()

    dead = f"{queue}.dead"
    async with connection.consume(queue, handle, batch=5, within=600, codec=harebell.JSON(), dead_letter=dead):
        async with asyncio.timeout(60):
            await handled.wait()
    assert seen == [([1, 2, 3], 3)]
    assert sorted(await bodies(channel, dead)) == [b"no", b"{"]
    await ready(channel, queue, 0)
    await channel.queue_delete(dead)


class Broken:
    """A codec that fails."""

    def encode(self, value: object, /) -> tuple[bytes, str]:
        raise NotImplementedError

    def decode(self, delivery: Delivery, /) -> object:
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["handler", "codec"])
async def test_a_handler_that_fails_on_everything_leaves_it_in_the_queue(
    connection: Connection, channel: Channel, queue: str, how: str
) -> None:
    await fill(channel, queue, 30)

    async def handle(*lists: object) -> None:
        raise KeyError("a mistake")

    codec: Any = {"codec": Broken()} if how == "codec" else {}
    with pytest.raises(errors.HandlerFailed, match="3 times in a row"):
        await connection.consume(queue, handle, batch=10, within=600, max_failures=3, **codec).run()
    await ready(channel, queue, 30)


async def test_a_call_that_takes_too_long_is_a_failure(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 3)
    calls = Calls()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)
        if len(deliveries) > 1:
            await asyncio.get_running_loop().create_future()

    async with connection.consume(queue, handle, batch=3, within=600, handler_timeout=0.2):
        await calls.messages(6)
    await ready(channel, queue, 0)


async def test_a_handler_that_cancels_itself_has_failed(connection: Connection, channel: Channel, queue: str) -> None:
    await fill(channel, queue, 3)
    calls = Calls()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)
        if len(deliveries) > 1:
            raise asyncio.CancelledError

    async with connection.consume(queue, handle, batch=3, within=600):
        await calls.messages(6)
    await ready(channel, queue, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_each_orphan_is_told_and_comes_again(
    connection: Connection, other: Channel, queue: str, fails: bool
) -> None:
    calls, orphans, go = Calls(), [], asyncio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.add(deliveries)
        if not deliveries[0].redelivered:
            await go.wait()
            if fails:
                raise ValueError("too late")

    async with connection.consume(
        queue, handle, batch=3, within=600, on_orphan=lambda delivery: orphans.append(delivery.body)
    ):
        for n in range(3):
            await other.publish(b"%d" % n, "", queue)
        await calls.messages(3)
        await connection.test().force_reconnect()
        go.set()
        assert sorted(await calls.messages(6)) == sorted(numbers(0, 3) * 2)
    assert orphans == numbers(0, 3)
    await ready(other, queue, 0)


async def test_orphans_of_another_worker_are_left_to_it(connection: Connection, other: Channel, queue: str) -> None:
    calls, orphans, go = Calls(), [], asyncio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        again = deliveries[0].redelivered
        calls.add(deliveries)
        if not again:
            await go.wait()

    async def one_at_work() -> bool:
        await other.queue_inspect(queue)
        return workers.running == 1

    async with connection.consume(
        queue, handle, batch=2, within=600, workers=2, on_orphan=lambda delivery: orphans.append(delivery.body)
    ) as workers:
        for n in range(2):
            await other.publish(b"%d" % n, "", queue)
        await calls.messages(2)
        await connection.test().force_reconnect()
        await calls.messages(4)
        await eventually(one_at_work)  # those that came again are settled
        go.set()
    assert calls.batches == [numbers(0, 2)] * 2
    assert orphans == numbers(0, 2)
    await ready(other, queue, 0)


async def test_a_queue_that_comes_back(connection: Connection, other: Channel, name: str) -> None:
    calls = Calls()
    async with connection.channel() as channel:
        await channel.queue_declare(name)
        async with connection.consume(name, calls.handle, batch=2, within=0.05, resubscribe=True):
            await other.queue_delete(name)
            await eventually(lambda: exists(other, name))
            await other.publish(b"m", "", name)
            await calls.messages(1)
        await channel.queue_delete(name)


async def test_bad_arguments(connection: Connection, queue: str) -> None:
    def of_one(deliveries: object) -> None: ...

    consume: Any = connection.consume
    for arguments, text in (
        ({"batch": 0}, "batch is 0: at least 1"),
        ({"batch": 2, "within": -1}, "within is -1"),
        ({"batch": 2, "within": float("inf")}, "within is inf"),
        ({"within": 1}, "give its size, batch"),
        ({"batch": 10, "prefetch": 9}, "prefetch is 9, and 1 x 10 in batches need as many"),
        ({"batch": 10, "workers": 2, "prefetch": 19}, "2 x 10 in batches"),
        ({"batch": 5000, "workers": 16}, "16 workers with batches of 5000: at most 65535"),
        ({"batch": 5, "workers": 0}, "workers is 0"),
        ({"batch": 5, "codec": harebell.JSON()}, r"cannot be called with \(values, deliveries\)"),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            consume(queue, of_one, **arguments)
    consume(queue, of_one, batch=5, prefetch=0)


# -- every message is accounted for ------------------------------------------------------------------------------------

KINDS = ("good", "good", "good", "poison", "moody", "early", "unreadable")
ENDS = ("finished", "stop", "cancelled", "cut")


class Model:
    """A handler whose messages say what becomes of them, and what became of them.

    good fails never, poison always, moody in company, early is acknowledged by the handler before anything fails.
    """

    def __init__(self, at: int) -> None:
        self.completed: list[bytes] = []
        self.reached = asyncio.Event()
        self._at = at  # the call at which it waits for the end
        self._calls = 0

    def encode(self, value: object, /) -> tuple[bytes, str]:
        raise NotImplementedError

    def decode(self, delivery: Delivery, /) -> bytes:
        if delivery.body.startswith(b"unreadable"):
            raise errors.UndecodableBody("unreadable")
        return delivery.body

    async def __call__(self, values: list[bytes], deliveries: list[Delivery]) -> None:
        assert values == [delivery.body for delivery in deliveries]
        self._calls += 1
        await asyncio.sleep(0)
        if self._calls == self._at:
            self.reached.set()
            await asyncio.sleep(0.01)
        for delivery in deliveries:
            if delivery.body.startswith(b"early"):
                delivery.ack()
                self.completed.append(delivery.body)
        if any(value.startswith(b"poison") for value in values):
            raise ValueError("poison")
        if len(values) > 1 and any(value.startswith(b"moody") for value in values):
            raise ValueError("moody")
        self.completed += [value for value in values if not value.startswith(b"early")]


@settings(max_examples=scaled(3), suppress_health_check=[*HealthCheck])
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=30),
    size=st.integers(1, 12),
    workers=st.integers(1, 3),
    end=st.sampled_from(ENDS),
    at=st.integers(1, 4),
)
async def test_every_message_is_accounted_for(
    broker_url: str, other: Channel, kinds: list[str], size: int, workers: int, end: str, at: int
) -> None:
    queue = f"test.{uuid.uuid4().hex[:12]}"
    dead = f"{queue}.dead"
    await other.queue_declare(queue)
    await other.confirm_select()
    given_ = [f"{kind} {n}".encode() for n, kind in enumerate(kinds)]
    await other.publish_many([Publication(body, "", queue) for body in given_])
    wanted_dead = sorted(body for body in given_ if body.startswith((b"poison", b"unreadable")))
    model = Model(at if end != "finished" else 0)
    async with harebell.connect(broker_url, timeout=60, recovery=FAST) as connection:
        consumer = connection.consume(
            queue, model, batch=size, within=0.001, workers=workers, codec=model, dead_letter=dead
        )
        running = asyncio.create_task(consumer.run())
        reached = asyncio.create_task(model.reached.wait())

        async def all_done() -> bool:
            return len(model.completed) + await other.message_count(dead) == len(given_)

        await eventually(lambda: exists(other, dead))
        finished = asyncio.create_task(eventually(all_done))
        await asyncio.wait([reached, finished], return_when=asyncio.FIRST_COMPLETED)
        if end == "cut":
            await connection.test().force_reconnect()
            await eventually(lambda: empty(other, queue))
        elif end == "finished":
            await finished
        for task in (finished, reached):
            task.cancel()
        await asyncio.gather(finished, reached, return_exceptions=True)
        if end == "cancelled":
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        else:
            await consumer.stop()
            await running
    await eventually(lambda: unused(other, queue))
    left, dead_bodies = await bodies(other, queue), sorted(await bodies(other, dead))
    await other.queue_delete(queue)
    await other.queue_delete(dead)
    if end in ("finished", "stop"):
        assert Counter([*left, *dead_bodies, *model.completed]) == Counter(given_)
    else:
        assert {*left, *dead_bodies, *model.completed} == set(given_)  # some twice: the end came before their ack
    assert set(dead_bodies) <= set(wanted_dead)
    if end == "finished":
        assert (left, dead_bodies) == ([], wanted_dead)


async def exists(channel: Channel, queue: str) -> bool:
    try:
        await channel.queue_inspect(queue)
    except errors.NotFound:
        return False
    return True


async def empty(channel: Channel, queue: str) -> bool:
    return not await channel.message_count(queue)


async def unused(channel: Channel, queue: str) -> bool:
    return not (await channel.queue_inspect(queue)).consumer_count
