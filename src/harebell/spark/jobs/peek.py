"""Peeks into a classic or quorum queue: writes its messages into Parquet files for Spark, and removes none.

Rules: nothing is acknowledged, so no message is lost, whichever process is killed. On Harebell's broker the queue is
browsed (`x-browse`) and does not change. Other brokers cannot browse: there the messages are held unacknowledged until
all were read, and closing the connection requeues them. That marks them as redelivered and, on a
quorum queue, counts as a delivery; a message that was delivered MAX_DELIVERIES times already is refused before the
queue's delivery limit drops it. Only messages that are ready at the beginning are read. Times are seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import BinaryType, LongType, StructType, TimestampType

from harebell.client.blocking import connect
from harebell.client.servers import HAREBELL, product_of
from harebell.errors import ConsumerCancelled, DeadlineExceeded, InvalidArgument
from harebell.protocol.v091.splice import DELIVERY_COUNTS
from harebell.spark.jobs.message_identity import digest
from harebell.spark.schema import Rows, row_schema

if TYPE_CHECKING:
    from harebell.client.blocking import Channel, Connection, Consumer
    from harebell.client.messages import Delivery

__all__ = ["MAX_DELIVERIES", "Held", "Peeked", "give_back", "peek", "peek_schema"]

MAX_DELIVERIES: Final = 10  # RabbitMQ 4's quorum queues have a delivery limit of 20 by themselves
WINDOW: Final = 2000  # messages on their way at a time; quorum queues give no more to one consumer without a limit
FILE_BYTES: Final = 32 << 20  # bodies in one Parquet file
FILE_ROWS: Final = 50_000
GIVEN_BACK: Final = 5.0
CHECK_SECONDS: Final = 0.05
SILENCE: Final = 0.2  # seconds without a delivery before a check whether the queue is empty


@dataclass(frozen=True, slots=True)
class Peeked:
    """The result of a peek: how many messages, and whether the queue was browsed (else: held and requeued)."""

    queue: str
    messages: int
    browsed: bool


def no_progress(count: int) -> None:
    """Ignores the progress."""


def peek_schema() -> StructType:
    """The columns of the files: those of format("amqp"), then `position` (0 is the queue's head), `digest` (16 bytes
    that every delivery of a message shares), and `seen`, the time of the peek."""
    schema = row_schema()
    return schema.add("position", LongType()).add("digest", BinaryType()).add("seen", TimestampType())


def peek(
    url: str, queue: str, folder: Path, *, limit: int | None = None, progress: Callable[[int], None] = no_progress,
    timeout: float = 30.0,
) -> Peeked:  # fmt: skip
    """Write the queue's ready messages, at most `limit`, into Parquet files in `folder`; removes none of them.

    Raises NotFound when there is no such queue, InvalidArgument for a message that was delivered too often already
    (see the module), DeadlineExceeded when the queue has messages and gives none for `timeout` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = _Files(queue, folder)
    with connect(url, timeout=timeout, recovery=None) as connection:
        browsed = browses(connection)
        with connection.channel() as channel:
            ready = channel.message_count(queue)
            most = ready if limit is None else min(ready, limit)
            batches = browse(channel, queue, most) if browsed else Held(channel, queue, timeout).batches(most)
            try:
                for batch in batches:
                    if not browsed:
                        refuse_often_delivered(queue, batch)
                    files.add(batch)
                    progress(files.rows)
            except InvalidArgument:
                give_back(connection, channel, queue, ready)
                raise
            if not browsed:
                give_back(connection, channel, queue, ready)
    files.finish()
    return Peeked(queue, files.rows, browsed)


def browses(connection: Connection) -> bool:
    """Whether the broker supports `x-browse`. Others ignore unknown arguments and would deliver the messages."""
    return product_of(connection.server_properties) == HAREBELL


def browse(channel: Channel, queue: str, most: int) -> Iterator[list[Delivery]]:
    """The first `most` messages of the queue, browsed; for a broker that `browses`."""
    if most == 0:
        return
    consumer = channel.consume(queue, prefetch=min(WINDOW, most), arguments={"x-browse": "once"})
    consumer.start()
    try:
        while most > 0 and (got := consumer.receive(most)):
            most -= len(got)
            if most > 0:
                channel.ack(got[-1].delivery_tag, multiple=True)  # of the view: it opens the window
            yield got
        consumer.cancel()
    except ConsumerCancelled:
        return  # that was all


def give_back(connection: Connection, channel: Channel, queue: str, ready: int) -> None:
    """Close the channel, and wait until the messages that it held are requeued, GIVEN_BACK seconds at most.

    A quorum queue takes a moment for it, and the next peek should find all messages. While other consumers work, the
    queue may stay shorter than it was.
    """
    channel.close()
    deadline = time.monotonic() + GIVEN_BACK
    with connection.channel() as asking:
        while asking.message_count(queue) < ready and time.monotonic() < deadline:
            time.sleep(CHECK_SECONDS)


def refuse_often_delivered(queue: str, batch: list[Delivery]) -> None:
    for delivery in batch:
        headers = delivery.headers
        count = max((n for name in DELIVERY_COUNTS if isinstance(n := headers.get(name), int)), default=0)
        if count >= MAX_DELIVERIES:
            raise InvalidArgument(
                f"a message of quorum queue '{queue}' was delivered {count} times already, and each look counts: "
                "before a delivery limit removes it, take the messages instead (--take)"
            )


class Held:
    """Deliveries of a queue that stay unacknowledged until the caller settles them.

    A consumer with a window bounds what is on its way; when its window is full of messages that are held, another
    consumer comes beside it, so that any number may be held.
    """

    def __init__(self, channel: Channel, queue: str, timeout: float) -> None:
        self._channel = channel
        self._queue = queue
        self._timeout = timeout
        self._consumers: dict[str, tuple[Consumer, int]] = {}
        self._held: dict[str, int] = {}  # by consumer tag

    def settled(self, delivery: Delivery) -> None:
        """Note that this delivery was acknowledged: its consumer may get another."""
        self._held[delivery.consumer_tag] -= 1

    def batches(self, most: int) -> Iterator[list[Delivery]]:
        """The next `most` messages, or as many as are ready. Raises DeadlineExceeded when ready ones do not arrive."""
        deadline = time.monotonic() + self._timeout
        while most > 0:
            got = self._receive(most)
            if not got:
                ready = self._channel.message_count(self._queue)
                got = self._receive(most)  # what was on its way when the queue was asked
                if not got and ready == 0:
                    return
            if got:
                most -= len(got)
                yield got
                deadline = time.monotonic() + self._timeout
            elif time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"queue '{self._queue}' has messages but delivered none in {self._timeout:g} s "
                    "(is there an exclusive or single active consumer on it?)"
                )

    def _receive(self, most: int) -> list[Delivery]:
        open_ones = [tag for tag, (_, window) in self._consumers.items() if self._held[tag] < window]
        if not open_ones:
            open_ones = [self._add(min(WINDOW, most))]
        got: list[Delivery] = []
        for tag in open_ones:
            consumer, _ = self._consumers[tag]
            some = consumer.receive(most - len(got), 0.0 if got or tag is not open_ones[-1] else SILENCE)
            self._held[tag] += len(some)
            got += some
            if len(got) == most:
                break
        return got

    def _add(self, window: int) -> str:
        consumer = self._channel.consume(self._queue, prefetch=window)
        consumer.start()
        self._consumers[consumer.tag] = consumer, window
        self._held[consumer.tag] = 0
        return consumer.tag


class _Files:
    """The Parquet files of one peek."""

    def __init__(self, queue: str, folder: Path) -> None:
        self._queue = queue
        self._folder = folder
        self._seen = datetime.now(UTC)
        self._to_arrow = Rows(row_schema())
        self._waiting: list[Delivery] = []
        self._bytes = 0
        self._files = 0
        self.rows = 0

    def add(self, deliveries: list[Delivery]) -> None:
        self._waiting += deliveries
        self._bytes += sum(len(delivery.body) for delivery in deliveries)
        self.rows += len(deliveries)
        if self._bytes >= FILE_BYTES or len(self._waiting) >= FILE_ROWS:
            self._write()

    def finish(self) -> None:
        if self._waiting or not self._files:
            self._write()  # an empty file too: it has the columns

    def _write(self) -> None:
        waiting, count = self._waiting, len(self._waiting)
        batch = self._to_arrow.batch(self._queue, waiting, None)
        first = self.rows - count
        more = (
            ("position", pa.array(range(first, first + count), pa.int64())),
            ("digest", pa.array([digest(delivery) for delivery in waiting], pa.binary())),
            ("seen", pa.array([self._seen] * count, pa.timestamp("us", "UTC"))),
        )
        for name, column in more:
            batch = batch.append_column(name, column)
        pq.write_table(pa.Table.from_batches([batch]), self._folder / f"part-{self._files:05d}.parquet")
        self._waiting, self._bytes, self._files = [], 0, self._files + 1
