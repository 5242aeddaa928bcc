"""Consumers of the blocking API of sessions: iterating, batches, browsing, many threads."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harebell import errors
from harebell.client.blocking.sessions import Connection, Session
from harebell.client.blocking.thread import Waiter
from harebell.client.messages import Publication


def filled(session: Session, queue: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    assert session.publish_many(Publication(body, "", queue) for body in bodies) == count
    return bodies


@pytest.mark.parametrize("no_ack", [False, True])
def test_everything_in_order(session: Session, queue: str, no_ack: bool) -> None:
    bodies = filled(session, queue, 1000)
    found: list[bytes] = []
    consumer = session.consume(queue, window=30, no_ack=no_ack)
    for delivery in consumer:
        found.append(delivery.body)
        if not no_ack:
            delivery.accept()
        if len(found) == len(bodies):
            break
    consumer.cancel()
    assert found == bodies
    assert list(consumer) == []
    session.sync()
    assert session.message_count(queue) == 0


@pytest.mark.parametrize("no_ack", [False, True])
def test_batches(session: Session, queue: str, no_ack: bool) -> None:
    bodies = filled(session, queue, 300)
    found: list[bytes] = []
    with session.consume(queue, window=50, no_ack=no_ack) as consumer:
        while len(found) < len(bodies):
            batch = consumer.receive(max_messages=20, timeout=60)
            assert 0 < len(batch) <= 20
            found += [delivery.body for delivery in batch]
            if not no_ack:
                for delivery in batch:
                    delivery.accept()
        assert consumer.receive(timeout=0.01) == []
        with pytest.raises(errors.InvalidArgument):
            consumer.receive(0)
    assert found == bodies
    assert consumer.receive() == []  # it has ended


def test_settling(session: Session, queue: str) -> None:
    filled(session, queue, 4)
    with session.consume(queue, window=4) as consumer:
        accepted, released, rejected, left = (next(consumer) for _ in range(4))
        accepted.accept()
        released.release(set_redelivered=True)
        rejected.reject("no good")
        for settle in (accepted.accept, released.release, rejected.reject):
            with pytest.raises(errors.LocalProtocolError, match="settled already"):
                settle()
        again = next(consumer)
        assert (again.body, again.redelivered) == (released.body, True)
        again.accept()
        session.sync()
        assert session.statistics().held == 1
    assert not left.settled
    left.accept()


def test_browsing(session: Session, queue: str) -> None:
    bodies = filled(session, queue, 20)
    with session.browse(queue, window=3) as browser:
        copies = [next(browser) for _ in bodies]
        assert [copy.body for copy in copies] == bodies
        assert copies[4].acquire()
        with pytest.raises(errors.LocalProtocolError, match="is acquired"):
            copies[4].acquire()
        copies[4].accept()
        assert browser.receive(timeout=0.01) == []
    with session.browse(queue) as browser:
        assert [copy.body for copy in browser.receive(timeout=60)] == [*bodies[:4], *bodies[5:]]
        assert browser.tag
    assert session.message_count(queue) == 19
    copies = session.copies(queue, most=3)
    assert [copy.body for copy in copies] == bodies[:3]
    for copy in session.acquire(copies):
        copy.accept()
    session.sync()
    assert session.message_count(queue) == 16


def test_what_was_not_taken_goes_back(session: Session, connection: Connection, queue: str) -> None:
    bodies = filled(session, queue, 10)
    with session.consume(queue) as consumer:
        next(consumer).accept()
    with connection.session() as other:
        delivery = other.get(queue, no_ack=True)
        assert delivery is not None
        assert (delivery.body, delivery.redelivered) == (bodies[1], False)
    dropped = session.consume(queue)
    assert next(dropped).body == bodies[2]
    del dropped
    gc.collect()
    with connection.session() as other:
        while other.message_count(queue) < 7:
            session.sync()


def test_several_threads_share_a_consumer(session: Session, queue: str) -> None:
    bodies = filled(session, queue, 600)
    consumer = session.consume(queue, window=40)
    got: list[bytes] = []

    def work(number: int) -> None:
        for delivery in consumer:
            delivery.accept()
            got.append(delivery.body)
            if len(got) >= len(bodies):
                consumer.cancel()
                return

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, number) for number in range(3)]:
            done.result(60)
    assert sorted(got) == sorted(bodies)
    session.sync()
    assert session.message_count(queue) == 0


def test_it_goes_on_over_lost_connections(connection: Connection, session: Session, queue: str) -> None:
    bodies = filled(session, queue, 200)
    found: list[bytes] = []
    for delivery in session.consume(queue, window=20):
        if len(found) % 50 == 25:
            connection.test().force_reconnect()
        found.append(delivery.body)
        delivery.accept()
        if len(found) == len(bodies):
            break
    assert found == bodies
    assert connection.statistics().reconnects == 4


def test_the_end_of_the_session_is_the_end_of_the_iteration(connection: Connection, queue: str) -> None:
    with connection.session() as session:
        consumer = session.consume(queue)
        consumer.start()
        with pytest.raises(errors.NotFound):
            session.queue_declare(f"{queue}.none", passive=True)
        with pytest.raises(errors.NotFound):
            next(consumer)
        with pytest.raises(errors.ChannelClosed):
            next(session.consume(queue))


def test_a_missing_queue(connection: Connection, name: str) -> None:
    with connection.session() as session, pytest.raises(errors.NotFound), session.consume(name):
        pass


def test_an_interrupted_block_waits_for_nothing(session: Session, queue: str) -> None:
    class Interrupted(BaseException):
        pass

    filled(session, queue, 10)
    with pytest.raises(Interrupted), session.consume(queue) as consumer:
        next(consumer).accept()
        raise Interrupted
    session.sync()
    while session.message_count(queue) < 9:
        session.sync()


@pytest.mark.parametrize("what", ["next", "receive"])
def test_a_wait_that_is_interrupted_leaves_the_delivery_to_the_next(
    session: Session, queue: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    consumer = session.consume(queue)
    consumer.start()
    wait, publisher = Waiter.wait, threading.Thread(target=session.publish, args=(b"m", "", queue))

    def interrupted(waiter: Waiter, timeout: float = -1) -> bool:
        if threading.current_thread() is publisher:
            return wait(waiter, timeout)
        publisher.start()
        wait(waiter, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Waiter, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(consumer) if what == "next" else consumer.receive()
        publisher.join()
    assert next(consumer).body == b"m"
    consumer.cancel()


def test_a_message_that_an_interrupt_hides_goes_back(
    session: Session, connection: Connection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(session, queue, 1)
    wait = Waiter.wait

    def interrupted(waiter: Waiter, timeout: float = -1) -> bool:
        wait(waiter, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Waiter, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.get(queue)
        with pytest.raises(KeyboardInterrupt):
            connection.session("hidden")
        with pytest.raises(KeyboardInterrupt):
            session.transaction().__enter__()
    session.sync()
    assert session.message_count(queue) == 1
    with connection.session("hidden") as other:
        delivery = other.get(queue)
        assert delivery is not None
        delivery.accept()
