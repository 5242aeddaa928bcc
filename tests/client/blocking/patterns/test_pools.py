"""Pools for threads: what is lent belongs to one thread, and comes back as new or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harebell import errors
from harebell.client.blocking import Channel, Connection, ConnectionPool
from tests.client.outages import FAST


def test_threads_borrow_channels(blocking: Connection, queue: str) -> None:
    made: list[threading.Thread] = []

    def set_up(channel: Channel) -> None:
        made.append(threading.current_thread())
        channel.confirm_select()

    with blocking.channel_pool(2, setup=set_up) as pool:

        def work(n: int) -> bool:
            with pool.acquire(timeout=60) as channel:
                confirmation = channel.publish(b"%d" % n, "", queue)
                return confirmation is not None and confirmation.acked

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(work, range(40)))
        assert (pool.size <= 2, pool.idle) == (True, pool.size)
        assert len(made) == pool.size
        assert threading.main_thread() not in made
    with blocking.channel() as channel:
        assert channel.message_count(queue) == 40


def test_what_failed_is_not_lent_again(blocking: Connection) -> None:
    with blocking.channel_pool(1, timeout=60) as pool:
        channel = pool.take()
        with pytest.raises(errors.DeadlineExceeded, match="1 of 1 are lent"):
            pool.take(timeout=0.01)
        pool.release(channel)
        with pytest.raises(errors.LocalProtocolError, match="not lent"):
            pool.release(channel)
        with pytest.raises(ZeroDivisionError), pool.acquire() as same:
            assert same.inner is channel.inner
            raise ZeroDivisionError
        assert same.is_closed
        with pytest.raises(KeyboardInterrupt), pool.acquire() as other:
            assert other.inner is not channel.inner
            raise KeyboardInterrupt
        with pool.acquire() as another:
            assert another.inner is not other.inner
    with pytest.raises(errors.ChannelClosed, match="the pool of channels is closed"):
        pool.take()


def test_threads_borrow_connections(broker_url: str) -> None:
    with ConnectionPool(broker_url, 2, recovery=FAST, credentials=lambda: ("guest", "guest")) as pool:

        def work(n: int) -> None:
            with pool.acquire() as connection, connection.channel() as channel:
                channel.publish(b"m", "amq.fanout")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(10)))
        assert 1 <= pool.size <= 2
        with pool.acquire() as connection:
            left = connection.channel()
        assert left.is_closed  # with what a borrower has left open it is closed
        assert connection.is_closed
