"""Records a broker's firehose for a while: every message published or delivered, into Parquet files for `traffic`.

Rules: the copies come through a queue of this connection's own, which is gone with it; nothing else is touched. Each
row has the time at which its copy came (`received`), from which latency is known to the millisecond or so. Whether the
firehose is on, only the broker's administrator can say. Times are seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType, TimestampType

from harebell.client.blocking import connect
from harebell.spark.jobs.peek import FILE_BYTES, FILE_ROWS, no_progress
from harebell.spark.jobs.traffic.event_tables import TRACE
from harebell.spark.schema import Rows, row_schema

if TYPE_CHECKING:
    from harebell.client.messages import Delivery

__all__ = ["watch", "firehose_schema"]

LOOK: Final = 0.2  # how long to wait for a copy before looking at the clock
PREFETCH: Final = 5000


def firehose_schema() -> StructType:
    """The columns of the files: those of format("amqp") and `received`."""
    return row_schema().add("received", TimestampType())


def watch(
    url: str, seconds: float, folder: Path, *, progress: Callable[[int], None] = no_progress, timeout: float = 30.0,
    started: Callable[[], None] = lambda: None, stop: threading.Event | None = None,
) -> int:  # fmt: skip
    """Record the firehose for so many seconds into Parquet files in `folder`; returns the number of copies.

    `started` is called once everything from now on is seen; `stop`, when set, ends it before its time.
    Raises AccessRefused where the user may not read the firehose.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = _Files(folder)
    with connect(url, timeout=timeout, recovery=None) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True, auto_delete=True).name
        channel.queue_bind(queue, TRACE, "#")
        consumer = channel.consume(queue, prefetch=PREFETCH)
        consumer.start()
        started()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not (stop is not None and stop.is_set()):
            got = consumer.receive(PREFETCH, min(LOOK, left))
            if got:
                files.add(queue, got, datetime.now(UTC))
                channel.ack(got[-1].delivery_tag, multiple=True)
                progress(files.rows)
    files.finish()
    return files.rows


class _Files:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._to_arrow = Rows(row_schema())
        self._batches: list[pa.RecordBatch] = []
        self._waiting = self._bytes = self._files = 0
        self.rows = 0

    def add(self, queue: str, deliveries: list[Delivery], now: datetime) -> None:
        batch = self._to_arrow.batch(queue, deliveries, None)
        received = pa.array([now] * batch.num_rows, pa.timestamp("us", "UTC"))
        self._batches.append(batch.append_column("received", received))
        self.rows += batch.num_rows
        self._waiting += batch.num_rows
        self._bytes += sum(len(delivery.body) for delivery in deliveries)
        if self._waiting >= FILE_ROWS or self._bytes >= FILE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write the waiting rows into a file."""
        if self._batches:
            pq.write_table(pa.Table.from_batches(self._batches), self._folder / f"part-{self._files:05d}.parquet")
            self._files += 1
        self._batches, self._waiting, self._bytes = [], 0, 0
