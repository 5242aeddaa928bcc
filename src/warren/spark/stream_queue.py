"""Reading stream queues without Spark: where they begin and end, and exactly the messages of one range.

Rules: `read_range` yields every message of [start, end) once, in order, whatever happens to the connection: it
reconnects and resumes at the next wanted number. Messages that retention took are DataLoss, or skipped with a
warning when the caller says so. A stream has no "give me n messages", so every loop here knows its end beforehand.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from warren.errors import DataLoss, DeadlineExceeded
from warren.spark.amqp import TRANSIENT, Link, retrying, stream_offset
from warren.spark.offsets import Range
from warren.spark.options import SourceOptions
from warren.spark.schema import STREAM_OFFSET

if TYPE_CHECKING:
    from warren.client.records import Delivery

__all__ = ["Ends", "StreamEnds", "read_range"]

log = logging.getLogger("warren.spark")

T = TypeVar("T")

Batch = tuple[list["Delivery"], list[int]]

BATCH_BYTES: Final = 8 << 20  # bodies in one Arrow batch: bounds the memory of a task whatever the message size
_PROBE_PREFETCH: Final = 1000
_SILENCE: Final = 0.06  # a stream at rest delivers its last chunk in 3 ms; longer silence is its end
_FIRST_WAIT: Final = 0.5
_PAUSE: Final = 0.2  # before connecting again
_DISAGREEMENT: Final = 2.0  # how long silence is doubted while the queue's count says that there is more


class Ends:
    """The first message number of a stream queue and the first one that does not exist yet."""

    __slots__ = ("first", "tail")

    def __init__(self, first: int, tail: int) -> None:
        self.first = first
        self.tail = tail


class StreamEnds:
    """Asks where stream queues begin and end. Keeps one connection between calls, opened when needed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._link: Link | None = None
        self._floor: dict[str, int] = {}  # a first number seen once: the stream never begins before it again

    def first(self, queue: str) -> int:
        """The number of the oldest message, 0 for an empty stream."""
        number = self._retrying(lambda link: _first(link, queue, self._options.read_timeout), f"asking for {queue}")
        self._floor[queue] = number
        return number

    def tail(self, queue: str) -> int:
        """One more than the number of the newest message: exact for a queue at rest, a lower bound for a busy one."""
        if queue not in self._floor:
            self.first(queue)
        floor, timeout = self._floor[queue], self._options.read_timeout
        return self._retrying(lambda link: _tail(link, queue, floor, timeout), f"asking for the end of {queue}")

    def close(self) -> None:
        """Gives the connection up; the next question opens another."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _retrying(self, work: Callable[[Link], T], what: str) -> T:
        def once() -> T:
            try:
                if self._link is None:
                    self._link = Link(self._options.url, self._options.timeout)
                return work(self._link)
            except BaseException:
                self.close()  # a consumer may be left on it; a fresh one is simpler than knowing
                raise

        return retrying(once, self._options.retry_timeout, what)


def _first(link: Link, queue: str, timeout: float) -> int:
    expected = link.count(queue)
    link.consume(queue, 1, {STREAM_OFFSET: "first"})
    got = link.receive(1, timeout if expected else _FIRST_WAIT)
    link.reset()
    if not got:
        if expected:
            raise DeadlineExceeded(f"queue '{queue}' has {expected} messages but delivered none in {timeout} s")
        return 0
    return stream_offset(got[0])


def _tail(link: Link, queue: str, floor: int, timeout: float) -> int:
    # The count of a stream lags behind on RabbitMQ, and silence can be a busy machine: the end is where both agree.
    least = floor + link.count(queue)
    tail = 0
    began = time.monotonic()
    link.consume(queue, _PROBE_PREFETCH, {STREAM_OFFSET: "last"})
    while True:
        got = link.receive(_PROBE_PREFETCH, _SILENCE if tail else _FIRST_WAIT)
        if got:
            tail = stream_offset(got[-1]) + 1
            link.ack(got[-1].delivery_tag)
        elif tail >= least:
            break
        waited = time.monotonic() - began
        if tail and waited > _DISAGREEMENT:
            break  # a lower bound, of a queue that is being written; the next question goes on from there
        if waited > timeout:
            raise DeadlineExceeded(f"queue '{queue}' has {least - floor} messages but delivered none in {timeout} s")
    link.reset()
    return tail


def read_range(options: SourceOptions, wanted: Range) -> Iterator[Batch]:
    """The messages of `wanted` in order, as lists of at most `batch_rows` with their numbers.

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
    """Progress through one range over any number of connections.

    `position` is the next number wanted from the broker; what came before and is not yielded yet survives the
    connection it came on.
    """

    def __init__(self, options: SourceOptions, wanted: Range) -> None:
        self._options = options
        self._wanted = wanted
        self._rows: list[Delivery] = []
        self._numbers: list[int] = []
        self._size = 0
        self.position = wanted.start
        self.done = wanted.start >= wanted.end

    def run(self) -> Iterator[Batch]:
        """Reads on one connection until the range is done or the connection fails."""
        options, queue, end = self._options, self._wanted.queue, self._wanted.end
        checked = False  # that the first delivery on this connection is not later than it should be
        with Link(options.url, options.timeout) as link:
            link.consume(queue, options.prefetch, {STREAM_OFFSET: self.position})
            while self.position < end:
                got = link.receive(options.prefetch, options.read_timeout)
                if not got:
                    self._silent()
                    break
                link.ack(got[-1].delivery_tag)
                if not checked:
                    checked = True
                    self._gap(stream_offset(got[0]))
                for delivery in got:
                    number = stream_offset(delivery)
                    if number < self.position:
                        continue  # RabbitMQ starts at the chunk that holds the number
                    if number >= end:
                        self.position = end
                        break
                    self.position = number + 1
                    self._rows.append(delivery)
                    self._numbers.append(number)
                    self._size += len(delivery.body)
                    if len(self._rows) >= options.batch_rows or self._size >= BATCH_BYTES:
                        yield self._take()
        if self._rows:
            yield self._take()
        self.done = True

    def _take(self) -> Batch:
        batch = self._rows, self._numbers
        self._rows, self._numbers, self._size = [], [], 0
        return batch

    def _gap(self, number: int) -> None:
        position = self.position
        if number <= position:
            return
        # Numbers need not be consecutive, so only the stream's beginning tells a gap from a loss.
        with Link(self._options.url, self._options.timeout) as link:
            first = _first(link, self._wanted.queue, self._options.read_timeout)
        if first > position:
            _lost(
                self._options,
                f"messages {position} to {min(first, self._wanted.end) - 1} of queue '{self._wanted.queue}' are gone "
                "(retention removed them before they were read)",
            )

    def _silent(self) -> None:
        queue, position = self._wanted.queue, self.position
        with Link(self._options.url, self._options.timeout) as other:
            first = _first(other, queue, self._options.read_timeout)
            tail = _tail(other, queue, first, self._options.read_timeout)
        if tail > position:
            raise DeadlineExceeded(f"queue '{queue}' delivered nothing in {self._options.read_timeout} s")
        _lost(
            self._options,
            f"queue '{queue}' ends at message {tail} but {position} to {self._wanted.end - 1} were asked for "
            "(was it deleted and declared again?)",
        )


def _lost(options: SourceOptions, what: str) -> None:
    """Raises DataLoss, or logs and lets the reader go on when fail_on_data_loss is off."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}; set failOnDataLoss=false to go on without them")
    log.warning("%s; going on without them", what)


def check_not_behind(options: SourceOptions, queue: str, next_number: int, tail: int) -> bool:
    """Whether the stream still reaches the checkpoint; False (or DataLoss) when it ends before `next_number`."""
    if tail >= next_number:
        return True
    _lost(
        options,
        f"queue '{queue}' ends at message {tail} but the checkpoint is at {next_number} (was it deleted and declared "
        "again?)",
    )
    return False
