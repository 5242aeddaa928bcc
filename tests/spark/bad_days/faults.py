"""What strikes inside Spark's workers: format("faulty_amqp") is format("amqp") that dies at named points, once at each.

Rules: it stands without the rest of the tests: it travels to executors as a single file, beside the package under test.
A point is struck when its file in the folder `faults` can be created: so by one attempt only, on whichever machine. The
package under test is a black box but for a few names: Link.ack, Link.publish_part, NumberedRows.put, os.link, os.fsync.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from harebell.spark.connection import Link
from harebell.spark.sink.numbered_rows import NumberedRows
from harebell.spark.source import AmqpDataSource

READING = ("read", "before-link", "after-link", "after-ack", "yielded")
WRITING = ("write", "published")
FULL = "full"  # this file's presence, made by the test, is a full disk
EXECUTOR = "executor"  # while this file is there, what dies is the executor, its JVM and all its Python workers


class FaultyAmqp(AmqpDataSource):
    """Takes `faults`, a folder, beside the options of format("amqp")."""

    def __init__(self, options: Any) -> None:
        self._faults = Path(options["faults"])
        super().__init__({key: value for key, value in options.items() if key != "faults"})

    @classmethod
    def name(cls) -> str:
        return "faulty_amqp"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.read = FaultyRead(reader.read, self._faults)  # type: ignore[method-assign]
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        writer.write = FaultyWrite(writer.write, self._faults)  # type: ignore[method-assign]
        return writer


class FaultyRead:
    def __init__(self, read: Callable[[Any], Iterator[Any]], faults: Path) -> None:
        self._read, self._faults = read, faults

    def __call__(self, partition: Any) -> Iterator[Any]:
        faults = self._faults
        strike(faults, "read")
        patch(os, "link", faults, "before-link", "after-link")
        patch(Link, "ack", faults, None, "after-ack")
        fill_up(faults)
        for batch in self._read(partition):
            yield batch
            strike(faults, "yielded")


class FaultyWrite:
    def __init__(self, write: Callable[[Iterator[Any]], Any], faults: Path) -> None:
        self._write, self._faults = write, faults

    def __call__(self, iterator: Iterator[Any]) -> Any:
        strike(self._faults, "write")
        patch(Link, "publish_part", self._faults, None, "published")
        patch(NumberedRows, "put", self._faults, None, "published")
        return self._write(iterator)


class Slow:
    """For mapInArrow: the first attempt at a batch's first task waits until another one has started, then goes on.

    So Spark is sure to speculate, and the two are sure to work at the same time.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        task = Path(self._folder) / f"{batch}-{context.partitionId()}"
        if context.partitionId() == 0:
            if context.attemptNumber() == 0:
                deadline = time.monotonic() + 60
                while not task.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            else:
                task.touch()
        yield from batches


def strike(faults: Path, point: str | None) -> None:
    """Ends this process, or the executor that it works for, if the point is armed and was not struck yet."""
    if point is None or not (faults / f"arm-{point}").exists():
        return
    try:
        os.close(os.open(faults / f"struck-{point}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if (faults / EXECUTOR).exists():
        java = psutil.Process().parents()[1]  # above the daemon that starts the workers
        for process in (java, *(child for child in java.children(recursive=True) if child.pid != os.getpid())):
            process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def patch(owner: Any, name: str, faults: Path, before: str | None, after: str | None) -> None:
    """Puts two points around a function, once in each process, for the faults of whoever calls last."""
    current = getattr(owner, name)
    original = getattr(current, "original", current)

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        strike(faults, before)
        result = original(*arguments, **keywords)
        strike(faults, after)
        return result

    faulty.original = original  # type: ignore[attr-defined]
    setattr(owner, name, faulty)


def fill_up(faults: Path) -> None:
    """Makes fsync fail with "no space left" as long as the file `full` is there."""
    current = os.fsync
    original = getattr(current, "original", current)

    def fsync(descriptor: int) -> None:
        if (faults / FULL).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    fsync.original = original  # type: ignore[attr-defined]
    os.fsync = fsync  # type: ignore[assignment]


def arm(faults: Path, points: Sequence[str], executor: bool = False) -> None:
    """Makes these points strike, each once: at the Python worker, or at its whole executor."""
    faults.mkdir(parents=True, exist_ok=True)
    if executor:
        (faults / EXECUTOR).touch()
    for point in points:
        (faults / f"arm-{point}").touch()


def disarm(faults: Path) -> None:
    """Takes back what was armed; what was struck can be armed again."""
    for path in (*faults.glob("arm-*"), *faults.glob("struck-*")):
        path.unlink()


def struck(faults: Path) -> set[str]:
    """The points that were struck."""
    return {path.name.removeprefix("struck-") for path in faults.glob("struck-*")}
