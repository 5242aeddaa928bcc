"""A Spark program to torment, and the cells that it runs: kind of source queue x sink, each with its own queues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from harebell.client.messages import Message
from harebell.protocol.v091.fields import Table
from tests.spark.bad_days import evidence
from tests.spark.bad_days.brokers import Server

__all__ = ["KINDS", "SINKS", "Cell", "Driver", "Result", "make_cells"]

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE.parents[2] / "src"
PATIENCE: Final = 600.0  # seconds for one request; what takes that long hangs
KINDS: Final = ("stream", "classic", "quorum")
SINKS: Final = ("parquet", "amqp", "sessions")  # amqp: with confirms; sessions: exactlyOnce, which RabbitMQ has not
LOCAL: Final = "local[2,8]"  # eight attempts: a day may strike at one task several times


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one cell's query."""

    error: str | None
    rows: int
    progress: str


class Driver:
    """The program in a process group of its own, answering requests. Use it in a `with` block."""

    def __init__(self, folder: Path, master: str = LOCAL, python: str = sys.executable, **conf: str) -> None:
        """`python` starts the Python workers of Spark; `conf` are settings of Spark."""
        self.folder = folder
        self._plan = {"master": master, "python": python, "conf": {"spark.driver.memory": "800m", **conf}}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when Spark is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "driver.py"), json.dumps(self._plan)],
                env={**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{HERE}"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self._answer() == "ready"

    def send(self, cells: Sequence[Cell]) -> None:
        """Begins to run the cells."""
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps([cell.request() for cell in cells]), file=self._process.stdin, flush=True)

    def results(self) -> dict[str, Result]:
        """Waits for what `send` began; by the cells' names."""
        return {name: Result(**result) for name, result in json.loads(self._answer()).items()}

    def run(self, cells: Sequence[Cell]) -> dict[str, Result]:
        """`send` and `results`."""
        self.send(cells)
        return self.results()

    def wait(self, reached: Callable[[], bool]) -> None:
        """Returns when that is so. AssertionError when the program ends before, or nothing comes of it."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert self._process is not None
            assert self._process.poll() is None, self.log()[-3000:]
            assert time.monotonic() < deadline, f"no progress:\n{self.log()[-3000:]}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends the whole group at once: Python, the JVM and its workers."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        watch = threading.Timer(PATIENCE, os.killpg, (self._process.pid, signal.SIGKILL))
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        assert line, f"the driver has ended:\n{self.log()[-3000:]}"
        return line.strip()


@dataclass
class Cell:
    """One query: a queue of that kind with numbered messages, into Parquet files or another queue."""

    url: str
    kind: str
    sink: str
    folder: Path
    source: dict[str, str] = field(default_factory=dict)  # options on top of the usual ones
    target: dict[str, str] = field(default_factory=dict)
    format: str = "amqp"
    slow: str = ""
    schema: str = "message_id string, body string"
    select: tuple[str, ...] = ()
    queue: str = ""
    published: int = 0
    arrived: evidence.Tally | None = None  # when the verdict was asked for

    def __post_init__(self) -> None:
        self.queue = self.queue or f"bad.{self.kind}.{uuid.uuid4().hex[:8]}"
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return f"{self.kind} > {self.sink}"

    @property
    def out(self) -> str:
        """The queue that the sink writes to."""
        return f"{self.queue}.out"

    def declare(self, arguments: Table | None = None) -> None:
        evidence.declare(self.url, self.queue, self.kind, arguments)
        if self.sink != "parquet":
            evidence.declare(self.url, self.out, "classic")

    def publish(self, count: int, body: Callable[[int], bytes] = lambda number: b"%d" % number) -> None:
        """So many more messages, numbered on."""
        numbers = range(self.published, self.published + count)
        evidence.publish(self.url, self.queue, (Message(body(n), message_id=f"m{n}", delivery_mode=2) for n in numbers))
        self.published += count

    def request(self) -> dict[str, Any]:
        source = {"url": self.url, "queue": self.queue, "queueType": self.kind, "maxMessagesPerTrigger": "500"}
        if self.kind != "stream":
            source |= {"spool": str(self.folder / "spool"), "prefetch": "200"}
        faults = {"faults": str(self.folder / "faults")} if self.format == "faulty_amqp" else {}
        # The sink makes the ids: that they are the same in every attempt is what is to be seen.
        sessions = {"exactlyOnce": "sessions", "ids": "auto"} if self.sink == "sessions" else {}
        columns = ("cast(body as bigint) number", "message_id") if self.sink == "parquet" else ("body",)
        return {
            "name": self.name,
            "sink": self.sink,
            "format": self.format,
            "folder": str(self.folder),
            "schema": self.schema,
            "select": self.select or columns,
            "slow": self.slow,
            "source": source | faults | self.source,
            "target": {"url": self.url, "exchange": "", "routingKey": self.out} | sessions | faults | self.target,
        }

    @property
    def batches(self) -> int:
        """How many micro-batches are complete."""
        return evidence.committed(self.folder)

    def verdict(self) -> str:
        """Empty when what arrived is what the guarantee says; else what is wrong."""
        arrived = evidence.in_files(self.folder) if self.sink == "parquet" else evidence.in_queue(self.url, self.out)
        self.arrived = arrived
        wrong = arrived.at_least_once(self.published) if self.sink == "amqp" else arrived.once(self.published)
        return f"{wrong}; {evidence.ready(self.url, self.queue)} in the queue" if wrong else ""


def make_cells(
    server: Server,
    folder: Path,
    messages: int,
    kinds: Sequence[str] = KINDS,
    sinks: Sequence[str] = ("parquet", "amqp"),
    **options: Any,
) -> list[Cell]:
    """The matrix, declared and filled."""
    cells = [Cell(server.url, kind, sink, folder / f"{kind}-{sink}", **options) for kind in kinds for sink in sinks]
    for cell in cells:
        cell.declare()
        cell.publish(messages)
    return cells
