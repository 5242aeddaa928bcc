"""Remote calls between threads: replies, errors, settling by the handler, and the end of the server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import Connection
from harebell.client.messages import Delivery


def test_calls_from_threads_are_answered_by_threads(blocking: Connection, queue: str) -> None:
    threads = set()

    def handle(delivery: Delivery) -> bytes:
        threads.add(threading.current_thread().name)
        return delivery.body * 2

    with blocking.serve(queue, handle, workers=4) as server, blocking.rpc() as rpc, ThreadPoolExecutor(4) as callers:
        assert (rpc.call(b"a", queue, timeout=60).body, rpc.waiting) == (b"aa", 0)
        replies = callers.map(lambda n: rpc.call(b"%d" % n, queue, timeout=60).body, range(20))
        assert list(replies) == [b"%d%d" % (n, n) for n in range(20)]
        assert (server.running, server.stopped) == (0, False)
    assert server.stopped
    assert all(thread.startswith(f"harebell-{queue}") for thread in threads)


def test_values_of_a_codec(blocking: Connection, queue: str) -> None:
    def handle(value: object, delivery: Delivery) -> object:
        assert delivery.properties.content_type == "application/json"
        return {"got": value}

    values = harebell.JSON[object]()
    with blocking.serve(queue, handle, codec=values), blocking.rpc(codec=values) as rpc, blocking.rpc() as plain:
        assert rpc.call([1], queue, timeout=60) == {"got": [1]}
        with pytest.raises(errors.RemoteError) as caught:
            plain.call(b"no json", queue, timeout=60)
        assert caught.value.kind == "UndecodableBody"


def test_what_a_handler_raises_goes_to_its_caller(blocking: Connection, queue: str, name: str) -> None:
    told: list[tuple[bytes, Exception]] = []

    def handle(delivery: Delivery) -> None:
        raise ValueError("not today")

    with (
        blocking.serve(queue, handle, on_error=lambda delivery, error: told.append((delivery.body, error))),
        blocking.rpc() as rpc,
    ):
        with pytest.raises(errors.RemoteError, match="ValueError: not today"):
            rpc.call(b"m", queue, timeout=60)
        with pytest.raises(errors.Unroutable):
            rpc.call(b"m", f"{name}.none", timeout=60)
    [(body, error)] = told
    assert (body, type(error)) == (b"m", ValueError)


def test_a_handler_may_settle_its_request(blocking: Connection, queue: str) -> None:
    def handle(delivery: Delivery) -> None:
        with pytest.raises(errors.LocalProtocolError, match="multiple"):
            delivery.ack(multiple=True)
        delivery.ack()

    with blocking.serve(queue, handle), blocking.rpc() as rpc:
        assert rpc.call(b"m", queue, timeout=60).body == b""
    with blocking.channel() as channel:
        assert channel.message_count(queue) == 0


def test_a_server_ends_with_its_queue(blocking: Connection, queue: str) -> None:
    server = blocking.serve(queue, lambda delivery: b"")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(server.run)
        with blocking.channel() as channel:
            while not channel.queue_inspect(queue).consumer_count:
                pass
            channel.queue_delete(queue)
        with pytest.raises(errors.ConsumerCancelled):
            running.result(60)
    server.stop()
    with blocking.channel() as channel:
        channel.queue_declare(queue)


def test_an_interrupted_block_does_not_wait_for_its_handlers(blocking: Connection, queue: str) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handle(delivery: Delivery) -> None:
        began.set()
        go_on.wait(60)

    with pytest.raises(KeyboardInterrupt), blocking.serve(queue, handle) as server:
        with blocking.channel() as channel:
            channel.publish(b"m", "", queue)
        assert began.wait(60)
        raise KeyboardInterrupt
    with blocking.channel() as channel:
        while not channel.message_count(queue):  # another server will answer it
            pass
    go_on.set()
    with pytest.raises(ZeroDivisionError), blocking.serve(queue, handle):
        raise ZeroDivisionError
    assert server.stopped


def test_handlers_that_threads_cannot_call_are_refused(blocking: Connection, queue: str) -> None:
    async def coroutine(delivery: Delivery) -> None: ...

    with pytest.raises(errors.InvalidArgument, match="is a coroutine function"):
        blocking.serve(queue, coroutine)
    with pytest.raises(errors.InvalidArgument, match="cannot be called with"):
        blocking.serve(queue, lambda: None)
    with pytest.raises(errors.InvalidArgument, match="on_error"):
        blocking.serve(queue, lambda delivery: None, on_error=lambda: None)  # type: ignore[misc,arg-type]
