"""The blocking producer and relay: each way to publish, its failures, its end, from any thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import Channel, Connection, connect
from harebell.client.messages import Message, Publication
from harebell.client.patterns.sqlite_outbox import SQLiteOutbox


def bodies(channel: Channel, queue: str) -> list[bytes]:
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body)
    return found


def test_each_way_to_publish(blocking: Connection, queue: str) -> None:
    with blocking.producer(window=10, deduplicate=True) as producer:
        assert producer.publish(b"0", queue).acked
        pending = [producer.publish_soon(b"%d" % n, queue) for n in range(1, 30)]
        assert [each.position for each in pending] == list(range(29))
        assert pending[3].result(timeout=60).acked
        assert pending[3].done
        assert pending[3].publication.routing_key == queue
        many = producer.publish_many(Publication(Message(b"%d" % n), "", queue) for n in range(30, 60))
        assert all(confirmation.acked for confirmation in many)
        producer.drain()
        assert (producer.unconfirmed, list(producer.parked)) == (0, [])
    assert bodies(blocking.channel(), queue) == [b"%d" % n for n in range(60)]


def test_values_of_a_codec_are_encoded_by_the_calling_thread(blocking: Connection, queue: str) -> None:
    threads = []

    class Loud(harebell.JSON[object]):
        def encode(self, value: object, /) -> tuple[bytes, str]:
            threads.append(threading.current_thread())
            return super().encode(value)

    with blocking.producer(codec=Loud()) as producer:
        producer.publish({"n": 1}, queue)
        producer.publish_soon([2], queue)
        producer.publish_many([Publication(3, "", queue)])  # type: ignore[arg-type]  # the codec's
    assert bodies(blocking.channel(), queue) == [b'{"n":1}', b"[2]", b"3"]
    assert set(threads) == {threading.current_thread()}


def test_failures_are_told_once(blocking: Connection, queue: str, name: str) -> None:
    with blocking.producer() as producer:
        with pytest.raises(errors.Unroutable):
            producer.publish(b"m", f"{name}.none")
        with pytest.raises(errors.Unroutable):
            producer.publish_soon(b"m", f"{name}.none").result()
        with pytest.raises(errors.PublishesFailed) as caught:
            producer.publish_many([Publication(b"m", "", key) for key in (queue, f"{name}.none")])
        assert set(caught.value.failures) == {1}
        unheard = producer.publish_soon(b"m", f"{name}.none")
        with pytest.raises(errors.PublishesFailed):
            producer.drain()
        producer.drain()
        with pytest.raises(errors.Unroutable):
            unheard.result()
    with pytest.raises(errors.PublishesFailed), blocking.producer() as producer:
        producer.publish_soon(b"m", f"{name}.none")
    with pytest.raises(ZeroDivisionError), blocking.producer() as producer:
        producer.publish_soon(b"m", f"{name}.none")
        raise ZeroDivisionError  # the error of the block is the one to raise


def test_what_is_not_confirmed_in_time_is_still_under_way(blocking: Connection, name: str) -> None:
    with blocking.channel() as channel, blocking.producer(on_nack="retry") as producer:
        channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        producer.publish(b"0", name)
        pending = producer.publish_soon(b"1", name)
        with pytest.raises(errors.DeadlineExceeded, match="still under way"):
            pending.result(timeout=0.01)
        channel.queue_purge(name)
        assert pending.result(timeout=60).acked
        channel.queue_delete(name)


def test_many_threads_share_one(blocking: Connection, queue: str) -> None:
    with blocking.producer(window=5) as producer, ThreadPoolExecutor(4) as threads:
        for confirmation in threads.map(lambda n: producer.publish(b"%d" % n, queue), range(40)):
            assert confirmation.acked
        list(threads.map(lambda n: producer.publish_soon(b"%d" % n, queue), range(40, 80)))
    assert sorted(int(body) for body in bodies(blocking.channel(), queue)) == list(range(80))


def test_an_interrupted_block_does_not_wait(blocking: Connection, queue: str) -> None:
    with pytest.raises(KeyboardInterrupt), blocking.producer() as producer:
        producer.publish_soon(b"m", queue)
        raise KeyboardInterrupt
    with pytest.raises(errors.LocalProtocolError, match="not started"):
        blocking.producer().publish(b"m", queue)


def test_a_blocked_broker_is_told_on_another_thread(blocking: Connection) -> None:
    told: list[tuple[str | None, str]] = []
    heard = threading.Event()

    def on_blocked(reason: str | None) -> None:
        told.append((reason, threading.current_thread().name))
        heard.set()

    with blocking.producer(on_blocked=on_blocked) as producer:
        with blocking.io.turn:
            producer._inner._on_blocked("memory")  # type: ignore[misc]
        assert heard.wait(60)
    assert told == [("memory", "harebell-callbacks")]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[SQLiteOutbox]:
    outbox = SQLiteOutbox(tmp_path / "shop.db")
    yield outbox
    outbox.close()


def test_a_relay_publishes_what_was_committed(
    blocking: Connection, queue: str, outbox: SQLiteOutbox, tmp_path: Path
) -> None:
    db = sqlite3.connect(tmp_path / "shop.db")
    with db:
        outbox.put(db, b"0", queue)
        outbox.put(db, b"nowhere", f"{queue}.none")
    relay = blocking.relay(outbox)
    assert relay.drain() == 1
    assert (relay.published, relay.refused) == (1, 1)
    relay.close()
    with blocking.relay(outbox, interval=3600) as relay:
        with db:
            outbox.put(db, b"1", queue)
        relay.wake()
        with connect(blocking.parameters) as other, other.channel() as channel:
            while channel.message_count(queue) < 2:
                pass
    assert bodies(blocking.channel(), queue) == [b"0", b"1"]
    db.close()


def test_a_relay_on_a_thread_ends_with_its_connection(harebell_url: str, outbox: SQLiteOutbox) -> None:
    with ThreadPoolExecutor(1) as threads:
        with connect(harebell_url) as connection:
            relay = connection.relay(outbox, interval=0.001)
            running = threads.submit(relay.run)
            while not relay._inner._producer._opened:
                time.sleep(0.001)
        db = sqlite3.connect(outbox._path)
        with db:
            outbox.put(db, b"m", "nowhere")
        db.close()
        with pytest.raises(errors.ChannelClosed):
            running.result(60)
