"""Reads stream queues without Spark: exactly the messages of one range.

Rules: `read_range` yields every message of [start, end) once, in order, whatever happens to the connection: it
reconnects and resumes at the next wanted number. Messages that retention took are DataLoss, or skipped with a
warning when the caller says so. A stream has no "give me n messages", so every loop here knows its end beforehand.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from harebell.errors import DataLoss, DeadlineExceeded, PreconditionFailed
from harebell.spark.connection import TRANSIENT, Link, stream_offset
from harebell.spark.headers import STREAM_OFFSET
from harebell.spark.options import SourceOptions
from harebell.spark.streams.blocks import Block
from harebell.spark.streams.bounds import first_number, kept_from, number_at, read_bounds
from harebell.spark.streams.offsets import UNKNOWN, Range
from harebell.spark.streams.socket_reader import SocketReader

if TYPE_CHECKING:
    from harebell.client.messages import Delivery
    from harebell.protocol.v091 import Table
    from harebell.spark.streams.blocks import Int64Array

__all__ = ["Piece", "loss_by_retention", "read_range", "replaced", "report_loss"]

log = logging.getLogger("harebell.spark")


class Piece(NamedTuple):
    """Messages in their order: some rows of what came at once."""

    chunk: Block | list[Delivery]
    rows: Int64Array

    @property
    def numbers(self) -> Int64Array:
        """Their numbers in the stream."""
        return numbers_of(self.chunk)[self.rows]


QUEUE_ID: Final = "x-queue-id"  # the consumer argument by which Harebell refuses another stream of that name
_PAUSE: Final = 0.2  # before connecting again


def numbers_of(chunk: Block | list[Delivery]) -> Int64Array:
    """The messages' numbers in their stream."""
    if isinstance(chunk, list):
        return np.array([stream_offset(delivery) for delivery in chunk], np.int64)
    return chunk.numbers


def read_range(options: SourceOptions, wanted: Range) -> Iterator[Piece]:
    """The messages of `wanted` in order, each piece at most `batch_rows` of them.

    Raises DataLoss when some are not there any more (unless fail_on_data_loss is off), and the connection's last
    error when the broker stayed away for retry_timeout seconds without any progress.
    """
    reader = _RangeReader(options, wanted)
    deadline: float | None = None
    while not reader.done:
        before = reader.position
        try:
            yield from reader.run()
        except TRANSIENT as error:
            now = time.monotonic()
            if deadline is None or reader.position > before:
                deadline = now + options.retry_timeout
            if now >= deadline:
                raise
            log.warning("reading %s at %d: %s; connecting again", wanted.queue, reader.position, error)
            time.sleep(_PAUSE)


class _RangeReader:
    """Progress through one range over any number of connections: `position` is the next number wanted."""

    def __init__(self, options: SourceOptions, wanted: Range) -> None:
        self._options = options
        self._wanted = wanted
        self.position = wanted.start
        self._connected = False  # there was a connection before
        self.done = wanted.start >= wanted.end

    def run(self) -> Iterator[Piece]:
        """Reads on one connection until the range is done or the connection fails."""
        options, queue, end = self._options, self._wanted.queue, self._wanted.end
        with SocketReader(options.url, options.timeout) as connection:
            if not self._consumes(connection):
                report_loss(options, replaced(queue, self.position))
                self.done = True
                return
            while self.position < end:
                got = connection.receive(options.read_timeout)
                if not got:
                    self._silent()
                    break
                for chunk in got:
                    # Before it counts as read: when this fails, it is read again.
                    connection.ack(chunk[-1].delivery_tag if isinstance(chunk, list) else chunk.last_tag)
                    numbers = numbers_of(chunk)
                    for start, number in _jumps(connection.product, self.position, numbers):
                        self._gap(start, number)
                    # RabbitMQ starts at the chunk that holds the number, and no broker stops at the end.
                    rows = np.flatnonzero((numbers >= self.position) & (numbers < end))
                    self.position = max(self.position, min(int(numbers[-1]) + 1, end))
                    for some in range(0, len(rows), options.batch_rows):
                        yield Piece(chunk, rows[some : some + options.batch_rows])
        self.done = True

    def _consumes(self, connection: SocketReader) -> bool:
        """Starts the consumer; False when the queue is another stream than the one that the range is of."""
        queue, identity = self._wanted.queue, self._wanted.identity
        arguments: Table = {STREAM_OFFSET: self.position}
        if identity.id is not None:
            arguments[QUEUE_ID] = identity.id
        try:
            connection.consume(queue, self._options.prefetch, arguments)
        except PreconditionFailed as error:
            if QUEUE_ID in error.detail:
                return False
            raise
        before, self._connected = self._connected, True
        if before and identity.mark is not None:  # it may have been declared again while nothing was connected
            second, number = identity.mark
            with Link(self._options.url, self._options.timeout) as link:
                bounds = read_bounds(link, queue, self._options.read_timeout)
                found = number_at(link, queue, datetime.fromtimestamp(second, UTC), lambda: bounds.tail)
            return found == UNKNOWN or found >= number
        return True

    def _gap(self, start: int, number: int) -> None:
        """Numbers from `start` on have not come, `number` is the next one that has."""
        if start >= self._wanted.end:
            return
        # Numbers need not be consecutive, so only the stream's beginning tells a gap from a loss.
        with Link(self._options.url, self._options.timeout) as link:
            first = first_number(link, self._wanted.queue, self._options.read_timeout)
            if first == UNKNOWN or kept_from(link.product, first) > start:
                kept = min(kept_from(link.product, number), self._wanted.end)
                report_loss(self._options, loss_by_retention(self._wanted.queue, start, kept))

    def _silent(self) -> None:
        queue, position = self._wanted.queue, self.position
        with Link(self._options.url, self._options.timeout) as other:
            bounds = read_bounds(other, queue, self._options.read_timeout, reached=self._wanted.end)
        if bounds.emptied:
            report_loss(self._options, loss_by_retention(queue, position, self._wanted.end))
        elif bounds.tail > position:
            raise DeadlineExceeded(f"queue '{queue}' delivered nothing in {self._options.read_timeout} s")
        else:
            report_loss(self._options, ended_before(queue, bounds.tail, position, self._wanted.end))


def _jumps(product: object, position: int, numbers: Int64Array) -> list[tuple[int, int]]:
    """Where these numbers leave some out that may be messages: the first one left out, and the one that came.

    A consumer that is slower than retention is moved on without a word, in the middle of what it reads too.
    """
    news = numbers[numbers >= position]
    if not len(news) or int(news[-1]) - position + 1 == len(news):
        return []
    starts = np.concatenate(([position], news[:-1] + 1))
    found = ((int(starts[at]), int(news[at])) for at in np.flatnonzero(news > starts))
    return [(start, number) for start, number in found if kept_from(product, number) > start]


def replaced(queue: str, position: int) -> str:
    """The text about a queue that is another stream than the one whose messages from `position` on are wanted."""
    return (
        f"queue '{queue}' was deleted and declared again: what the old one had from message {position} on is gone, and "
        "the same numbers are other messages now"
    )


def ended_before(queue: str, tail: int, start: int, end: int) -> str:
    """The text about the messages start <= number < end, which are not all before the queue's end."""
    return (
        f"queue '{queue}' ends at message {tail} but {max(start, tail)} to {end - 1} were asked for (was it deleted "
        "and declared again?)"
    )


def loss_by_retention(queue: str, start: int, end: int) -> str:
    """The text about the messages start <= number < end, which retention removed."""
    return (
        f"{end - start:,} messages, {start} to {end - 1}, of queue '{queue}' are gone (retention removed them before "
        "they were read)"
    )


def report_loss(options: SourceOptions, what: str) -> None:
    """Raises DataLoss, or logs and lets the reader go on when fail_on_data_loss is off."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}; set failOnDataLoss=false to go on without them")
    log.warning("%s; going on without them", what)
