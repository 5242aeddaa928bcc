"""The days. Each takes a Scene, does its damage while the cells run, and raises AssertionError if a count is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pyarrow.parquet as parquet

from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive.table import find_table
from harebell.testing.proxy import FaultProxy
from tests.cli.command import environment
from tests.spark.bad_days import evidence, faults
from tests.spark.bad_days.brokers import Server
from tests.spark.bad_days.torment import KINDS, Cell, Driver, Result, make_cells
from tests.spark.cluster import SparkCluster

__all__ = ["CLUSTER_DAYS", "DAYS", "Scene"]

LARGE: Final = 20 << 20  # bytes
OneWay = Literal["to_server", "to_client"]


@dataclass(frozen=True)
class Scene:
    """What a day finds: a broker, a Spark program, a folder of its own, how many messages and which cells.

    `kills` says how often a day that kills does so. `made` takes the cells of the matrix, `counted` figures of the day.
    """

    server: Server
    driver: Driver
    folder: Path
    messages: int = 3000
    kinds: Sequence[str] = KINDS
    sinks: Sequence[str] = ("parquet", "amqp")
    cluster: SparkCluster | None = None
    kills: int = 2
    made: list[Cell] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def cells(self, **options: object) -> list[Cell]:
        """The matrix, filled."""
        cells = make_cells(self.server, self.folder, self.messages, self.kinds, self.sinks, **options)
        self.made.extend(cells)
        return cells

    def strikes(self) -> Iterator[float]:
        """For each kill, the share of all micro-batches to wait for; counts the kill when the next one is asked for."""
        for strike in range(1, self.kills + 1):
            yield strike / (self.kills + 2)
            self.counted["kills"] += 1

    def one(self, sink: str, **options: object) -> Cell:
        """One cell that reads ten messages of a stream queue."""
        return make_cells(self.server, self.folder / "one", 10, ("stream",), (sink,), **options)[0]


def driver_killed(scene: Scene) -> None:
    """kill -9 of the driver and all its processes, several times in a run, each time in the middle of a batch."""
    cells = scene.cells()
    for share in scene.strikes():
        scene.driver.send(cells)
        scene.driver.wait(done(scene, cells, share))
        scene.driver.kill()
        scene.driver.start()
    assert not done(scene, cells, 1)(), "there was nothing left to do"
    all_well(cells, scene.driver.run(cells))


def executor_killed(scene: Scene) -> None:
    """kill -9 of an executor and its Python workers, each time in the middle of a task, at another of its moments."""
    assert scene.cluster is not None
    cells = scene.cells(format="faulty_amqp")
    scene.driver.send(cells)
    for strike, share in enumerate(scene.strikes()):
        scene.driver.wait(done(scene, cells, share))
        before = set(scene.cluster.executors())
        cell = min(cells, key=lambda cell: cell.batches)
        points = delicate(cell)
        folder = cell.folder / "faults"
        faults.arm(folder, [points[strike % len(points)]], executor=True)
        scene.driver.wait(lambda folder=folder: bool(faults.struck(folder)))  # type: ignore[misc]
        scene.driver.wait(another_executor(scene.cluster, before))
        faults.disarm(folder)
    all_well(cells, scene.driver.results())


def task_retried(scene: Scene) -> None:
    """The Python worker of a task is killed at each of its delicate moments; Spark runs the task again."""
    cells = scene.cells(format="faulty_amqp")
    expected = {}
    for cell in cells:
        expected[cell.name] = set(delicate(cell))
        faults.arm(cell.folder / "faults", sorted(expected[cell.name]))
    all_well(cells, scene.driver.run(cells))
    for cell in cells:
        assert faults.struck(cell.folder / "faults") == expected[cell.name], cell.name


def delicate(cell: Cell) -> tuple[str, ...]:
    """The points of a task of that cell at which it may be struck."""
    reading = ("read", "yielded") if cell.kind == "stream" else faults.READING
    return (*reading, *(faults.WRITING if cell.sink != "parquet" else ()))


def speculative_execution(scene: Scene) -> None:
    """A slow task of every batch gets a second attempt while the first one runs; one of them wins."""
    cells = scene.cells(source={"minPartitions": "2"})
    for cell in cells:
        slow = cell.folder / "attempts"
        slow.mkdir()
        cell.slow = str(slow)
        # One after the other: a second attempt needs a core that no waiting first attempt holds.
        all_well([cell], scene.driver.run([cell]))
        second = len(list(slow.iterdir()))
        assert second, f"{cell.name}: nothing was speculated"
        scene.counted["tasks with two attempts at the same time"] += second


def broker_restarted(scene: Scene) -> None:
    """kill -9 of the broker in the middle of the run, and a start with the same data."""
    # A query that begins while the broker is away is to wait for it.
    cells = scene.cells(source={"retryTimeout": "60"}, target={"retryTimeout": "60"})
    scene.server.sync_declarations()
    scene.driver.send(cells)
    for share in scene.strikes():
        scene.driver.wait(done(scene, cells, share))
        scene.server.kill()
        scene.server.start()
    all_well(cells, scene.driver.results())


def queue_declared_again(scene: Scene) -> None:
    """The queue is deleted and declared again with more messages: between two runs, and in the middle of one.

    A stream fails, and with failOnDataLoss=false is read from its new beginning. Of other queues, what was drained of
    the old one and all of the new one are there once; what was deleted in between is gone.
    """
    for kind in scene.kinds:
        for moment in ("between", "within"):
            cell = Cell(scene.server.url, kind, "parquet", scene.folder / f"again-{kind}-{moment}")
            cell.declare()
            cell.publish(scene.messages)
            if moment == "between":
                all_well([cell], scene.driver.run([cell]))
                time.sleep(3)  # a mark is of whole seconds
                again(cell, 2 * scene.messages)
                if kind == "stream":
                    fails(scene, cell, "DataLoss", "declared again", "failOnDataLoss=false")
            else:
                scene.driver.send([cell])
                scene.driver.wait(done(scene, [cell], 0.3))
                again(cell, 2 * scene.messages)
                error = scene.driver.results()[cell.name].error
                # On RabbitMQ a batch that was being read may be the old queue's end and the new one's beginning.
                assert kind != "stream" or error is not None
                assert error is None or any(name in error for name in ("DataLoss", "NotFound", "InvalidArgument")), (
                    error
                )
                if kind == "stream" and "rabbit" in type(scene.server).__name__.lower():
                    continue
            if kind == "stream":
                cell.source |= {"failOnDataLoss": "false"}
            result = scene.driver.run([cell])[cell.name]
            assert result.error is None, result.error
            arrived = evidence.in_files(cell.folder)
            new = frozenset(range(scene.messages, cell.published))
            assert arrived.rows == len(arrived.numbers) == arrived.pairs, f"{cell.name}: rows twice"
            assert arrived.numbers >= new, f"{cell.name}: {len(new - arrived.numbers)} of the new ones are missing"
            if moment == "between":
                assert len(arrived.numbers) == cell.published


def again(cell: Cell, count: int) -> None:
    """Another queue under the same name, with so many new messages."""
    evidence.delete(cell.url, cell.queue)
    cell.declare()
    cell.publish(count)


def many_queues(scene: Scene) -> None:
    """`harebell spark archive --every` over 24 queues, while other programs use every core and the broker is killed."""
    folder = scene.folder / "many"
    queues = [f"many.{scene.kinds[n % len(scene.kinds)]}.{uuid.uuid4().hex[:8]}" for n in range(24)]
    each = max(100, scene.messages // 10)

    def publish(start: int) -> None:
        for queue in queues:
            numbers = range(start, start + each)
            evidence.publish(
                scene.server.url, queue, (Message(b"%d" % n, message_id=f"{n}", delivery_mode=2) for n in numbers)
            )

    for queue in queues:
        evidence.declare(scene.server.url, queue, queue.split(".")[1])
    publish(0)
    scene.server.sync_declarations()
    command = [sys.executable, "-m", "harebell", "spark", "archive", str(folder), *queues, "--every", "1s"]
    scene.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for _ in range(2 * (os.cpu_count() or 1)):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        log = stack.enter_context((scene.folder / "archive.log").open("w"))
        archiving = stack.enter_context(
            subprocess.Popen([*command, "--url", scene.server.url], stdout=log, stderr=log, env=environment())
        )
        stack.callback(archiving.kill)

        def rows(count: int) -> Callable[[], bool]:
            def reached() -> bool:
                assert archiving.poll() is None, (scene.folder / "archive.log").read_text()[-3000:]
                with contextlib.suppress(InvalidArgument):
                    return sum(file.rows for file in find_table(folder).files()) >= count
                return False

            return reached

        scene.driver.wait(rows(12 * each))
        scene.server.kill()
        scene.server.start()
        publish(each)
        scene.driver.wait(rows(48 * each))
        archiving.send_signal(signal.SIGTERM)
        status = archiving.wait()
    said = (scene.folder / "archive.log").read_text()
    assert status == 0, said[-3000:]
    table = find_table(folder)
    found = Counter(
        (queue, number)
        for file in table.files()
        for queue, number in zip(
            *(parquet.ParquetFile(folder / file.path).read([name]).column(name).to_pylist() for name in NAMES),
            strict=True,
        )
    )
    assert found == Counter((queue, str(number)) for queue in queues for number in range(2 * each))


NAMES: Final = ("queue", "message_id")


def connection_cut(scene: Scene) -> None:
    """Connections are reset in the middle of a frame, deliveries and publishes, again and again."""
    cells = scene.cells()
    with proxy_before(scene.server) as (proxy, call):
        for cell in cells:
            cell.source = {"url": f"amqp://guest:guest@127.0.0.1:{proxy.port}/"}
            cell.target = dict(cell.source)
        scene.driver.send(cells)
        for strike in range(6):
            one_cut(scene, cells, proxy, call, "to_client" if strike % 2 else "to_server")
        call(proxy.no_cut)
        all_well(cells, scene.driver.results())


def older_than_retention(scene: Scene) -> None:
    """The checkpoint of a stream is older than what is left: the query fails, or skips and says which.

    Once some of it is left, and once as little as a broker leaves: nothing on RabbitMQ, the last message on Harebell.
    """
    some = Cell(scene.server.url, "stream", "parquet", scene.folder / "some")
    some.declare({"x-max-length-bytes": 200_000, "x-stream-max-segment-size-bytes": 50_000})
    behind(scene, some, 100, 2000)
    little = Cell(scene.server.url, "stream", "parquet", scene.folder / "little")
    little.declare({"x-max-length-bytes": 1000, "x-stream-max-segment-size-bytes": 1000})
    behind(scene, little, 3, 20)


def behind(scene: Scene, cell: Cell, read: int, unread: int) -> None:
    """Reads so many messages, and then so many more after retention was at them."""
    cell.publish(read)
    all_well([cell], scene.driver.run([cell]))
    # Body and properties are some 60 bytes on disk; numbers with leading zeros make them 1,000.
    cell.source |= {"maxMessagesPerTrigger": "5000"}
    cell.publish(unread, lambda number: b"%01000d" % number)
    fails(scene, cell, "DataLoss", "failOnDataLoss=false")
    cell.source |= {"failOnDataLoss": "false"}
    for _ in range(2):  # with nothing left it goes on too, and the next message tells what is gone
        result = scene.driver.run([cell])[cell.name]
        assert result.error is None, result.error
        cell.publish(1)
    result = scene.driver.run([cell])[cell.name]
    assert result.error is None, result.error
    arrived = evidence.in_files(cell.folder)
    newest = frozenset(range(cell.published - (arrived.rows - read), cell.published))
    assert arrived.rows == len(arrived.numbers), "rows twice"
    assert arrived.numbers == frozenset(range(read)) | newest
    assert read + 2 <= arrived.rows < cell.published
    # RabbitMQ's numbers have gaps, so the last one that is missing is not always the newest but so many.
    said = re.findall(rf"messages, {read} to (\d+), of queue '{cell.queue}' are gone.*; going on", scene.driver.log())
    assert len(said) == 1, said
    assert int(said[0]) >= min(newest) - 1


def late_reader(scene: Scene) -> None:
    """The checkpoint is old and the queue kept everything: all of it comes, in as many batches as it takes."""
    cells = scene.cells()
    all_well(cells, scene.driver.run(cells))
    for cell in cells:
        cell.publish(scene.messages)
    results = scene.driver.run(cells)
    for cell in cells:
        assert results[cell.name].rows == scene.messages, cell.name
    all_well(cells, results)


def queue_missing(scene: Scene) -> None:
    """The queue is not there: the query says so, at once. The sink's messages reach nobody: it fails."""
    for kind in scene.kinds:
        cell = Cell(scene.server.url, kind, "parquet", scene.folder / f"missing-{kind}")
        fails(scene, cell, "NotFound", cell.queue)
    unroutable = scene.one("amqp", target={"routingKey": "no.such.queue"})
    fails(scene, unroutable, "Unroutable", "no.such.queue")


def wrong_password(scene: Scene) -> None:
    """Refused at once, without the password in the error, the log or the progress."""
    secret = "h0nter-of-secrets"
    wrong = {"url": scene.server.url.replace("guest:guest", f"guest:{secret}")}
    before = len(scene.driver.log())
    cells = [*make_cells(scene.server, scene.folder, 10, scene.kinds, ("parquet",), source=wrong)]
    cells.append(scene.one("amqp", target=wrong))
    shown = ""
    for cell in cells:
        result = fails(scene, cell, "AccessRefused")
        shown += f"{result.error}{result.progress}"
        if cell.source and cell.kind != "stream":
            assert all_queued(cell)()
    assert secret not in shown + scene.driver.log()[before:]


def schema_drift(scene: Scene) -> None:
    """Bodies gain and change a field in the middle, the query gains a column: every row is there, none is guessed."""
    for kind in scene.kinds:
        cell = Cell(scene.server.url, kind, "parquet", scene.folder / f"drift-{kind}")
        cell.select = ("from_json(body, 'n BIGINT').n number", "message_id")
        cell.declare()
        cell.publish(700, lambda n: b'{"n": %d}' % n)
        all_well([cell], scene.driver.run([cell]))
        cell.publish(700, lambda n: b'{"m": {"deep": 1}, "n": %d}' % n)
        cell.schema = "offset bigint, message_id string, body string"
        cell.select = ("from_json(body, 'n BIGINT, m STRING').n number", "message_id", "offset")
        all_well([cell], scene.driver.run([cell]))
    unknown = scene.one("amqp", select=("body", "1 as shoe_size"))
    fails(scene, unknown, "cannot write column 'shoe_size'")


def large_message(scene: Scene) -> None:
    """A message of 20 MB between small ones."""
    for kind in scene.kinds:
        cell = Cell(scene.server.url, kind, "parquet", scene.folder / f"large-{kind}")
        cell.select = ("cast(substring(body, 1, 10) as bigint) number", "message_id")
        publish_large(cell)
        all_well([cell], scene.driver.run([cell]))
    cell = Cell(scene.server.url, "stream", "amqp", scene.folder / "large")
    publish_large(cell)
    assert scene.driver.run([cell])[cell.name].error is None
    sizes = evidence.sizes_in_queue(cell.url, cell.out)
    assert sorted(sizes) == [*[10] * 20, 10 + LARGE]


def full_spool_disk(scene: Scene) -> None:
    """No space for the spool: the query fails and says where, the messages stay queued; with space it goes on."""
    for kind in scene.kinds:
        if kind == "stream":
            continue  # has no spool
        cell = Cell(scene.server.url, kind, "parquet", scene.folder / f"full-{kind}", format="faulty_amqp")
        cell.source = {"retryTimeout": "3600"}  # no disk gets larger by waiting for it
        cell.declare()
        cell.publish(scene.messages)
        hindrance = cell.folder / "faults" / faults.FULL
        hindrance.parent.mkdir()
        hindrance.touch()
        fails(scene, cell, os.strerror(errno.ENOSPC))
        scene.driver.wait(all_queued(cell))  # a connection that ended gives its messages back in its own time
        hindrance.unlink()
        all_well([cell], scene.driver.run([cell]))
        assert evidence.ready(scene.server.url, cell.queue) == 0


DAYS: Final[dict[str, Callable[[Scene], None]]] = {
    "driver killed": driver_killed,
    "task retried": task_retried,
    "broker restarted": broker_restarted,
    "queue declared again": queue_declared_again,
    "many queues": many_queues,
    "connection cut": connection_cut,
    "older than retention": older_than_retention,
    "late reader": late_reader,
    "queue missing": queue_missing,
    "wrong password": wrong_password,
    "schema drift": schema_drift,
    "large message": large_message,
    "full spool disk": full_spool_disk,
}
"""The days for which one machine will do."""

CLUSTER_DAYS: Final[dict[str, Callable[[Scene], None]]] = {
    "executor killed": executor_killed,
    "speculative execution": speculative_execution,
}
"""Those that need a cluster: in local mode Spark neither loses an executor nor speculates."""


def fails(scene: Scene, cell: Cell, *texts: str) -> Result:
    """AssertionError unless the cell's query ends with an error that has these texts; its result."""
    result = scene.driver.run([cell])[cell.name]
    assert result.error is not None, f"{cell.name} did not fail"
    for text in texts:
        assert text in result.error, result.error
    return result


def publish_large(cell: Cell) -> None:
    cell.declare()
    cell.publish(10, lambda n: b"%010d" % n)
    cell.publish(1, lambda n: b"%010d" % n + b"." * LARGE)
    cell.publish(10, lambda n: b"%010d" % n)


def done(scene: Scene, cells: Sequence[Cell], share: float) -> Callable[[], bool]:
    """Whether so much of all micro-batches is complete, of 500 messages each."""
    goal = share * len(cells) * -(-scene.messages // 500)
    return lambda: sum(cell.batches for cell in cells) >= goal


def all_queued(cell: Cell) -> Callable[[], bool]:
    return lambda: evidence.ready(cell.url, cell.queue) == cell.published


def another_executor(cluster: SparkCluster, before: set[int]) -> Callable[[], bool]:
    return lambda: bool(set(cluster.executors()) - before)


def one_cut(
    scene: Scene,
    cells: Sequence[Cell],
    proxy: FaultProxy,
    call: Callable[[Callable[[], None]], None],
    direction: OneWay,
) -> None:
    """Cuts after 10,007 bytes more, and waits until as many again have come through, or all is done."""
    seen = proxy.forwarded(direction)
    call(lambda: proxy.cut_after(10_007, direction))
    scene.driver.wait(lambda: proxy.forwarded(direction) > seen + 20_014 or done(scene, cells, 1)())


def all_well(cells: Sequence[Cell], results: dict[str, Result]) -> None:
    """AssertionError unless every cell's query ended without an error and its count is right."""
    wrong = {name: result.error for name, result in results.items() if result.error is not None}
    assert not wrong, "\n".join(f"{name}: {error}" for name, error in wrong.items())
    verdicts = {cell.name: cell.verdict() for cell in cells}
    wrong = {name: verdict for name, verdict in verdicts.items() if verdict}
    assert not wrong, "; ".join(f"{name}: {verdict}" for name, verdict in wrong.items())


@contextmanager
def proxy_before(server: Server) -> Iterator[tuple[FaultProxy, Callable[[Callable[[], None]], None]]]:
    """A proxy that runs in a thread, and how to call it there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    proxy = FaultProxy("127.0.0.1", server.port)

    def call(function: Callable[[], None]) -> None:
        async def inside() -> None:
            function()

        asyncio.run_coroutine_threadsafe(inside(), loop).result(60)

    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(60)
        yield proxy, call
        asyncio.run_coroutine_threadsafe(proxy.aclose(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
