"""Drains of real brokers on bad days, without Spark: what was published is read exactly once, whatever happened."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from harebell.broker import Broker as HarebellBroker
from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.config import Limits
from harebell.errors import AccessRefused, DeadlineExceeded, InvalidArgument, NotFound, SpoolError
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.queues.drain import Limit, drain
from harebell.spark.queues.spool import Spool, Step, no_step
from harebell.testing import FaultProxy
from harebell.testing.embedded import EmbeddedBroker
from harebell.testing.rabbitmq import RabbitMQ
from tests.fixtures.rabbitmq import VERSIONS, Nodes
from tests.spark.conftest import DRAINED, Broker

T = TypeVar("T")

PATIENCE = 180.0
STEPS = ("received", "writing", "written", "linked", "acked", "handed", "marked")

Drained = Callable[..., list[str]]


class Bench:
    """A spool folder, and drains of one queue into it."""

    def __init__(self, url: str, queue: str, folder: Path, **more: str) -> None:
        given = {"url": url, "queue": queue, "spool": str(folder), "prefetch": "200", **more}
        self.options: SourceOptions = source_options(given, streaming=False)
        self.spool = Spool(folder, self.options.vhost, queue)
        self.again: set[str] = set()  # what came as redelivered

    def read(self, ticket: str = "t", part: int = 0, limit: Limit | None = None, step: Step = no_step) -> list[str]:
        got: list[str] = []
        for batch in drain(self.options, self.spool.ticket(ticket), part, limit or Limit(), step):
            numbers = batch.column("message_id").to_pylist()
            got += numbers
            self.again.update(itertools.compress(numbers, batch.column("redelivered").to_pylist()))
        return got


def numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def wait_ready(broker: Broker, queue: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while broker.ready(queue) != count:
        assert time.monotonic() < deadline


def wait_returned(server: RabbitMQ, queue: str) -> None:
    """Wait until nothing is unacknowledged: a quorum queue has what a lost channel held a moment later."""
    deadline = time.monotonic() + PATIENCE
    while f"{queue}\t0" not in server.ctl("list_queues", "name", "messages_unacknowledged").splitlines():
        assert time.monotonic() < deadline


def at(wanted: str, number: int, work: Callable[[], object]) -> Step:
    """A step that does something, the first time that it comes to this point."""
    done = False

    def step(name: str, reached: int) -> None:
        nonlocal done
        if not done and (name, reached) == (wanted, number):
            done = True
            work()

    return step


@contextlib.contextmanager
def proxied(url: str) -> Iterator[tuple[str, FaultProxy, Callable[[Callable[[], object]], None]]]:
    """A proxy before the broker: its URL, itself, and a way to call it from this thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    host, _, port = url.partition("@")[2].partition("/")[0].rpartition(":")

    def run(work: Callable[[], object]) -> None:
        async def call() -> None:
            work()

        asyncio.run_coroutine_threadsafe(call(), loop).result(PATIENCE)

    proxy = FaultProxy(host, int(port))
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(PATIENCE)
    try:
        yield url.replace(f"{host}:{port}", f"{proxy.host}:{proxy.port}"), proxy, run
    finally:
        asyncio.run_coroutine_threadsafe(proxy.aclose(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_connection_cut_at_any_place(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 2000)
    with proxied(broker.url) as (url, proxy, run):
        bench = Bench(url, queue, tmp_path)
        run(lambda: proxy.cut_after(30_000, "to_client"))  # in the middle of what is delivered

        def cut_later() -> None:
            run(lambda: proxy.cut(reset=True))

        steps = [at("written", 4, cut_later), at("linked", 7, cut_later), at("acked", 11, cut_later)]

        def step(name: str, number: int) -> None:
            for one in steps:
                one(name, number)

        got = bench.read(step=step)
        assert proxy.accepted >= 5
    assert sorted(got, key=int) == numbers(2000)
    assert Bench(broker.url, queue, tmp_path).read("next") == []
    assert broker.ready(queue) == 0


CHILD = """
import os, signal, sys
from pathlib import Path
from tests.spark.test_spool_days import Bench
url, queue, folder, steps = sys.argv[1:]
for number, wanted in enumerate(steps.split(",")):
    child = os.fork()
    if child == 0:
        def step(name, reached):
            if (name, reached) == (wanted, number):
                os.kill(os.getpid(), signal.SIGKILL)
        Bench(url, queue, Path(folder)).read(step=step)
        os._exit(1)  # it should not have come to its end
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, wanted
"""


# To a broker a killed process is a connection that was cut, which the test above does to each kind of queue.
@pytest.mark.parametrize(
    "broker, kind",
    [
        pytest.param("rabbitmq_server", "quorum", marks=pytest.mark.rabbitmq),
        pytest.param("rabbitmq4_server", "classic", marks=pytest.mark.rabbitmq),
        ("harebell_server", "classic"),
    ],
    indirect=["broker"],
)
def test_a_process_that_is_killed_at_any_step(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 2000)
    # Each attempt dies one segment later, and at another step: seven times in one drain.
    subprocess.run(
        [sys.executable, "-c", CHILD, broker.url, queue, str(tmp_path), ",".join(STEPS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
        timeout=PATIENCE,
    )
    bench = Bench(broker.url, queue, tmp_path)
    got = bench.read()
    assert sorted(got, key=int) == numbers(2000)
    assert got == bench.read()
    assert bench.read("next") == []
    assert broker.ready(queue) == 0


def test_a_restarted_broker(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(lambda: HarebellBroker(data=tmp_path / "data")) as server,
        contextlib.closing(Broker(server.url)) as broker,
    ):
        queue = broker.queue("classic")
        broker.publish(queue, (Message(b"x", message_id=n, delivery_mode=2) for n in numbers(1000)))
        bench = Bench(server.url, queue, tmp_path / "spool")
        steps = [at("linked", 2, server.restart), at("acked", 5, server.restart), at("written", 7, server.restart)]

        def step(name: str, number: int) -> None:
            for one in steps:
                one(name, number)

        got = bench.read(step=step)
        assert sorted(got, key=int) == numbers(1000)
        assert bench.read("next") == []


@pytest.mark.slow
@pytest.mark.rabbitmq
@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_rabbitmq_that_forgets_acknowledgements(version: str, tmp_path: Path) -> None:
    """A classic queue: RabbitMQ 3.10 does not start a quorum queue again when it is killed soon after declaring it."""
    with Nodes.fresh(version) as server, contextlib.closing(Broker(server.url)) as broker:
        queue = broker.queue("classic")
        broker.publish(queue, (Message(b"x", message_id=n, delivery_mode=2) for n in numbers(2000)))
        server.sync_declarations()

        def kill() -> None:
            server.kill()
            server.start()

        bench = Bench(server.url, queue, tmp_path, retryTimeout="120")
        wait_ready(broker, queue, 2000)
        got = bench.read(step=at("acked", 8, kill))
        assert sorted(got, key=int) == numbers(2000)
        kill()  # of what is acknowledged, it may remember little
        assert Bench(server.url, queue, tmp_path, retryTimeout="120").read("next") == []
        wait_ready(broker, queue, 0)


def check_large(url: str, folder: Path) -> None:
    broker = Broker(url)
    large = os.urandom(1 << 20) * 20
    for kind in ("classic", "quorum"):
        queue = broker.queue(kind)
        broker.publish(queue, [Message(large, message_id="0"), Message(b"", message_id="1"), Message(large[::-1])])
        bench = Bench(url, queue, folder)
        rows = [row for batch in drain(bench.options, bench.spool.ticket("t"), 0, Limit()) for row in batch.to_pylist()]
        assert [row["message_id"] for row in rows] == ["0", "1", None]
        assert all(row["body"] == body for row, body in zip(rows, (large, b"", large[::-1]), strict=True))
    broker.close()


@pytest.mark.rabbitmq
def test_messages_of_20_megabytes_from_rabbitmq(rabbitmq_server: RabbitMQ, tmp_path: Path) -> None:
    """RabbitMQ 4 refuses what is larger than 16 MiB."""
    check_large(rabbitmq_server.url, tmp_path)


def test_messages_of_20_megabytes(tmp_path: Path) -> None:
    with EmbeddedBroker(lambda: HarebellBroker(limits=Limits(max_message_size=32 << 20))) as server:
        check_large(server.url, tmp_path)


def test_what_is_missing_or_refused_is_said_at_once(broker: Broker, tmp_path: Path) -> None:
    patient = {"retryTimeout": "3600"}  # not for this
    with pytest.raises(NotFound, match="404 NOT_FOUND - no queue 'nowhere' in vhost '/'"):
        Bench(broker.url, "nowhere", tmp_path, **patient).read()
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(AccessRefused, match="403 ACCESS_REFUSED"):
        Bench(wrong, "nowhere", tmp_path, **patient).read()


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_queue_that_is_deleted_in_the_middle(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 1000)

    def delete() -> None:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_delete(queue)

    bench = Bench(broker.url, queue, tmp_path)
    with pytest.raises(NotFound, match=rf"no queue '{queue}' .*; \d+ messages that this drain took from it are safe"):
        bench.read(step=at("handed", 2, delete))
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    got = bench.read()
    assert got == numbers(len(got))
    assert len(got) >= 300


@pytest.mark.rabbitmq
def test_a_delivery_limit_is_not_reached_by_crashes(any_rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    broker = Broker(any_rabbitmq.url)
    dead = broker.queue("classic")
    queue = broker.queue(
        "quorum", {"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    )
    broker.numbered(queue, 1000)
    bench = Bench(broker.url, queue, tmp_path)

    class Crash(Exception):
        pass

    def crash() -> None:
        raise Crash

    for number in (0, 2, 4, 6):  # what is in a file is acknowledged when it comes again
        with pytest.raises(Crash):
            bench.read(step=at("linked", number, crash))
    wait_returned(any_rabbitmq, queue)
    assert sorted(bench.read(), key=int) == numbers(1000)
    assert (broker.ready(queue), broker.ready(dead)) == (0, 0)
    broker.close()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_is_full(broker: Broker, tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(mount)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        queue = broker.queue("classic")
        broker.publish(queue, (Message(bytes(1000), message_id=n) for n in numbers(300)))
        bench = Bench(broker.url, queue, mount / "spool", prefetch="100", retryTimeout="3600")
        with pytest.raises(SpoolError, match=rf"{mount}.*: No space left on device \(0\.\d MB free of 0\.2 MB\); what"):
            bench.read()
        kept = len(list(bench.spool.folder.glob("*/*.arrow")))
        assert 1 <= kept <= 3
        assert not list(bench.spool.folder.glob("*/*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=4m", str(mount)], check=True)
        assert bench.read() == numbers(300)
        assert bench.read("next") == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


# -- several at once -----------------------------------------------------------------------------------------------


def together(*works: Callable[[], T]) -> list[T]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_competing_parts_and_a_cut(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind)
    broker.numbered(queue, 3000)
    with proxied(broker.url) as (url, proxy, run):
        bench = Bench(url, queue, tmp_path)
        # All connections are lost at once, when one part has a segment on disk that has no name yet.
        cut = at("written", 3, lambda: run(lambda: proxy.cut(reset=True)))
        parts = together(
            lambda: bench.read(part=0, limit=Limit(1000), step=cut),
            lambda: bench.read(part=1, limit=Limit(1000)),
            lambda: bench.read(part=2, limit=Limit(1000)),
        )
    assert sorted((n for part in parts for n in part), key=int) == numbers(3000)
    assert bench.spool.ticket("t").segments()[-1].name.startswith("00002-")
    assert broker.ready(queue) == 0


def test_two_queries_share_a_queue_and_a_folder(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    broker.numbered(queue, 3000)
    one, other = Bench(broker.url, queue, tmp_path), Bench(broker.url, queue, tmp_path)
    first, second = together(lambda: one.read("one"), lambda: other.read("other"))
    assert sorted(first + second, key=int) == numbers(3000)


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_a_single_active_consumer_serves_parts_one_after_another(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind, {"x-single-active-consumer": True})
    broker.numbered(queue, 900)
    bench = Bench(broker.url, queue, tmp_path)
    parts = together(*(lambda part=part: bench.read(part=part, limit=Limit(300)) for part in range(3)))
    assert sorted((n for part in parts for n in part), key=int) == numbers(900)
    if broker.product == "RabbitMQ":  # gives back what is on its way to a consumer that ends, for the next one
        parts = [[n for n in part if n not in bench.again] for part in parts]
    assert parts == [sorted(part, key=int) for part in parts]


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_an_ordered_read_is_alone_or_refused(broker: Broker, kind: str, tmp_path: Path) -> None:
    plain, single = broker.queue(kind), broker.queue(kind, {"x-single-active-consumer": True})
    for queue in (plain, single):
        broker.numbered(queue, 500)
        bench = Bench(broker.url, queue, tmp_path, ordered="true", readTimeout="0.3")
        with connect(broker.url) as connection, connection.channel() as channel:
            with channel.consume(queue, prefetch=10):
                with pytest.raises(InvalidArgument, match=rf"queue '{queue}' has 1 other consumer, and with ordered="):
                    bench.read()
        wait_ready(broker, queue, 500)
        got = bench.read()
        # RabbitMQ's quorum queues put what is given back behind the rest.
        assert got == numbers(500) if kind == "classic" else [*numbers(500)[10:], *numbers(10)]


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_another_active_consumer_is_named_after_the_read_timeout(broker: Broker, kind: str, tmp_path: Path) -> None:
    queue = broker.queue(kind, {"x-single-active-consumer": True})
    broker.numbered(queue, 50)
    bench = Bench(broker.url, queue, tmp_path, readTimeout="0.5", retryTimeout="0")
    with connect(broker.url) as connection, connection.channel() as channel:
        with channel.consume(queue, prefetch=10):
            with pytest.raises(DeadlineExceeded, match=r"has 40 messages but delivered none in 0.5 s, to one of"):
                bench.read()
