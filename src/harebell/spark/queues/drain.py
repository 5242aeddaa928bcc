"""Drains a classic or quorum queue into the spool: the steps between a message's arrival and its row.

Their order, and what each step is good for, is written in `spool`. The next messages come in while a segment is
written: a consumer's window is two segments. A round trip is made once for each segment. It proves that the connection
lives, before the segment gets its name, and that the broker has handled the acknowledgement of the one before.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from harebell.errors import DeadlineExceeded, InvalidArgument, NotFound
from harebell.spark.connection import TRANSIENT, Link, probe_family
from harebell.spark.headers import STREAM_OFFSET
from harebell.spark.options import SourceOptions
from harebell.spark.queues.consumer import QueueConsumer
from harebell.spark.queues.redelivery import KnownMessages
from harebell.spark.queues.segments import mark_acked, read_segment, write_once
from harebell.spark.queues.spool import Step, Ticket, no_step
from harebell.spark.runtime.garbage_collector import no_collection
from harebell.spark.schema import Rows, row_schema

if TYPE_CHECKING:
    from harebell.client.messages import Delivery

__all__ = ["Limit", "drain", "is_stream_queue"]

log = logging.getLogger("harebell.spark")

SEGMENT_BYTES: Final = 32 << 20  # bodies in one segment: bounds a task's memory whatever the message size
FIRST_WINDOW: Final = 100  # messages taken to learn their size, when a number of bytes is the limit
_PAUSE: Final = 0.2  # seconds before connecting, or looking, again
_SILENCE: Final = 0.2  # seconds; then the queue is asked whether it is empty
_RENEWAL: Final = 1.0  # seconds between two consumers while a queue with messages gives none


class Limit:
    """How much one part of a drain takes: `messages` at most, None for as many as are ready when it starts.

    `size` is a number of bytes of bodies after which it ends: it goes over by less than the last segment.
    """

    __slots__ = ("messages", "size")

    def __init__(self, messages: int | None = None, size: int | None = None) -> None:
        self.messages = messages
        self.size = size


def drain(
    options: SourceOptions, ticket: Ticket, part: int, limit: Limit, step: Step = no_step
) -> Iterator[pa.RecordBatch]:
    """The rows of one part of a drain, all columns, segment by segment; drained now as far as they are not yet there.

    Raises InvalidArgument for a stream queue and for another broker's drain, NotFound when there is no such queue,
    SpoolError when the folder does not take a segment or a segment is damaged, DeadlineExceeded when the queue has
    messages and gives none for read_timeout seconds, and the connection's error when the broker stays away for
    retry_timeout seconds without progress.
    """
    return _Drain(options, ticket, part, limit, step).run()


class _Drain:
    def __init__(self, options: SourceOptions, ticket: Ticket, part: int, limit: Limit, step: Step) -> None:
        self._options = options
        self._ticket = ticket
        self._queue = ticket.spool.queue
        self._part = part
        self._messages = limit.messages
        self._size = limit.size
        self._step = step
        self._rows_each = max(1, options.drain_prefetch // 2)  # rows of a segment: one is received while one is written
        self._number = 0  # of the next segment
        self._taken = 0  # messages in the segments so far
        self._taken_size = 0  # bytes of their bodies
        self._known: KnownMessages  # one for each connection
        self._rows = Rows(row_schema())
        self._unmarked: list[tuple[int, Path]] = []  # acknowledged, and the broker has not answered since
        self._ended = False
        self._checked = False  # that the queue is not a stream

    def run(self) -> Iterator[pa.RecordBatch]:
        deadline: float | None = None
        while True:
            yield from self._read_existing()
            if self._ended:
                return
            with self._ticket.lock(self._part) as ours:
                if ours:
                    yield from self._read_existing()  # what came before the lock was ours
                    before = self._number
                    try:
                        yield from self._consume()
                        continue
                    except TRANSIENT as error:
                        now = time.monotonic()
                        if deadline is None or self._number > before:
                            deadline = now + self._options.retry_timeout
                        if now >= deadline:
                            raise
                        log.warning("draining %s: %s; connecting again", self._queue, error)
            # The broker is unavailable, or another attempt drains: its segments are read as they appear.
            time.sleep(_PAUSE)

    def _read_existing(self) -> Iterator[pa.RecordBatch]:
        """Segments that an earlier attempt, or a faster one on another machine, has written."""
        while not self._ended:
            path = self._ticket.segment(self._part, self._number)
            if not path.exists():
                return
            yield from self._finished(read_segment(path))

    def _finished(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        number = self._number
        self._number += 1
        self._taken += batch.num_rows
        self._taken_size += _size(batch)
        if batch.num_rows == 0:
            self._ended = True
        else:
            yield batch
            self._step("handed", number)

    def _consume(self) -> Iterator[pa.RecordBatch]:
        """Drains on one connection until the end mark is written or another attempt overtakes this one."""
        if self._ended:
            return
        self._unmarked = []
        with Link(self._options.url, self._options.timeout) as link:
            self._ticket.claim(link.broker)
            # What was dropped and not acknowledged comes again: only what this connection drops is counted off.
            self._known = KnownMessages(self._ticket.spool, self._options.dedup_window, link.broker)
            try:
                ready = link.count(self._queue)
                if self._messages is None:
                    self._messages = self._taken + ready
                yield from self._segments(QueueConsumer(link, self._options, self._queue))
            except GeneratorExit:  # the caller stopped reading
                with contextlib.suppress(*TRANSIENT):
                    self._confirm(link)
                raise
            except NotFound as error:
                raise self._gone(error) from error

    def _segments(self, consumer: QueueConsumer) -> Iterator[pa.RecordBatch]:
        while not self._ended:
            consumer.open(self._wanted(self._taken, self._taken_size))
            with no_collection():
                segment = self._fill(consumer)
                received = self._rows.batch(self._queue, segment.rows, None)
            self._step("received", self._number)
            batch = self._store(consumer.link, received)
            if batch is None:
                return  # another attempt has this segment; closing gives the messages back
            taken = self._taken + batch.num_rows
            if segment.emptied:
                consumer.close()
                self._messages = taken + len(consumer.kept)
            consumer.close_if_beyond(self._wanted(taken, self._taken_size + _size(batch)) - len(consumer.kept))
            if segment.rows:
                consumer.ack(segment.rows[-1].delivery_tag)
                self._step("acked", self._number)
            if batch.num_rows:
                self._unmarked.append((self._number, self._ticket.segment(self._part, self._number)))
            if batch.num_rows or not segment.rows:  # not when all of it was known
                yield from self._finished(batch)

    def _wanted(self, taken: int, size: int) -> int:
        """How many more messages are to be taken when so many are, of that size."""
        assert self._messages is not None
        wanted = self._messages - taken
        if self._size is None:
            return wanted
        if taken == 0:
            return min(wanted, FIRST_WINDOW)
        return max(0, min(wanted, -((size - self._size) * taken // max(size, 1))))

    def _fill(self, consumer: QueueConsumer) -> _Segment:
        """Receives a segment; a smaller one when the queue is empty, slow, or the bodies are large."""
        segment, options = _Segment(), self._options
        deadline, seen = time.monotonic() + options.read_timeout, 0
        renewal = time.monotonic() + _RENEWAL
        while len(segment.rows) < self._rows_each and segment.size < SEGMENT_BYTES:
            most = self._rows_each - len(segment.rows)
            got = consumer.receive(most, _SILENCE)
            if not got and consumer.full():
                if consumer.widen(self._wanted(self._taken, self._taken_size) - len(segment.rows)):
                    continue
                break
            ready = consumers = 0
            if not got:
                ready, consumers = consumer.link.state(self._queue)
                if ready == 0:
                    got = consumer.on_its_way(most)
                    segment.emptied = not got
                else:
                    self._ask_kind()
            if got:
                self._check(got[0])
                segment.rows += got
                segment.size += sum([delivery.body_size for delivery in got])
                continue
            if segment.emptied or segment.rows:
                break  # save what is here before waiting for more
            now, changed = time.monotonic(), self._ticket.folder.stat().st_mtime_ns
            if now > renewal:
                consumer.renew()
                renewal = now + _RENEWAL
            if changed != seen:
                # Other parts take what there is, one after the other if the queue has a single active consumer.
                deadline, seen = now + options.read_timeout, changed
            elif now > deadline:
                raise DeadlineExceeded(
                    f"queue '{self._queue}' has {ready} messages but delivered none in {options.read_timeout} s, to "
                    f"one of {consumers} consumers: is another one exclusive, or the single active consumer?"
                )
        return segment

    def _check(self, delivery: Delivery) -> None:
        if not self._checked and STREAM_OFFSET in (delivery.properties.headers or {}):
            raise is_stream_queue(self._queue)
        self._checked = True

    def _ask_kind(self) -> None:
        """Asks, once, whether the queue that delivers nothing is a stream: a consumer without an offset waits there."""
        if not self._checked and probe_family(self._options.url, self._queue, self._options.timeout) == "stream":
            raise is_stream_queue(self._queue)
        self._checked = True

    def _store(self, link: Link, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Store the new rows of the batch durably as the segment and return them; None when another attempt was first.

        A batch without rows becomes the end mark. When it had rows and all are known, nothing is written.
        """
        path, number = self._ticket.segment(self._part, self._number), self._number

        def step(name: str) -> None:
            self._step(name, number)

        @contextlib.contextmanager
        def naming() -> Iterator[None]:
            with self._ticket.spool.lock():
                self._confirm(link)
                yield

        if not pc.any(batch.column("redelivered")).as_py():
            written = write_once(path, batch, step, naming)
        else:
            with naming():  # no other drain names a segment between the search in all of them and this one's
                batch = self._known.without_known(batch)
                written = batch.num_rows == 0 or write_once(path, batch, step, contextlib.nullcontext)
        if not written:
            return None
        step("linked")
        if not batch.num_rows:
            mark_acked(path)  # nothing of it can come again
        return batch

    def _confirm(self, link: Link) -> None:
        """A round trip. The answer means that the channel lives, and that the acks before it are handled."""
        link.count(self._queue)
        for number, path in self._unmarked:
            mark_acked(path)
            self._step("marked", number)
        self._unmarked = []
        self._known.mark_returned()

    def _gone(self, error: NotFound) -> NotFound:
        if not self._taken:
            return error
        return NotFound(
            f"{error.detail}; {self._taken} messages that this drain took from it are safe in {self._ticket.folder}: "
            "declare the queue again, and the next run reads them and goes on",
            error.class_id,
            error.method_id,
        )


def is_stream_queue(queue: str) -> InvalidArgument:
    """The error about a queue that cannot be drained."""
    return InvalidArgument(f"queue '{queue}' is a stream queue: set queueType=stream")


class _Segment:
    """What has been received for the next segment."""

    __slots__ = ("emptied", "rows", "size")

    def __init__(self) -> None:
        self.rows: list[Delivery] = []
        self.size = 0  # bytes of bodies
        self.emptied = False  # the queue said that it has no more


def _size(batch: pa.RecordBatch) -> int:
    return pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0
