"""Handlers on threads: what becomes of their messages, batches, the ends; against each broker."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import Channel, Connection, connect
from harebell.client.messages import Delivery, Publication
from harebell.client.middleware.hooks import HandleArgs
from harebell.client.middleware.registry import Middlewares

SET: ContextVar[bytes] = ContextVar("SET", default=b"")


class Calls:
    """What handlers were called with, on any threads, and a way to wait for it."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def add(self, *deliveries: Delivery) -> None:
        with self._changed:
            self.batches.append([delivery.body for delivery in deliveries])
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def messages(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: sum(map(len, self.batches)) >= count, 60)
            return [body for batch in self.batches for body in batch]


def fill(connection: Connection, queue: str, count: int) -> list[bytes]:
    bodies = [b"%d" % n for n in range(count)]
    with connection.channel() as channel:
        channel.confirm_select()
        channel.publish_many(Publication(body, "", queue) for body in bodies)
    return bodies


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def left(connection: Connection, queue: str, count: int) -> list[bytes]:
    """Wait until so many messages are ready, and take them out."""
    with connection.channel() as channel:
        eventually(lambda: channel.queue_inspect(queue).message_count == count)
        return [delivery.body for _ in range(count) if (delivery := channel.get(queue, no_ack=True)) is not None]


def test_handlers_run_on_threads_and_are_acknowledged(blocking: Connection, queue: str) -> None:
    bodies, calls = fill(blocking, queue, 40), Calls()
    together = threading.Barrier(2)

    def handle(delivery: Delivery) -> None:
        if delivery.body in (b"0", b"1"):
            together.wait(60)  # two at a time
        calls.add(delivery)

    with blocking.consume(queue, handle, workers=2) as workers:
        assert sorted(calls.messages(40)) == sorted(bodies)
        assert not workers.stopped
    assert (workers.stopped, workers.running) == (True, 0)
    assert all(thread.startswith(f"harebell-{queue}") for thread in calls.threads)
    assert left(blocking, queue, 0) == []


def test_what_fails_is_tried_again_and_given_up(blocking: Connection, queue: str) -> None:
    calls, told, dead = Calls(), Calls(), f"{queue}.dead"

    def handle(delivery: Delivery) -> None:
        calls.add(delivery)
        if delivery.body == b"1":
            raise ConnectionError("closed")
        if delivery.body == b"2":
            raise harebell.Reject

    retry = harebell.Retry(delays=(0.01,))
    with blocking.consume(queue, handle, retry=retry, on_error=lambda delivery, error: told.add(delivery)):
        fill(blocking, queue, 3)
        with blocking.dead_letters(dead) as letters:
            found = {}
            for _ in range(2):
                letter = next(letters)
                found[letter.body] = letter.error
                letter.delivery.ack()
    assert found == {b"1": "ConnectionError: closed", b"2": "Reject"}
    assert sorted(calls.messages(4)) == [b"0", b"1", b"1", b"2"]
    assert told.messages(2) == [b"1", b"1"]
    with blocking.channel() as channel:
        channel.queue_delete(f"{queue}.retry.10")
        channel.queue_delete(dead)


@pytest.mark.parametrize("codec", [None, harebell.JSON[object]()])
def test_batches(blocking: Connection, queue: str, codec: Any) -> None:
    fill(blocking, queue, 10)
    calls, dead = Calls(), f"{queue}.dead"
    with blocking.channel() as channel:
        channel.publish(b"{", "", queue)
        channel.publish(b"11", "", queue)

    def handle(*lists: list[Any]) -> None:
        deliveries: list[Delivery] = lists[-1]
        if codec is not None:
            assert lists[0] == [int(delivery.body) for delivery in deliveries]
        calls.add(*deliveries)
        if any(delivery.body in (b"3", b"{") for delivery in deliveries):
            raise ValueError("three")

    with blocking.consume(queue, handle, batch=12, within=600, codec=codec, dead_letter=dead):
        calls.messages(22 if codec else 24)
    sizes = [len(batch) for batch in calls.batches]
    assert sizes == ([11] + [1] * 11 if codec else [12] + [1] * 12)
    assert left(blocking, queue, 0) == []
    assert sorted(left(blocking, dead, 2)) == [b"3", b"{"]
    with blocking.channel() as channel:
        channel.queue_delete(dead)


@pytest.mark.parametrize("error", [KeyError("a mistake"), StopIteration(), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_is_its_failure(blocking: Connection, queue: str, error: BaseException) -> None:
    bodies = fill(blocking, queue, 5)

    def handle(delivery: Delivery) -> None:
        raise error

    with pytest.raises(errors.HandlerFailed, match="2 times in a row"):
        blocking.consume(queue, handle, workers=1, max_failures=2).run()
    assert sorted(left(blocking, queue, 5)) == bodies
    assert blocking.is_open


def test_a_handler_that_gives_a_coroutine_has_failed(blocking: Connection, queue: str) -> None:
    async def work(delivery: Delivery) -> None: ...

    fill(blocking, queue, 1)
    handler: Any = lambda delivery: work(delivery)  # noqa: E731  no coroutine function, as far as one can see
    with pytest.raises(errors.HandlerFailed, match="coroutine, which nobody awaits"):
        blocking.consume(queue, handler, max_failures=1).run()
    assert left(blocking, queue, 1) == [b"0"]


def test_a_handler_may_settle_and_stop(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 3)
    calls = Calls()

    def handle(delivery: Delivery) -> None:
        with pytest.raises(errors.LocalProtocolError, match="multiple"):
            delivery.ack(multiple=True)
        delivery.ack()
        calls.add(delivery)
        workers.stop()

    workers = blocking.consume(queue, handle, workers=1, prefetch=1)
    workers.run()
    assert calls.batches == [[b"0"]]
    assert workers.stopped
    assert left(blocking, queue, 2) == [b"1", b"2"]
    with pytest.raises(errors.LocalProtocolError, match="has ended"):
        workers.start()


OWN_FUNCTIONS = ("on_error", "on_error of a server", "on_orphan", "setup", "cleanup")


@pytest.mark.parametrize("function", OWN_FUNCTIONS)
def test_its_other_functions_may_stop_it(blocking: Connection, queue: str, function: str) -> None:
    dead, orphan = f"{queue}.dead", function == "on_orphan"
    made: list[Any] = []
    stopped, go_on = threading.Event(), threading.Event()

    def stop(*given: object) -> None:
        made[0].stop()
        stopped.set()

    def handle(delivery: Delivery) -> None:
        if not orphan:
            raise KeyError("mine")
        go_on.wait(60)

    options: Any = {function: stop}
    fill(blocking, queue, 0 if orphan else 1)
    if function == "on_error of a server":
        made.append(blocking.serve(queue, handle, workers=1, on_error=stop, grace=math.inf))
    else:
        made.append(blocking.consume(queue, handle, workers=1, dead_letter=dead, grace=math.inf, **options))
    running = threading.Thread(target=made[0].run, daemon=True)
    running.start()
    if orphan:
        fill(blocking, queue, 1)
        eventually(lambda: made[0].running == 1)
        blocking.test().force_reconnect()
        go_on.set()
    elif function == "cleanup":
        eventually(lambda: exists(blocking.channel(), dead))
        left(blocking, dead, 1)
        made[0].stop()
    assert stopped.wait(60)
    running.join(60)
    assert not running.is_alive()
    assert made[0].stopped
    if function == "on_error":
        assert left(blocking, dead, 1) == [b"0"]
    with blocking.channel() as channel:
        channel.queue_delete(dead)


def test_after_the_grace_messages_go_back_and_the_thread_goes_on(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 1)
    calls, go_on, late = Calls(), threading.Event(), Calls()

    def handle(delivery: Delivery) -> None:
        calls.add(delivery)
        go_on.wait(60)
        with pytest.raises(errors.HarebellError):
            delivery.ack()
        late.add(delivery)

    with blocking.consume(queue, handle) as workers:
        calls.messages(1)
        workers.stop(grace=0)
        assert left(blocking, queue, 1) == [b"0"]
        go_on.set()
        late.messages(1)


def test_orphans_are_told_on_a_thread(blocking: Connection, queue: str) -> None:
    calls, orphans, go_on = Calls(), Calls(), threading.Event()

    def handle(delivery: Delivery) -> None:
        calls.add(delivery)
        if not delivery.redelivered:
            go_on.wait(60)

    with blocking.consume(queue, handle, on_orphan=orphans.add):
        fill(blocking, queue, 1)
        calls.messages(1)
        blocking.test().force_reconnect()
        go_on.set()
        assert calls.messages(2) == [b"0", b"0"]
        assert orphans.messages(1) == [b"0"]
    assert orphans.threads == {"harebell-callbacks"}
    assert left(blocking, queue, 0) == []


def test_setup_and_cleanup_get_a_channel(blocking: Connection, queue: str) -> None:
    done: list[str] = []

    def setup(channel: Channel) -> None:
        channel.queue_declare(f"{queue}.own", exclusive=True)
        done.append("setup")

    def cleanup(channel: Channel) -> None:
        done.append(f"cleanup {channel.queue_inspect(f'{queue}.own').message_count}")

    calls = Calls()
    with blocking.consume(f"{queue}.own", calls.add, setup=setup, cleanup=cleanup):
        fill(blocking, f"{queue}.own", 2)
        calls.messages(2)
    assert done == ["setup", "cleanup 0"]


def test_a_deleted_queue_ends_it_unless_it_may_come_back(blocking: Connection, other: Channel, queue: str) -> None:
    calls = Calls()
    with (
        pytest.raises(errors.ConsumerCancelled),
        blocking.consume(queue, calls.add) as workers,
    ):
        other.queue_delete(queue)
        workers.wait()
    other.queue_declare(queue)
    with blocking.consume(queue, calls.add, resubscribe=True):
        other.queue_delete(queue)
        eventually(lambda: exists(other, queue))  # it is declared again, for that connection has declared it
        other.publish(b"m", "", queue)
        assert calls.messages(1) == [b"m"]


def exists(channel: Channel, queue: str) -> bool:
    try:
        channel.queue_inspect(queue)
    except errors.NotFound:
        return False
    return True


def interrupted(when: Callable[[], object]) -> threading.Thread:
    """Send this process a SIGINT, as Ctrl-C does, once that returns."""

    def send() -> None:
        when()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_an_interrupt_ends_a_wait_and_gives_back_what_is_in_process(blocking: Connection, queue: str) -> None:
    calls, go_on = Calls(), threading.Event()

    def handle(delivery: Delivery) -> None:
        calls.add(delivery)
        go_on.wait(60)

    fill(blocking, queue, 1)
    thread = interrupted(lambda: calls.messages(1))
    with pytest.raises(KeyboardInterrupt):
        blocking.consume(queue, handle).run()
    assert left(blocking, queue, 1) == [b"0"]  # while the handler goes on
    go_on.set()
    thread.join(60)


def interrupt_in_the_block(workers: Any) -> None:
    with workers:
        raise KeyboardInterrupt


def interrupt_at_the_start(workers: Any) -> None:
    workers.start()
    workers._leave()  # as when the interrupt comes just before `start` returns
    raise KeyboardInterrupt


@pytest.mark.parametrize("interrupt", [interrupt_in_the_block, interrupt_at_the_start])
def test_an_interrupt_loses_no_message(
    blocking: Connection, queue: str, caplog: pytest.LogCaptureFixture, interrupt: Callable[[Any], None]
) -> None:
    calls = Calls()
    bodies = fill(blocking, queue, 500)
    for _ in range(10):
        workers = blocking.consume(queue, calls.add, workers=2)
        with pytest.raises(KeyboardInterrupt):
            interrupt(workers)
        eventually(lambda workers=workers: workers.stopped)  # type: ignore[misc]
    with blocking.channel() as channel:
        eventually(lambda: channel.queue_inspect(queue).consumer_count == 0)
        eventually(lambda: channel.queue_inspect(queue).message_count + len(calls.batches) >= 500)
        ready = channel.queue_inspect(queue).message_count
    assert {*calls.messages(0), *left(blocking, queue, ready)} == set(bodies)
    assert "dropped" not in caplog.text


WAYS: dict[str, Callable[..., Any]] = {
    "consume": lambda connection, queue, handle: connection.consume(queue, handle, workers=1),
    "with a codec": lambda connection, queue, handle: connection.consume(
        queue, lambda value, delivery: handle(delivery), workers=1, codec=harebell.JSON[int]()
    ),
    "given up at once": lambda connection, queue, handle: connection.consume(queue, handle, workers=1, max_failures=1),
    "dead letters": lambda connection, queue, handle: connection.consume(
        queue, handle, workers=1, retry=harebell.Retry(delays=(1, 2), by="broker")
    ),
    "batches": lambda connection, queue, handle: connection.consume(
        queue, lambda batch: handle(*batch), batch=1, within=600
    ),
    "larger batches": lambda connection, queue, handle: connection.consume(
        queue, lambda batch: handle(*batch), batch=5, within=600
    ),
    "serve": lambda connection, queue, handle: connection.serve(queue, handle, workers=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_message_has_a_context_of_its_own(blocking: Connection, queue: str, way: str) -> None:
    calls, contexts = Calls(), []
    bodies = fill(blocking, queue, 5)

    def handle(*deliveries: Delivery) -> None:
        contexts.append(SET.get())
        SET.set(deliveries[0].body)
        calls.add(*deliveries)

    token = SET.set(b"the start")
    workers = WAYS[way](blocking, queue, handle).start()
    SET.reset(token)
    calls.messages(5)
    workers.stop()
    assert contexts == [b"the start"] * len(calls.batches)
    assert [body for batch in calls.batches for body in batch] == bodies


class Binding:
    """A middleware that sets a variable around the handler."""

    async def handle(self, call_next: Callable[[HandleArgs], Awaitable[object]], args: HandleArgs) -> object:
        SET.set(args.delivery.body)
        return await call_next(args)


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_runs_in_the_context_of_its_middlewares(
    blocking: Connection, broker_url: str, queue: str, way: str
) -> None:
    calls, contexts = Calls(), []
    fill(blocking, queue, 5)

    def handle(*deliveries: Delivery) -> None:
        contexts.append((SET.get(), deliveries[0].body))
        calls.add(*deliveries)

    middlewares = Middlewares().add_shared(Binding())
    with connect(broker_url, timeout=60, middleware=middlewares) as bound, WAYS[way](bound, queue, handle):
        calls.messages(5)
    assert all(seen == body for seen, body in contexts)


@pytest.mark.parametrize("way", WAYS)
def test_what_no_thread_can_process_goes_back(blocking: Connection, queue: str, way: str) -> None:
    calls = Calls()
    bodies = fill(blocking, queue, 10)

    def handle(*deliveries: Delivery) -> None:
        calls.add(*deliveries)
        workers._threads.shutdown(wait=False)

    workers = WAYS[way](blocking, queue, handle)
    with pytest.raises(errors.ConsumerCancelled, match=r"back in the queue: cannot schedule new futures"):
        workers.run()
    (processed,) = calls.batches
    assert processed + left(blocking, queue, 10 - len(processed)) == bodies


ENDING = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from harebell import blocking

url, queue, way = sys.argv[1:]
connection, begun, others = blocking.connect(url), threading.Event(), ThreadPoolExecutor(1)

def handle(delivery):
    os.write(1, delivery.body + b"\\n")
    begun.set()
    try:
        while True:
            others.submit(int).result()
    except RuntimeError:
        pass  # the interpreter is ending: no thread takes anything more

consumer = connection.consume(queue, handle, workers=4) if way == "consume" else connection.serve(queue, handle)
consumer.start()
begun.wait(60)
"""


@pytest.mark.parametrize("way", ["consume", "serve"])
def test_the_end_of_a_program_loses_no_message(blocking: Connection, queue: str, broker_url: str, way: str) -> None:
    bodies = fill(blocking, queue, 300)
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, broker_url, queue, way],
        capture_output=True, check=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    processed = ended.stdout.split()
    with blocking.channel() as channel:
        eventually(lambda: channel.queue_inspect(queue).consumer_count == 0)
        eventually(lambda: channel.queue_inspect(queue).message_count + len(processed) >= 300)
        ready = channel.queue_inspect(queue).message_count
    assert {*processed, *left(blocking, queue, ready)} == set(bodies)
    assert ended.stderr == b""


def test_an_interrupt_ends_an_iteration(blocking: Connection, queue: str) -> None:
    fill(blocking, queue, 3)
    seen, waits = [], threading.Event()
    thread = interrupted(lambda: waits.wait(60))
    with pytest.raises(KeyboardInterrupt), blocking.deliveries(queue) as deliveries:
        for delivery in deliveries:
            seen.append(delivery.body)
            if len(seen) == 1:
                delivery.ack()
            if len(seen) == 3:
                waits.set()
    thread.join(60)
    assert seen == [b"0", b"1", b"2"]
    assert left(blocking, queue, 2) == [b"1", b"2"]


def test_what_threads_cannot_call_is_refused(blocking: Connection, queue: str) -> None:
    async def coroutine(delivery: Delivery) -> None: ...

    class Lazy:
        async def __call__(self, delivery: Delivery) -> None: ...

    consume: Any = blocking.consume
    for arguments, text in (
        ({"handler": coroutine}, "the handler .*coroutine is a coroutine function"),
        ({"handler": Lazy()}, "is a coroutine function"),
        ({"handler": lambda: None}, "cannot be called with"),
        ({"codec": harebell.JSON()}, r"cannot be called with \(value, delivery\)"),
        ({"codec": harebell.JSON(), "batch": 2}, r"cannot be called with \(values, deliveries\)"),
        ({"on_error": lambda: None}, "on_error"),
        ({"on_orphan": coroutine}, "on_orphan .*is a coroutine function"),
        ({"setup": lambda: None}, "setup"),
        ({"cleanup": coroutine}, "cleanup"),
        ({"within": 1}, "give its size"),
        ({"batch": 0}, "batch is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"max_failures": 0}, "max_failures is 0"),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            consume(**{"queue": queue, "handler": lambda delivery: None, **arguments})


def test_many_threads_and_a_run_that_another_thread_stops(blocking: Connection, queue: str) -> None:
    calls = Calls()
    workers = blocking.consume(queue, calls.add, workers=4)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(workers.run)
        bodies = fill(blocking, queue, 100)
        assert sorted(calls.messages(100)) == sorted(bodies)
        workers.stop()
        workers.stop()
        assert running.result(60) is None
