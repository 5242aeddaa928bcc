"""The demonstration from beginning to end: broker, traffic, Spark, counts, and the removal of what it declared.

Three threads. Broker and client share an event loop in one of them, because under one interpreter lock they take turns
anyway (measured with a thread for each: 0 to 10 % slower). Spark's calls block, and its executors, which are other
processes, need the broker meanwhile, so a second thread makes these calls. The main thread only waits: so a Ctrl-C
interrupts that thread and never a call of PySpark into Java, which would not survive it.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import harebell
from harebell.admin import Management
from harebell.broker import Broker
from harebell.cli.flights import topology, traffic
from harebell.cli.flights.background import Background
from harebell.cli.flights.counts import Group
from harebell.cli.flights.data import CANCELLED, FLIGHTS, Expected, airlines, flights
from harebell.cli.flights.pipeline import Pipeline, Row
from harebell.cli.server_name import server_name
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.log_file import logging_into, stderr_into, tail
from harebell.errors import InvalidArgument

__all__ = ["Outcome", "run"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Outcome:
    """The results of a run, which the table and the report show. Times are seconds."""

    broker: str = ""
    spark: str = ""
    flights: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    triage: dict[str, list[Row]] = field(default_factory=dict)
    statistics: dict[str, list[Row]] = field(default_factory=dict)
    alerts: list[Row] = field(default_factory=list)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - started

    def rate(self, what: str, number: int, seconds: float) -> None:
        if seconds > 0:
            self.rates[what] = number / seconds


def run(
    display: Display,
    url: str | None,
    limit: int | None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    archive: Path | None = None,
    keep: Callable[[Outcome, str], None] | None = None,
) -> Outcome:
    """Run the demonstration on the broker at `url`, or on a new one; with the first `limit` flights only, when given.

    `keep` is called at the end, with the outcome and the address of the new broker's web console, while the broker
    still runs and has its exchanges and queues.

    The archive goes to the folder `archive`, when given, and stays there; the folder must be new or empty.

    In every case the run removes its broker, Spark session and temporary files, and its exchanges and queues from a
    broker at `url`. Raises HarebellError (NamesTaken, ConnectionLost, MissingDependency, ...), Spark's
    exceptions, and KeyboardInterrupt for Ctrl-C.
    """
    outcome, expected, tally = Outcome(), Expected(), traffic.Tally()
    total = FLIGHTS if limit is None else min(limit, FLIGHTS)
    console = ""  # the address of the new broker's
    _check_arguments(url, archive, keep)
    # A missing package is reported before anything starts.
    airlines()
    Pipeline.check()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_folder()))
        log = folder / "log"
        stack.enter_context(logging_into(log))
        background = stack.enter_context(Background(loop_factory))
        if url is None:
            url, console = _start_broker(stack, background, display, with_console=keep is not None)

        control = _declared(stack, background, url, outcome, display)
        publishing, consuming = background.call(_open(url)), background.call(_open(url))
        stack.callback(lambda: background.call(_close(publishing, consuming)))
        read, complete = _Number(), threading.Event()
        archive_bar = ("flights.log into Parquet", total, lambda: read.value)
        bars = (
            ("publish to flights, confirmed", total, lambda: tally.published),
            ("process flights.ops", total, lambda: tally.handled),
            archive_bar,
        )
        java = stack.enter_context(SparkThread())
        with stderr_into(log):
            # Java needs seconds to start: the flights are published meanwhile, and Spark then reads them.
            starting = java.begin(Pipeline, url, folder, archive or folder / "archive")
            archiving = java.begin(_archive, starting, read, complete)
            try:
                with outcome.timed("publish and consume"), display.bars(*bars):
                    background.call(traffic.move(publishing, consuming, flights(limit), expected, tally))
                with outcome.timed("wait for Spark"), display.stage("wait for Spark"):
                    pipeline = starting.result()
            except Exception:
                display.say(tail(log))
                raise
            finally:
                complete.set()
                wait([starting])  # Java may still be starting and must not inherit the real standard error
        background.call(_close(publishing, consuming))
        outcome.flights = tally.confirmed
        outcome.rate("published and confirmed", tally.confirmed, tally.publishing)
        outcome.rate("consumed and acknowledged or rejected", tally.handled, tally.consuming)

        found = background.call(_counted(control, tally))
        try:
            with outcome.timed("rest of the archive"), display.bars(archive_bar):
                seconds = archiving.result()
            outcome.rate("streamed into Parquet", read.value, seconds)
            found |= _asked_of_spark(java, pipeline, outcome, expected, display)
        except Exception:
            display.say(tail(log))
            raise

        found["consumed"], alerts = background.call(traffic.collect_alerts(control, found["sent"]))
        outcome.alerts = [alerts[key] for key in sorted(alerts)]
        outcome.groups = _groups(outcome, expected, tally, found, limit)
        if keep is not None:
            keep(outcome, console)
    return outcome


def _check_arguments(url: str | None, archive: Path | None, keep: object) -> None:
    if archive is not None and archive.exists() and (not archive.is_dir() or any(archive.iterdir())):
        raise InvalidArgument(f"the archive of the flights goes to a new or an empty folder, which {archive} is not")
    if keep is not None and url is not None:
        raise InvalidArgument("--keep is for a broker that the demonstration starts: leave out --keep or --url")


def _start_broker(stack: ExitStack, background: Background, display: Display, *, with_console: bool) -> tuple[str, str]:
    """Start a broker that the stack stops. Returns its address, and that of its web console or ""."""
    broker = Broker()
    background.call(broker.start())
    stack.callback(lambda: background.call(broker.stop()))
    display.say(f"broker of our own at {broker.url}, its stream queues in a temporary folder")
    if not with_console:
        return broker.url, ""
    management = Management(broker)
    background.call(management.start())
    stack.callback(lambda: background.call(management.stop()))
    return broker.url, management.url


def _declared(
    stack: ExitStack, background: Background, url: str, outcome: Outcome, display: Display
) -> harebell.Connection:
    """Declare exchanges, queues and bindings, which the stack removes. Returns the connection that did it."""
    control = background.call(_open(url))
    stack.callback(lambda: background.call(_close(control)))
    outcome.broker = server_name(control.server_properties)
    if background.call(topology.reserve(control)):
        display.say("removed the exchanges and queues that an earlier run had left")
    stack.callback(_remove, background, url, display)
    background.call(_declare(control))
    display.say(f"exchanges, queues and bindings made in {outcome.broker}")
    return control


def _asked_of_spark(
    java: SparkThread, pipeline: Pipeline, outcome: Outcome, expected: Expected, display: Display
) -> dict[str, int]:
    """Have Spark count the archive, read the dead letters and the archive, and publish alerts. Returns the counts."""
    outcome.spark = pipeline.version
    with outcome.timed("count"), display.stage("count the rows in Parquet"):
        rows, ids = java.call(pipeline.archived)
    with outcome.timed("triage"), display.stage("triage of flights.dead"):
        outcome.triage = java.call(pipeline.triage)
    with outcome.timed("statistics"), display.stage("statistics by carrier and hour"):
        outcome.statistics = java.call(pipeline.statistics)
    sent = _Number()
    with outcome.timed("alerts"), display.bars(("publish alerts", len(expected.alerts), lambda: sent.value)):
        java.call(pipeline.publish_alerts, sent.set)
    return {"rows": rows, "ids": ids, "sent": sent.value}


async def _counted(control: harebell.Connection, tally: traffic.Tally) -> dict[str, int]:
    """The messages in the queues, by what they are."""
    return {
        "dead": await traffic.depth_once_steady(control, topology.DEAD, tally.rejected),
        "in the log": await traffic.log_length(control, topology.LOG),
        "at airports": sum([await traffic.depth(control, topology.airport_queue(a)) for a in topology.AIRPORTS]),
        "long-haul": await traffic.depth(control, topology.LONG_HAUL),
    }


def _groups(
    outcome: Outcome, expected: Expected, tally: traffic.Tally, found: Mapping[str, int], limit: int | None
) -> tuple[Group, ...]:
    """The numbers that have to agree, side by side."""
    due = len({(str(alert["carrier"]), str(alert["day"])) for alert in outcome.alerts} & expected.alerts)
    total = FLIGHTS if limit is None else min(limit, FLIGHTS)
    return (
        Group(
            "flights",
            (
                ("in the data set" if limit is None else "asked for", total),
                ("published and confirmed", tally.confirmed),
                ("acknowledged or rejected", tally.handled),
                ("in flights.EWR, .JFK, .LGA", found["at airports"]),
                ("in flights.log", found["in the log"]),
                ("rows in Parquet", found["rows"]),
                ("different ids in Parquet", found["ids"]),
            ),
        ),
        Group(
            "cancelled flights",
            (
                ("in the data set", CANCELLED if limit is None else expected.cancelled),
                ("rejected", tally.rejected),
                ("dead-lettered", found["dead"]),
                ("triaged by Spark", outcome.triage["total"][0]["n"]),
            ),
        ),
        Group(
            "long-haul flights",
            (("in the data set", expected.long_haul), ("in flights.long-haul", found["long-haul"])),
        ),
        Group(
            "alerts",
            (
                ("due, by the data set", len(expected.alerts)),
                ("published by Spark", found["sent"]),
                ("consumed", found["consumed"]),
                ("carriers and days among these that are due", due),
            ),
        ),
    )


def _archive(starting: Future[Pipeline], read: _Number, complete: threading.Event) -> float:
    """Archive the log, once the pipeline has started, until the complete log is read; returns the seconds it took."""
    pipeline, started = starting.result(), time.perf_counter()
    pipeline.archive(read.set, complete.is_set)
    return time.perf_counter() - started


class SparkThread:
    """The thread that makes Spark's calls. Leaving the `with` block stops the session, and so ends a running call."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "spark")
        self._first: Future[Any] | None = None

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = self._executor.submit(function, *args, **kwargs)
        if self._first is None:
            self._first = future
        return future

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.begin(function, *args, **kwargs).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is not None:
            # The first call makes the pipeline: after an interrupt, wait for it, because only then can it be stopped.
            made = wait([self._first]).done.pop()
            if made.exception() is None:
                made.result().stop()
        self._executor.shutdown()


class _Number:
    """A number that one thread sets and another reads."""

    def __init__(self) -> None:
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value


async def _open(url: str) -> harebell.Connection:
    # Without recovery: duplicates would be counted twice, and the numbers must agree.
    return await harebell.connect(url, recovery=None)


async def _close(*connections: harebell.Connection) -> None:
    for connection in connections:
        await connection.close()


async def _declare(connection: harebell.Connection) -> None:
    async with connection.channel() as channel:
        await topology.declare(channel)


def _remove(background: Background, url: str, display: Display) -> None:
    """Remove what was declared, on a new connection: a lost connection may be why the run ends."""

    async def remove() -> None:
        async with harebell.connect(url) as connection:
            await topology.remove(connection)

    try:
        background.call(remove())
    except harebell.errors.HarebellError as error:
        display.say(f"the exchanges and queues were not removed ({error}); the next run does it")
    else:
        display.say("exchanges and queues removed")


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed at the end, even if Java still writes into it while it ends."""
    return tempfile.TemporaryDirectory(prefix="harebell-demo-", ignore_cleanup_errors=True)
