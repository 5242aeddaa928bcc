"""Pools: bounded, fair, and nothing goes back that is not as good as new; against both brokers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings, strategies as st

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.patterns.pools import ChannelPool, Pool
from harebell.testing import FaultProxy
from tests.client.outages import eventually
from tests.fixtures.profiles import scaled


@pytest.fixture
async def pool(connection: Connection) -> AsyncIterator[ChannelPool]:
    async with connection.channel_pool(2) as pool:
        yield pool


async def test_what_comes_back_is_lent_again(pool: ChannelPool, queue: str) -> None:
    async with pool.acquire() as channel:
        await channel.publish(b"m", "", queue)
    async with pool.acquire() as again:
        assert again is channel
        async with pool.acquire() as another:
            assert another is not channel
            assert (pool.size, pool.idle) == (2, 0)
    assert (pool.size, pool.idle) == (2, 2)
    taken = await pool.acquire()
    await pool.release(taken)
    with pytest.raises(errors.LocalProtocolError, match="is not lent"):
        await pool.release(taken)


async def test_who_comes_first_gets_one_first(pool: ChannelPool) -> None:
    served: list[int] = []
    at_once = 0

    async def borrow(n: int) -> None:
        nonlocal at_once
        async with pool.acquire():
            served.append(n)
            at_once += 1
            assert at_once <= 2
            await asyncio.sleep(0)
            at_once -= 1

    async with pool.acquire(), pool.acquire():
        pass  # both are open
    async with asyncio.TaskGroup() as group:
        for n in range(30):
            group.create_task(borrow(n))
    assert served == list(range(30))
    assert pool.size <= 2


async def test_waiting_has_a_deadline(pool: ChannelPool) -> None:
    async with pool.acquire(), pool.acquire():
        with pytest.raises(errors.DeadlineExceeded, match=r"no channel within 0\.01 s: 2 of 2 are lent"):
            await pool.acquire(timeout=0.01)
    assert pool.idle == 2


async def test_who_goes_lets_the_next_have_it(pool: ChannelPool) -> None:
    first, second = await pool.acquire(), await pool.acquire()

    async def borrow() -> Channel:
        return await pool.acquire()

    impatient, patient = asyncio.ensure_future(borrow()), asyncio.ensure_future(borrow())
    await asyncio.sleep(0)
    await pool.release(first)
    impatient.cancel()  # its turn has just come
    assert await patient is first
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await pool.release(first)
    await pool.release(second)
    assert pool.idle == 2


class Item:
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


@settings(max_examples=scaled(200))
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from(["borrow", "give up", "give back", "break"]), st.integers(0, 9), st.integers(0, 2)),
        max_size=20,
    ),
)
def test_whoever_gives_up_when_the_next_are_served(max_size: int, steps: list[tuple[str, int, int]]) -> None:
    """Steps of any borrowers, in one turn of the loop or in several: in the end the pool lends all it has."""

    async def make() -> Item:
        await asyncio.sleep(0)
        return Item()

    async def main() -> None:
        pool: Pool[Item] = Pool("item", make, lambda item: True, max_size=max_size, idle=None, timeout=60)
        borrowers: list[asyncio.Task[Item]] = []

        async def borrow() -> Item:
            return await pool.acquire()

        async def give_back(borrower: asyncio.Task[Item], failed: bool) -> None:
            borrowers.remove(borrower)
            await pool.release(borrower.result(), failed=failed)

        for what, which, turns in [*[("borrow", 0, 4)] * (max_size + 2), *steps]:
            lent = [each for each in borrowers if each.done() and not each.cancelled()]
            waiting = [each for each in borrowers if not each.done()]
            if what == "borrow":
                borrowers.append(asyncio.create_task(borrow()))
            elif what == "give up" and waiting:
                waiting[which % len(waiting)].cancel()
            elif what in ("give back", "break") and lent:
                await give_back(lent[which % len(lent)], what == "break")
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while borrowers:
                done, _ = await asyncio.wait(borrowers, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if each.cancelled():
                        borrowers.remove(each)
                    else:
                        await give_back(each, failed=False)
            await asyncio.gather(*[pool.acquire() for _ in range(max_size)])
        assert pool.size == max_size

    asyncio.run(main())


async def test_what_failed_is_not_lent_again(pool: ChannelPool, queue: str) -> None:
    with pytest.raises(errors.NotFound):
        async with pool.acquire() as channel:
            await channel.queue_declare(f"{queue}.missing", passive=True)
    assert channel.is_closed
    assert pool.size == 0
    async with pool.acquire() as another:
        assert another is not channel


NOTIFICATIONS = {  # with how many callbacks each takes
    "notify_close": 1, "notify_dial": 1, "notify_disconnect": 1, "notify_publish": 1, "notify_confirm": 2,
    "notify_confirm_or_orphaned": 3, "notify_return": 1, "notify_cancel": 1, "notify_flow": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "leftover", ["consumer", "unacked", "qos", "tx", "confirms", "on_return", "closed", *NOTIFICATIONS]
)
async def test_nor_what_is_not_as_it_was(connection: Connection, pool: ChannelPool, queue: str, leftover: str) -> None:
    async with pool.acquire() as channel:
        match leftover:
            case "consumer":
                consumer = channel.consume(queue)
                await consumer.start()
            case "unacked":
                await channel.publish(b"m", "", queue)
                while await channel.get(queue) is None:
                    pass
            case "qos":
                await channel.qos(prefetch_count=1)
            case "tx":
                await channel.tx_select()
            case "confirms":
                await channel.confirm_select()
            case "on_return":
                channel.on_return = print
            case "closed":
                await channel.close()
            case _:
                getattr(channel, leftover)(*[print] * NOTIFICATIONS[leftover])
    assert channel.is_closed
    assert pool.size == 0


async def test_a_callback_that_was_taken_out_is_not_left(connection: Connection, broker_url: str) -> None:
    async def setup(channel: Channel) -> None:
        channel.notify_return(print)

    async with connection.channel_pool(1, setup=setup) as pool:
        async with pool.acquire() as channel:
            channel.notify_close(print)()
        async with pool.acquire() as again:
            assert again is channel
    async with harebell.ConnectionPool(broker_url, 1, timeout=60) as connections:
        async with connections.acquire() as first:
            first.notify_dial(print)()
        async with connections.acquire() as second:
            assert second is first


@pytest.mark.parametrize("notify", ["notify_close", "notify_dial", "notify_disconnect"])
async def test_a_connection_with_a_callback_is_not_lent_again(broker_url: str, notify: str) -> None:
    async with harebell.ConnectionPool(broker_url, 1, timeout=60) as pool:
        async with pool.acquire() as connection:
            getattr(connection, notify)(print)
        assert connection.is_closed


async def test_setup_is_part_of_new(connection: Connection, queue: str) -> None:
    async def setup(channel: Channel) -> None:
        await channel.confirm_select()
        await channel.qos(prefetch_count=5)

    async with connection.channel_pool(1, setup=setup) as pool:
        async with pool.acquire() as channel:
            confirmation = await channel.publish(b"m", "", queue)
            assert confirmation is not None
        await connection.test().force_reconnect()
        async with pool.acquire() as again:
            assert again is channel
            assert await again.publish(b"m", "", queue) is not None


async def test_a_plain_function_as_setup(connection: Connection) -> None:
    made: list[Channel] = []
    async with connection.channel_pool(2, setup=made.append) as pool, pool.acquire() as one, pool.acquire() as two:
        assert made == [one, two]


async def test_a_setup_that_fails(connection: Connection) -> None:
    async def setup(channel: Channel) -> None:
        raise ValueError("mine")

    async with connection.channel_pool(1, setup=setup) as pool:
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"):
                await pool.acquire()
        assert pool.size == 0


async def test_what_nobody_needs_is_closed(connection: Connection) -> None:
    async with connection.channel_pool(3, idle=0) as pool:
        async with pool.acquire() as one, pool.acquire() as two:
            pass
        await eventually(lambda: _empty(pool))
    assert one.is_closed
    assert two.is_closed


async def _empty(pool: ChannelPool) -> bool:
    await asyncio.sleep(0)
    return pool.size == 0


async def test_closing(connection: Connection) -> None:
    pool = connection.channel_pool(2)
    lent, idle = await pool.acquire(), await pool.acquire()
    await pool.release(idle)
    waiting_pool = connection.channel_pool(1)
    kept = await waiting_pool.acquire()

    async def borrow() -> None:
        await waiting_pool.acquire()

    waiting = asyncio.ensure_future(borrow())
    await asyncio.sleep(0)
    await waiting_pool.close()
    with pytest.raises(errors.ChannelClosed, match="the pool of channels is closed"):
        await waiting
    await waiting_pool.release(kept)
    await pool.close()
    assert idle.is_closed
    assert not lent.is_closed
    await pool.release(lent)
    assert lent.is_closed
    with pytest.raises(errors.ChannelClosed):
        await pool.acquire()


async def test_who_is_cancelled_waits_for_no_network(connection: Connection, pool: ChannelPool) -> None:
    async def borrow() -> None:
        async with pool.acquire():
            inside.set()
            await asyncio.Event().wait()

    inside = asyncio.Event()
    task = asyncio.ensure_future(borrow())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.size == 0


async def test_a_block_that_is_cancelled_waits_for_no_network(harebell_url: str) -> None:
    port = urlsplit(harebell_url).port
    assert port is not None
    async with FaultProxy("127.0.0.1", port) as proxy:
        url = f"amqp://127.0.0.1:{proxy.port}/"
        async with harebell.connect(url, timeout=math.inf) as connection:
            for pool in (connection.channel_pool(), harebell.ConnectionPool(url, timeout=math.inf)):
                lent = asyncio.Event()

                async def work(pool: Any = pool, lent: asyncio.Event = lent) -> None:
                    async with pool:
                        async with pool.acquire():
                            pass
                        lent.set()
                        await asyncio.sleep(3600)

                task = asyncio.create_task(work())
                await lent.wait()
                with proxy.stalled("both"):
                    task.cancel()
                    done, _ = await asyncio.wait([task], timeout=60)
                    assert done
                    assert task.cancelled()


async def test_connections(broker_url: str, queue: str) -> None:
    async with harebell.ConnectionPool(broker_url, max_size=2, timeout=60) as pool:
        async with pool.acquire() as connection, connection.channel() as channel:
            assert await channel.message_count(queue) == 0
        async with pool.acquire() as again:
            assert again is connection
            left = await again.channel()
        assert again.is_closed  # a channel was left open on it
        assert left.is_closed
        async with pool.acquire() as lost:
            await lost.close()
        assert pool.size == 0
    with pytest.raises(errors.InvalidArgument, match="max_size is 0"):
        harebell.ConnectionPool(broker_url, 0)
    with pytest.raises(errors.InvalidArgument):
        await harebell.ConnectionPool("http://nowhere").acquire()


async def test_one_that_is_made_for_a_closed_pool(connection: Connection) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    made: list[Channel] = []

    async def setup(channel: Channel) -> None:
        made.append(channel)
        begun.set()
        await go.wait()

    pool = connection.channel_pool(1, setup=setup)

    async def borrow() -> None:
        await pool.acquire()

    borrowing = asyncio.ensure_future(borrow())
    await begun.wait()
    await pool.close()
    go.set()
    with pytest.raises(errors.ChannelClosed):
        await borrowing
    await pool.close()
    assert made[0].is_closed
