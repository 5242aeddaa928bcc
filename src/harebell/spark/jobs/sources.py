"""The source of a job's messages as one DataFrame: a queue, a drained ticket, or an archive.

Rules: a stream queue is read as it is; a classic or quorum queue is peeked into, so that nothing is taken from it,
unless the caller says `take`: then it is drained through the spool, and the ticket names what was drained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harebell.errors import InvalidArgument
from harebell.spark.connection import probe_family, retrying
from harebell.spark.jobs import archive
from harebell.spark.jobs.literal_paths import literal_paths
from harebell.spark.jobs.peek import Peeked, no_progress, peek, peek_schema
from harebell.spark.options import check_ticket, queue_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame, SparkSession

__all__ = ["Messages", "Origin", "archived", "check_folder", "messages"]

TIMEOUT = 30.0
RETRY = 60.0


@dataclass(frozen=True, slots=True)
class Origin:
    """The options of the source. Exactly one of queue and archive; take, ticket and spool go with a queue.

    queue    a queue's name, at the broker of `url`
    archive  a folder that `harebell spark archive` made, or Parquet files with the columns of format("amqp")
    take     drain a classic or quorum queue instead of peeking into it
    ticket   the drain's name; one that exists is read again, and nothing is taken any more
    spool    the folder of drained messages, None for the default
    unused   `take` was asked for, and the queue is a stream queue
    """

    url: str
    queue: str | None = None
    archive: str | None = None
    take: bool = False
    ticket: str | None = None
    spool: str | None = None
    unused: bool = False

    def check(self) -> None:
        """Raises InvalidArgument for options that exclude each other."""
        if (self.queue is None) == (self.archive is None):
            raise InvalidArgument("name a queue, or a folder of messages with --archive")
        if self.archive is not None and (self.take or self.ticket or self.spool):
            raise InvalidArgument("--take, --ticket and --spool are for a queue, not for --archive")
        if self.ticket is not None and not self.take:
            raise InvalidArgument("--ticket names what --take drains: give --take too")
        if self.ticket is not None:
            check_ticket(self.ticket)
        if self.spool is not None and not self.take:
            raise InvalidArgument("--spool is the folder that --take drains into: give --take too")

    def of(self, kind: Literal["stream", "spool"]) -> Origin:
        """The origin for a queue of that kind: reading a stream queue takes nothing, so `take` and `spool` are unused.

        Raises InvalidArgument for a `ticket`, which a stream queue does not have.
        """
        if kind == "spool" or not self.take:
            return self
        if self.ticket is not None:
            raise InvalidArgument(f"queue '{self.queue}' is a stream queue, which is not drained: leave out --ticket")
        return replace(self, take=False, spool=None, unused=True)


@dataclass(frozen=True, slots=True)
class Messages:
    """The rows, a description of them for readers, and the `Peeked` record when the queue was peeked into."""

    frame: DataFrame
    what: str
    peeked: Peeked | None = None


def messages(
    spark: SparkSession, origin: Origin, folder: Path, limit: int | None = None,
    progress: Callable[[int], None] = no_progress,
) -> Messages:  # fmt: skip
    """The messages, `limit` of them at most. `folder` gets the files of a peek: keep it as long as the DataFrame, on
    a cluster where all machines see it."""
    origin.check()
    if origin.archive is not None:
        return Messages(_limited(archived(spark, origin.archive), limit), f"archive {origin.archive}")
    assert origin.queue is not None
    url, queue = origin.url, origin.queue
    kind = retrying(lambda: probe_family(url, queue, TIMEOUT), RETRY, f"asking what queue {queue} is")
    reader = spark.read.format("amqp").option("url", url).option("queue", queue_option(queue))
    origin = origin.of(kind)
    if kind == "stream":
        what = f"stream queue {queue}" + (", of which reading takes nothing: --take is unused" if origin.unused else "")
        return Messages(_limited(reader.option("queueType", "stream").load(), limit), what)
    if origin.take:
        if limit is not None:
            raise InvalidArgument("--take drains what the queue has: it goes without a limit")
        ticket = origin.ticket or f"{time.strftime('%Y-%m-%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06d}"
        if origin.spool is not None:
            reader = reader.option("spool", origin.spool)
        frame = reader.option("queueType", "classic").option("ticket", ticket).load()
        return Messages(frame, f"queue {queue}, drained as ticket {ticket}")
    seen = peek(url, queue, folder, limit=limit, progress=progress)
    how = "browsed" if seen.browsed else "held and given back"
    return Messages(literal_paths(spark).schema(peek_schema()).parquet(str(folder)), f"queue {queue}, {how}", seen)


def check_folder(path: str) -> None:
    """Raises InvalidArgument when there can be no messages in the folder: none is there, or nothing is in it."""
    if "://" in path:
        return  # of a file system that Spark knows
    if not Path(path).is_dir():
        raise InvalidArgument(f"there is no folder {path}: name one that `harebell spark archive` made")
    if all(each.name.startswith(".") for each in Path(path).iterdir()):
        raise InvalidArgument(f"the folder {path} is empty: `harebell spark archive` puts messages into one")


def archived(spark: SparkSession, path: str) -> DataFrame:
    """The messages in a folder that `harebell spark archive` made, or in any folder of Parquet files.

    Raises InvalidArgument when there is no such folder, or something else is in it.
    """
    check_folder(path)
    try:
        return archive.read(spark, path)
    except InvalidArgument:  # not made by `harebell spark archive`
        pass
    try:
        frame = literal_paths(spark).parquet(path)
        _ = frame.schema  # Spark Connect would find out only when it runs
    except Exception as error:  # Java's own among them, which PySpark has no type for
        raise InvalidArgument(f"{path} is no archive, and has no Parquet files that Spark can read") from error
    return frame


def _limited(frame: DataFrame, limit: int | None) -> DataFrame:
    return frame if limit is None else frame.limit(limit)
