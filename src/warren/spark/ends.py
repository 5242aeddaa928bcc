"""Where stream queues begin and end: questions that AMQP has no method for, asked with consumers.

Rules: an end is exact for a queue at rest and a lower bound for one that is written to, never too high: a reader that
was promised a number waits for it. Warren counts a stream's messages exactly, so that its end is its beginning and that
count. RabbitMQ's count lags behind: there a consumer looks at the last messages until it hears nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, TypeVar

from warren.errors import DeadlineExceeded
from warren.spark.amqp import Link, retrying, stream_offset
from warren.spark.options import SourceOptions
from warren.spark.places import STREAM_OFFSET, Place

__all__ = ["Ends", "StreamEnds", "first_number", "tail_number"]

T = TypeVar("T")

_PROBE_PREFETCH: Final = 1000
_SILENCE: Final = 0.06  # a stream at rest delivers its last chunk in 3 ms; longer silence is its end
_FIRST_WAIT: Final = 0.5
_DISAGREEMENT: Final = 2.0  # how long silence is doubted while the queue's count says that there is more
_AT_ONCE: Final = 8  # queues asked at a time
_EXACT: Final = "Warren"  # the product whose count of a stream's messages is exact


class Ends:
    """The first message number of a stream queue, the first one that does not exist yet, and the mean size of a body.

    size  bytes, of the last messages; 0 where nobody asked, or there is none
    """

    __slots__ = ("first", "size", "tail")

    def __init__(self, first: int, tail: int, size: float = 0.0) -> None:
        self.first = first
        self.tail = tail
        self.size = size


class StreamEnds:
    """Asks where stream queues begin and end. Keeps connections between calls, opened when needed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._idle: list[Link] = []

    def of(self, queues: Collection[str], sizes: bool = False) -> dict[str, Ends]:
        """The ends of these queues, by name; with `sizes`, the mean size of their last messages too."""

        def ask(queue: str) -> Ends:
            return self._retrying(lambda link: _ends(link, queue, self._options.read_timeout, sizes), f"asking {queue}")

        if len(queues) == 1:
            return {queue: ask(queue) for queue in queues}
        with ThreadPoolExecutor(_AT_ONCE, "ends") as pool:
            return dict(zip(queues, pool.map(ask, queues), strict=True))

    def first(self, queue: str) -> int:
        """The number of the oldest message, 0 for an empty stream."""
        return self._retrying(lambda link: first_number(link, queue, self._options.read_timeout), f"asking {queue}")

    def tail(self, queue: str) -> int:
        """One more than the number of the newest message: exact for a queue at rest, a lower bound for a busy one."""
        return self.of([queue])[queue].tail

    def number_at(self, queue: str, place: Place) -> int:
        """The number of the first message at a place; where nothing is there yet, the one that comes next."""
        if isinstance(place, int):
            return place
        if place == "earliest":
            return self.first(queue)
        if place == "latest":
            return self.tail(queue)
        return self._retrying(lambda link: self._number_at(link, queue, place), f"asking {queue}")

    def close(self) -> None:
        """Gives the connections up; the next question opens another."""
        while self._idle:
            self._idle.pop().close()

    def _number_at(self, link: Link, queue: str, place: str | datetime) -> int:
        link.consume(queue, 1, {STREAM_OFFSET: place})
        got = link.receive(1, _FIRST_WAIT)
        if got:
            link.reset()
            return stream_offset(got[0])
        # Silence is the end of the stream, or a busy machine: once the end is known, it was not the latter.
        tail = self.tail(queue)
        got = link.receive(1, _FIRST_WAIT)
        link.reset()
        return stream_offset(got[0]) if got else tail

    def _retrying(self, work: Callable[[Link], T], what: str) -> T:
        def once() -> T:
            try:
                link = self._idle.pop()
            except IndexError:
                link = Link(self._options.url, self._options.timeout)
            try:
                answer = work(link)
            except BaseException:
                link.close()  # a consumer may be left on it; a fresh one is simpler than knowing
                raise
            self._idle.append(link)
            return answer

        return retrying(once, self._options.retry_timeout, what)


def _ends(link: Link, queue: str, timeout: float, sizes: bool) -> Ends:
    first = first_number(link, queue, timeout)
    if link.product == _EXACT and not sizes:
        count = link.count(
            queue
        )  # after `first`: what retention takes in between makes the end too low, never too high
        if count:
            return Ends(first, first + count)
    return _ends_by_last(link, queue, first, timeout)


def first_number(link: Link, queue: str, timeout: float) -> int:
    """The number of the oldest message, 0 for an empty stream."""
    expected = link.count(queue)
    link.consume(queue, 1, {STREAM_OFFSET: "first"})
    got = link.receive(1, timeout if expected else _FIRST_WAIT)
    link.reset()
    if not got:
        if expected:
            raise DeadlineExceeded(f"queue '{queue}' has {expected} messages but delivered none in {timeout} s")
        return 0
    return stream_offset(got[0])


def tail_number(link: Link, queue: str, floor: int, timeout: float) -> int:
    """One more than the number of the newest message, of a stream that begins at `floor`."""
    return _ends_by_last(link, queue, floor, timeout).tail


def _ends_by_last(link: Link, queue: str, floor: int, timeout: float) -> Ends:
    # The count of a stream lags behind on RabbitMQ, and silence can be a busy machine: the end is where both agree.
    least = floor + link.count(queue)
    tail = messages = octets = 0
    began = time.monotonic()
    link.consume(queue, _PROBE_PREFETCH, {STREAM_OFFSET: "last"})
    while True:
        got = link.receive(_PROBE_PREFETCH, _SILENCE if tail else _FIRST_WAIT)
        if got:
            tail = stream_offset(got[-1]) + 1
            messages += len(got)
            octets += sum(delivery.body_size for delivery in got)
            link.ack(got[-1].delivery_tag)
        elif tail >= least:
            break
        waited = time.monotonic() - began
        if tail and waited > _DISAGREEMENT:
            break  # a lower bound, of a queue that is being written; the next question goes on from there
        if waited > timeout:
            raise DeadlineExceeded(f"queue '{queue}' has {least - floor} messages but delivered none in {timeout} s")
    link.reset()
    return Ends(floor, tail, octets / messages if messages else 0.0)
