"""The blocking API from many threads, in signals, forks and at the interpreter's end."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from harebell import blocking, errors, events as e
from harebell.client.blocking import thread
from harebell.client.messages import Publication
from harebell.testing import FaultProxy
from tests.client.outages import FAST

SEEN: ContextVar[int] = ContextVar("SEEN", default=0)

# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(broker_url: str) -> Iterator[blocking.Connection]:
    with blocking.connect(broker_url, timeout=60, recovery=FAST) as connection:
        yield connection


def everywhere(work: Callable[[int], None], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, n) for n in range(threads)]:
            done.result(60)


def drained(channel: blocking.Channel, queue: str) -> list[bytes]:
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body)
    return found


def test_many_threads_use_one_channel(shared: blocking.Connection, name: str) -> None:
    channel = shared.channel()
    channel.queue_declare(name, exclusive=True)
    channel.confirm_select()
    tags: set[int] = set()

    def publish(n: int) -> None:
        for i in range(50):
            confirmation = channel.publish(b"%d.%d" % (n, i), "", name)
            assert confirmation is not None
            tags.add(confirmation.publish_tag)
        assert channel.publish_many(Publication(b"%d.%d" % (n, i), "", name) for i in range(50, 100)) == 50
        assert channel.queue_declare(name, passive=True).name == name

    everywhere(publish, 6)
    assert len(tags) == 300
    deliveries = channel.consume(name, prefetch=70)
    got: list[bytes] = []

    def consume(n: int) -> None:
        for delivery in deliveries:
            delivery.ack()
            got.append(delivery.body)
            if len(got) >= 600:
                deliveries.cancel()
                return

    everywhere(consume, 3)
    assert sorted(got) == sorted(b"%d.%d" % (n, i) for n in range(6) for i in range(100))
    assert channel.queue_declare(name, passive=True).message_count == 0


def test_threads_at_work_outlast_reconnects(shared: blocking.Connection, name: str) -> None:
    events = shared.events()
    with shared.channel() as channel:
        channel.queue_declare(name)
        stop = threading.Event()
        sent: list[bytes] = []

        def publish(n: int) -> None:
            own = shared.channel()
            own.confirm_select(on_orphan="retry")
            while not stop.is_set():
                body = b"%d.%d" % (n, len(sent))
                own.publish(body, "", name)
                sent.append(body)

        workers = [threading.Thread(target=publish, args=(n,)) for n in range(3)]
        for worker in workers:
            worker.start()
        for _ in range(5):
            known = len(sent)
            shared.test().force_reconnect()
            while len(sent) < known + 20:
                channel.queue_declare(name, passive=True)
        stop.set()
        for worker in workers:
            worker.join(60)
        assert set(drained(channel, name)) == set(sent)
        channel.queue_delete(name)
    assert shared.test().reconnection_count == 6
    recovered = 0
    for event in events:
        recovered += isinstance(event, e.Recovered)
        if recovered == 5:
            break
    events.close()
    assert [event for event in events if isinstance(event, e.Closed)] == []


async def test_a_consumer_goes_on_behind_a_network_that_breaks(broker_url: str, name: str) -> None:
    address = urlsplit(broker_url)
    assert address.hostname is not None
    assert address.port is not None
    loop = asyncio.get_running_loop()

    async with FaultProxy(address.hostname, address.port) as proxy:
        url = broker_url.replace(f":{address.port}", f":{proxy.port}").replace(f"{address.hostname}:", f"{proxy.host}:")

        def work() -> None:
            with blocking.connect(broker_url) as firm, blocking.connect(url, timeout=60, recovery=FAST) as connection:
                source, channel = firm.channel(), connection.channel()
                source.queue_declare(name)
                source.confirm_select()
                source.publish_many(Publication(b"%d" % n, "", name) for n in range(400))
                done: set[bytes] = set()
                orphans = 0
                last = None
                for delivery in channel.consume(name, prefetch=100):
                    if len(done) in (50, 150) and delivery.body not in done:
                        loop.call_soon_threadsafe(proxy.cut)
                        last = connection.test().signal_on_reconnect()
                        last.wait()
                    done.add(delivery.body)
                    try:
                        delivery.ack()
                    except errors.AcknowledgeOrphans:
                        orphans += 1
                    if len(done) == 400:
                        break
                assert orphans == 2  # those that were in hand; what had only been taken ahead came again, unseen
                assert connection.test().reconnection_count == 3
                channel.close()
                assert drained(source, name) == []
                source.queue_delete(name)

        await asyncio.to_thread(work)


def used_pool(connection: blocking.Connection) -> Any:
    pool = connection.channel_pool()
    pool.release(pool.take())
    return pool


BLOCKS: dict[str, Callable[[blocking.Connection, str], Any]] = {
    "channel": lambda connection, queue: connection.channel(),
    "consumer": lambda connection, queue: connection.channel().consume(queue),
    "deliveries": lambda connection, queue: connection.deliveries(queue),
    "dead letters": lambda connection, queue: connection.dead_letters(queue),
    "producer": lambda connection, queue: connection.producer(),
    "rpc": lambda connection, queue: connection.rpc(),
    "workers": lambda connection, queue: connection.consume(queue, print),
    "server": lambda connection, queue: connection.serve(queue, print),
    "pool": lambda connection, queue: used_pool(connection),
    "connection": lambda connection, queue: connection,
}


@pytest.mark.parametrize("block", BLOCKS)
async def test_an_interrupt_leaves_a_block_without_waiting_for_the_network(
    harebell_url: str, name: str, block: str
) -> None:
    port = urlsplit(harebell_url).port
    assert port is not None
    async with FaultProxy("127.0.0.1", port) as proxy:
        stalled, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def work() -> blocking.Connection:
            connection = blocking.connect(f"amqp://127.0.0.1:{proxy.port}/", timeout=math.inf, recovery=FAST)
            connection.channel().queue_declare(name, exclusive=True)
            with pytest.raises(KeyboardInterrupt), BLOCKS[block](connection, name):
                loop.call_soon_threadsafe(stalled.set)
                assert go_on.wait(60)
                raise KeyboardInterrupt
            return connection

        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait([working, asyncio.create_task(stalled.wait())], return_when=asyncio.FIRST_COMPLETED)
        with proxy.stalled("both"):
            go_on.set()
            done, _ = await asyncio.wait([working], timeout=60)
            assert done
        await asyncio.to_thread((await working).close)


def test_heartbeats_go_on_while_the_program_is_busy(broker_url: str, name: str) -> None:
    returned, go_on = threading.Event(), threading.Event()

    def hold(back: object) -> None:
        returned.set()
        go_on.wait(60)

    with blocking.connect(broker_url, heartbeat=1, timeout=60) as connection, connection.channel() as channel:
        channel.on_return = hold
        channel.queue_declare(name, exclusive=True)
        channel.publish(b"work", "", name)
        for delivery in channel.consume(name):
            channel.publish(b"nobody's", "", f"{name}.none", mandatory=True)
            assert returned.wait(60)
            threading.Event().wait(2.6)  # a long piece of work: more than two heartbeats
            delivery.ack()
            break
        go_on.set()
        assert channel.queue_declare(name, passive=True).message_count == 0
        assert connection.test().reconnection_count == 1


def test_a_callback_that_fails_is_logged(
    shared: blocking.Connection, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    second = threading.Event()
    left = [ValueError("mine"), None]

    def fail(back: object) -> None:
        if (error := left.pop(0)) is not None:
            raise error
        second.set()

    channel = shared.channel()
    channel.on_return = fail
    for _ in range(2):
        channel.publish(b"", "", name, mandatory=True)
    assert second.wait(60)
    assert "failed on Returned(312" in caplog.text


def test_each_callback_has_a_context_of_its_own(shared: blocking.Connection, name: str) -> None:
    seen: SimpleQueue[int] = SimpleQueue()

    def called(event: object) -> None:
        seen.put(SEEN.get())
        SEEN.set(SEEN.get() + 1)

    with shared.channel() as channel:
        channel.confirm_select()
        channel.notify_return(called)
        channel.notify_return(called)
        for _ in range(2):
            channel.publish_nowait(b"", "", f"{name}.nowhere", mandatory=True)
        assert [seen.get(timeout=60) for _ in range(4)] == [0, 0, 0, 0]


PATCHED = [("gevent", "gevent.monkey", "is_module_patched"), ("eventlet", "eventlet.patcher", "is_monkey_patched")]


@pytest.mark.pure
@pytest.mark.parametrize("name, patcher, question", PATCHED)
def test_where_threads_are_replaced_it_refuses(
    monkeypatch: pytest.MonkeyPatch, name: str, patcher: str, question: str
) -> None:
    monkeypatch.setattr(thread, "_io", None)
    monkeypatch.setitem(sys.modules, patcher, SimpleNamespace(**{question: lambda part: part.startswith("thread")}))
    with pytest.raises(errors.LocalProtocolError, match=f"{name} has replaced Python's threads"):
        blocking.connect("amqp://nowhere.invalid/")


def handler_fails(*given: object) -> None:
    raise ValueError(given)


def notified(connection: blocking.Connection, fail: Callable[..., Any]) -> None:
    """A callback fails, and the next one is called all the same."""
    second = threading.Event()
    with connection.channel() as channel:
        channel.notify_return(fail)
        channel.notify_return(lambda back: second.set())
        channel.publish(b"", "", "nowhere", mandatory=True)
        assert second.wait(60)


def served(connection: blocking.Connection, queue: str, fail: Callable[..., Any]) -> None:
    with connection.serve(queue, handler_fails, on_error=fail), connection.rpc() as rpc:
        with pytest.raises(errors.RemoteError):
            rpc.call(b"", queue)


def handled(connection: blocking.Connection, queue: str, **options: Any) -> None:
    connection.channel().publish(b"", "", queue)
    with pytest.raises(errors.HandlerFailed):
        connection.consume(queue, handler_fails, max_failures=1, **options).run()


def cleaned_up(connection: blocking.Connection, queue: str, fail: Callable[..., Any]) -> None:
    connection.consume(queue, print, cleanup=fail).start().stop()


class Codec:
    def __init__(self, fail: Callable[..., Any]) -> None:
        self.encode = self.decode = fail


Use = Callable[[blocking.Connection, str, str, Callable[..., Any]], object]

OWN_FUNCTIONS: dict[str, tuple[Use, bool]] = {  # with whether the caller gets the error
    "on_error": (lambda connection, url, queue, fail: handled(connection, queue, on_error=fail), False),
    "on_error of a server": (lambda connection, url, queue, fail: served(connection, queue, fail), False),
    "codec": (lambda connection, url, queue, fail: handled(connection, queue, codec=Codec(fail)), False),
    "notify_return": (lambda connection, url, queue, fail: notified(connection, fail), False),
    "setup": (lambda connection, url, queue, fail: connection.consume(queue, print, setup=fail).start(), True),
    "cleanup": (
        lambda connection, url, queue, fail: connection.consume(queue, print, cleanup=fail).start().stop(),
        True,
    ),
    "setup of a pool": (lambda connection, url, queue, fail: connection.channel_pool(setup=fail).take(), True),
    "credentials": (lambda connection, url, queue, fail: blocking.connect(url, credentials=fail), True),
    "dial": (lambda connection, url, queue, fail: blocking.connect(url, dial=fail), True),
}


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("function", OWN_FUNCTIONS)
def test_no_error_of_an_own_function_ends_a_thread(
    shared: blocking.Connection, broker_url: str, name: str, function: str, error: BaseException
) -> None:
    use, raised = OWN_FUNCTIONS[function]

    def fail(*given: object) -> Any:
        raise error

    queue = shared.channel()
    queue.queue_declare(name, exclusive=True)
    called = threading.Event()
    found: list[BaseException] = []

    def call() -> None:
        try:
            use(shared, broker_url.replace("guest:guest@", ""), name, fail)
        except BaseException as caught:
            found.append(caught)
        called.set()

    threading.Thread(target=call, daemon=True).start()
    assert called.wait(60)
    assert [isinstance(caught, Exception) for caught in found] == [True] * raised
    assert all(repr(error) in str(caught) for caught in found)
    assert queue.queue_inspect(name).consumer_count >= 0


def test_the_end_of_the_program_in_a_coroutine_ends_no_thread(broker_url: str, shared: blocking.Connection) -> None:
    async def credentials() -> tuple[str, str]:
        raise SystemExit(3)

    with pytest.raises(errors.ConnectionLost, match="SystemExit"):
        blocking.connect(broker_url.replace("guest:guest@", ""), credentials=credentials)
    shared.channel().close()


def test_confirmations_as_an_iterator(shared: blocking.Connection, name: str) -> None:
    channel = shared.channel()
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(errors.LocalProtocolError):
        channel.send(b"", "", name)
    channel.confirm_select()
    confirmations = channel.confirmations()
    assert confirmations is channel.confirmations()
    tags = [channel.send(b"%d" % n, "", name) for n in range(500)]
    settled = []
    for confirmation in confirmations:
        assert confirmation.acked
        settled.append(confirmation.publish_tag)
        if len(settled) == len(tags):
            break
    assert sorted(settled) == tags
    channel.close()
    assert list(confirmations) == []


@pytest.mark.parametrize("at_once", [False, True])
def test_publish_nowait_needs_no_second_call(shared: blocking.Connection, name: str, at_once: bool) -> None:
    channel = shared.channel()
    channel.queue_declare(name)
    with channel.consume(name) as consumer:
        channel.publish_nowait(b"alone", "", name, at_once=at_once)
        delivery = next(consumer)
        assert delivery.body == b"alone"
        delivery.ack()
    channel.queue_delete(name)


def test_publishing_without_waiting(shared: blocking.Connection, name: str) -> None:
    channel = shared.channel()
    channel.queue_declare(name)
    channel.confirm_select()
    told: list[str] = []

    class Told:
        def settle(self, publish_tag: int, acked: bool) -> None:
            told.append(f"{publish_tag} acked")

        def returned(self, publish_tag: int, returned: object) -> None: ...
        def refused(self, publish_tag: int, error: Exception) -> None: ...

        def orphaned(self, publish_tag: int, reason: Exception) -> None:
            told.append(f"{publish_tag} orphaned")

    assert channel.publish_nowait(b"1", "", name, waiter=Told()) == 1
    while not told:
        channel.queue_declare(name, passive=True)
    assert channel.may_publish
    with shared.test().reconnect_blocked():
        assert not channel.may_publish
        with pytest.raises(errors.DeadlineExceeded):
            channel.publish(b"", "", name, timeout=0.05)
        with pytest.raises(errors.DeadlineExceeded):
            channel.wait_publish(timeout=0.05)
    channel.wait_publish()
    assert channel.publish(b"2", "", name) is not None
    assert channel.message_count(name) == 2
    channel.drain()
    assert told == ["1 acked"]
    assert not channel.parked
    channel.queue_delete(name)


def test_credentials_may_block(broker_url: str) -> None:
    asked: list[str] = []

    def credentials() -> tuple[str, str]:
        asked.append(threading.current_thread().name)
        return "guest", "guest"

    async def later() -> tuple[str, str]:
        return credentials()

    bare = broker_url.replace("guest:guest@", "nobody:wrong@")
    for given in (credentials, later):
        with blocking.connect(bare, credentials=given, timeout=60, recovery=FAST) as connection:
            connection.test().force_reconnect()
            connection.channel()
    assert len(asked) == 4
    assert "harebell-io" not in asked[:2]


# -- where it refuses --------------------------------------------------------------------------------------------------


async def test_inside_a_running_loop_it_refuses(broker_url: str) -> None:
    with pytest.raises(errors.LocalProtocolError, match=r"use harebell\.connect"):
        blocking.connect(broker_url)
    connection = await asyncio.to_thread(blocking.connect, broker_url)
    channel = await asyncio.to_thread(connection.channel)
    for call in (connection.close, lambda: channel.publish(b"", "", "q"), lambda: next(channel.consume("q"))):
        with pytest.raises(errors.LocalProtocolError, match=r"asyncio\.to_thread"):
            call()
    await asyncio.to_thread(connection.close)


def test_a_call_in_the_middle_of_another_is_refused(shared: blocking.Connection) -> None:
    with shared.io.turn, pytest.raises(errors.LocalProtocolError, match="signal handler"):
        shared.channel()
    shared.channel()


def test_a_connection_that_is_dropped_says_so_and_is_closed(broker_url: str) -> None:
    held = [blocking.connect(broker_url, timeout=60)]
    inner = held[0].inner
    with pytest.warns(ResourceWarning, match="unclosed connection to"):
        held.clear()
    assert "closed by this client" in str(thread.io_thread().run(inner.wait_closed))


def test_a_result_that_an_interrupt_hides_is_undone(
    shared: blocking.Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = shared.channel()
    channel.queue_declare(name, exclusive=True)
    channel.publish(b"kept", "", name)
    wait = thread.Waiter.wait

    def interrupted(waiter: thread.Waiter, timeout: float = -1) -> bool:
        wait(waiter, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(thread.Waiter, "wait", interrupted)
        for call in (lambda: channel.get(name), shared.channel, lambda: blocking.connect(shared.parameters)):
            with pytest.raises(KeyboardInterrupt):
                call()
    delivery = channel.get(name)
    assert delivery is not None
    assert delivery.redelivered
    assert len(shared.inner.recovery.channels) == 1


@pytest.mark.parametrize("take", ["next", "receive"])
def test_a_subscription_that_an_interrupt_hides_delivers(
    shared: blocking.Connection, name: str, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    """The first interrupt ends the attempt to subscribe, the second comes when the next attempt has succeeded."""
    channel = shared.channel()
    channel.queue_declare(name, exclusive=True)
    channel.publish(b"first", "", name)
    deliveries = channel.consume(name)
    wait = thread.Waiter.wait

    def at_once(waiter: thread.Waiter, timeout: float = -1) -> bool:
        raise KeyboardInterrupt

    def afterwards(waiter: thread.Waiter, timeout: float = -1) -> bool:
        wait(waiter, timeout)
        raise KeyboardInterrupt

    for interrupted in (at_once, afterwards):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(thread.Waiter, "wait", interrupted)
            deliveries.start()
    if take == "next":
        assert next(deliveries).body == b"first"
    else:
        assert [delivery.body for delivery in deliveries.receive(timeout=60)] == [b"first"]


def test_a_second_signal_while_a_publication_is_taken_back_costs_the_transport(
    shared: blocking.Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal between writing and numbering: what follows must not be confirmed under wrong numbers."""
    channel = shared.channel()
    channel.queue_declare(name)
    channel.confirm_select()
    reconnected = shared.test().signal_on_reconnect()
    with monkeypatch.context() as patch:

        def interrupted(*args: Any) -> int:
            raise KeyboardInterrupt

        patch.setattr(type(channel.inner.core.publishes), "add", interrupted)
        patch.setattr(type(channel.inner.core), "take_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            channel.publish(b"torn", "", name)
    reconnected.wait()
    confirmation = channel.publish(b"whole", "", name)
    assert confirmation is not None
    assert drained(channel, name) == [b"whole"]
    channel.queue_delete(name)


# -- signals, forks, the end: in processes of their own ----------------------------------------------------------------


PATIENCE = 120  # seconds


def unmeasured() -> dict[str, str]:
    """This environment, without coverage's: a tracer in a storm of signals does not come to its end."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def run(script: str, *arguments: str) -> str:
    """What the script prints. It has to end well, in time, and without a word of complaint.

    One that hangs says where its threads are.
    """
    with subprocess.Popen(
        # A signal between the making of a coroutine and its first step has Python say that it was never awaited.
        [sys.executable, "-Xdev", "-Wignore::DeprecationWarning", "-Wignore:coroutine", "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**unmeasured(), "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            output, complaint = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            output, complaint = process.communicate()
    assert (process.returncode, complaint) == (0, ""), complaint
    return output


SIGNALS = """
import os, signal, sys, threading
from harebell import blocking, errors

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever was started in the background ignores it

url, queue = sys.argv[1:]
armed, arm = os.pipe()  # a signal may come in the midst of a semaphore, and leave it broken

def interrupter():
    while True:
        os.read(armed, 1)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupter, daemon=True).start()

def interrupted(work, times):
    for _ in range(times):
        try:
            os.write(arm, b"!")
            while True:
                work()
        except KeyboardInterrupt:
            pass

with blocking.connect(url, timeout=60) as connection, connection.channel() as channel:
    channel.queue_declare(queue)
    channel.confirm_select()
    confirmed = 0

    def publish():
        global confirmed
        try:
            channel.publish(b"confirmed", "", queue)
        except errors.PublishOrphaned:
            return
        confirmed += 1

    interrupted(publish, 40)
    plain = connection.channel()
    interrupted(lambda: plain.publish(b"plain", "", queue), 40)
    interrupted(lambda: plain.queue_declare(queue, passive=True), 40)
    reading = connection.channel()
    deliveries = reading.consume(queue, prefetch=50)
    seen = 0

    def consume():
        global seen
        for delivery in deliveries:
            try:
                delivery.ack()
            except (errors.AcknowledgeOrphans, errors.LocalProtocolError):
                pass
            seen += delivery.body == b"confirmed"

    interrupted(consume, 40)
    while deliveries.receive(timeout=0.2):
        pass
    deliveries.cancel()
    reading.close()
    assert channel.publish(b"still", "", queue).acked
    channel.queue_delete(queue)
print("usable")
"""


def test_interrupts_leave_everything_usable(broker_url: str, name: str) -> None:
    assert run(SIGNALS, broker_url, name) == "usable\n"


FORK = """
import os, sys
from harebell import blocking, errors

url, queue = sys.argv[1:]
connection = blocking.connect(url, timeout=60)
channel = connection.channel()
channel.queue_declare(queue)
deliveries = channel.consume(queue)
deliveries.start()
child = os.fork()
if not child:
    publish, take = lambda: channel.publish(b"", "", queue), lambda: next(deliveries)
    for call in (connection.close, connection.channel, publish, take, lambda: channel.ack(1)):
        try:
            call()
        except errors.LocalProtocolError as error:
            assert "before a fork" in str(error), error
        else:
            raise AssertionError("the parent's connection was used")
    with blocking.connect(url, timeout=60) as own, own.channel() as mine:
        mine.publish(b"from the child", "", queue)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(next(deliveries).body.decode())
deliveries.cancel()
channel.queue_delete(queue)
connection.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_connects_for_itself(broker_url: str, name: str) -> None:
    assert run(FORK, broker_url, name) == "from the child\n"


END = """
import sys, threading
from harebell import blocking

url, queue = sys.argv[1:]
connection = blocking.connect(url, timeout=60)
channel = connection.channel()
waiting = threading.Event()

def consume():
    deliveries = channel.consume(queue)
    deliveries.start()
    waiting.set()
    for delivery in deliveries:
        pass

threading.Thread(target=consume, daemon=True).start()
waiting.wait()
events = connection.events()
for n in range(100):
    channel.publish(b"%d" % n, "", f"{queue}.out")
print("the end")
"""


def test_a_program_may_end_without_closing_anything(broker_url: str, name: str) -> None:
    with blocking.connect(broker_url, timeout=60) as connection, connection.channel() as channel:
        channel.queue_declare(name)
        channel.queue_declare(f"{name}.out")
        assert run(END, broker_url, name) == "the end\n"
        assert drained(channel, f"{name}.out") == [b"%d" % n for n in range(100)]
        assert channel.queue_declare(name, passive=True).consumer_count == 0
        channel.queue_delete(name)
        channel.queue_delete(f"{name}.out")
