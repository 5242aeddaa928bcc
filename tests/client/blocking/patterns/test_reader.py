"""Iterating over what a queue delivers, from threads; against each broker."""

from __future__ import annotations

import gc
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from harebell import errors
from harebell.client.blocking import Channel, Connection
from tests.client.blocking.patterns.test_workers import eventually, exists, fill, left


def test_iterate_and_leave(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 20)
    seen = []
    for delivery in blocking.deliveries(queue, prefetch=5):
        delivery.ack()
        seen.append(delivery.body)
        if len(seen) == 15:
            break
    assert seen == [b"%d" % n for n in range(15)]
    gc.collect()
    assert left(blocking, queue, 5) == [b"%d" % n for n in range(15, 20)]


def test_a_block_gives_back_what_was_not_settled(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 5)
    with blocking.deliveries(queue) as reader:
        first = next(reader)
        next(reader).ack()
        assert (reader.queue, reader.ended, first.consumer_tag) == (queue, False, reader.tag)
        assert reader.channel.is_open
        assert reader.channel is reader.channel
    assert reader.ended
    assert reader.channel.is_closed
    assert (list(reader), reader.receive()) == ([], [])
    assert sorted(left(blocking, queue, 4)) == [b"0", b"2", b"3", b"4"]


def test_cancel_leaves_the_rest_to_be_settled(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 5)
    with blocking.deliveries(queue) as reader:
        delivery = next(reader)
        reader.cancel()
        delivery.ack()
        assert list(reader) == []
    assert left(blocking, queue, 4) == [b"1", b"2", b"3", b"4"]


def test_batches(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 7)
    with blocking.deliveries(queue) as reader:
        assert [len(reader.receive(3, math.inf, within=600)), len(reader.receive(4, within=600))] == [3, 4]
        assert reader.receive(1, 0.01) == []
        with pytest.raises(errors.InvalidArgument):
            reader.receive(0)


def test_threads_share_it(blocking: Connection, queue: str) -> None:
    bodies = fill(blocking, queue, 200)
    seen: list[bytes] = []
    with blocking.deliveries(queue, prefetch=20) as reader, ThreadPoolExecutor(3) as threads:

        def work() -> None:
            for delivery in reader:
                seen.append(delivery.body)
                delivery.ack()
                if len(seen) >= 200:
                    reader.cancel()

        for done in [threads.submit(work) for _ in range(3)]:
            done.result(60)
    assert sorted(seen) == sorted(bodies)
    assert left(blocking, queue, 0) == []


def test_it_outlasts_an_outage(blocking: Connection, queue: str) -> None:
    with blocking.deliveries(queue) as reader:
        fill(blocking, queue, 1)
        first = next(reader)
        blocking.test().force_reconnect()
        with pytest.raises(errors.AcknowledgeOrphans):
            first.ack()
        again = next(reader)
        assert (again.body, again.redelivered) == (b"0", True)
        again.ack()


@pytest.mark.parametrize("how", ["next", "receive"])
def test_a_deleted_queue_ends_it_unless_it_may_come_back(
    blocking: Connection, other: Channel, queue: str, how: str
) -> None:
    with blocking.deliveries(queue) as reader:
        other.queue_delete(queue)
        with pytest.raises(errors.ConsumerCancelled):
            next(reader) if how == "next" else reader.receive()
    other.queue_declare(queue)
    with blocking.deliveries(queue, resubscribe=True) as reader, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: next(reader) if how == "next" else reader.receive(timeout=60)[0])
        other.queue_delete(queue)
        eventually(lambda: exists(other, queue))
        other.publish(b"m", "", queue)
        assert waiting.result(60).body == b"m"


def test_a_missing_queue_and_bad_arguments(blocking: Connection, name: str) -> None:
    with pytest.raises(errors.NotFound):
        next(blocking.deliveries(name))
    with pytest.raises(errors.InvalidArgument, match="prefetch is -1"):
        blocking.deliveries(name, prefetch=-1)
