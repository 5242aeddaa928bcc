"""Finds where stream queues begin and end, with consumers, because AMQP has no method for it.

Rules: an end is exact for a queue at rest and a lower bound for one that is written to, never too high: a reader that
was promised a number waits for it. No broker is taken at its silence alone, which may be a slow machine:

- Harebell says both bounds, and the stream's id (amq.queue). Where the user may not ask that, it counts a stream's
  messages exactly, so its end is its beginning and that count.
- RabbitMQ's count is five seconds old, says 0 after a start, and counts records of its own that are not delivered. But
  it can be asked so that its answer comes after the messages (`Link.overtake`): what is not there by then is not there.
- Any other is believed when its count and its silence agree.

A stream that retention has emptied (RabbitMQ does so when the newest segment, not written to yet, is the only one that
is left) has numbers behind it, and only its next message will tell them: both its bounds are UNKNOWN.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, TypeVar

from harebell.client.recovery.policy import Backoff
from harebell.client.servers import HAREBELL, RABBITMQ
from harebell.errors import AccessRefused, DeadlineExceeded, InvalidArgument, PreconditionFailed
from harebell.spark.connection import Link, NoService, ask_service, retrying, stream_offset
from harebell.spark.headers import STREAM_OFFSET
from harebell.spark.options import SourceOptions
from harebell.spark.options.positions import Position
from harebell.spark.streams.offsets import UNKNOWN

__all__ = ["StreamBounds", "BoundsReader", "read_bounds", "first_number", "kept_from", "number_at"]

log = logging.getLogger("harebell.spark")

T = TypeVar("T")

_PROBE_PREFETCH: Final = 1000
_SILENCE: Final = 0.06  # a stream at rest delivers its last chunk in 3 ms; longer silence is its end
_BACKOFF: Final = Backoff(_SILENCE, 1.0)
_FIRST_WAIT: Final = 0.5
_DISAGREEMENT: Final = 2.0  # how long silence is doubted while the queue's count says that there is more
_LATE: Final = 10.0  # how long an end is doubted that was passed before; RabbitMQ counts every 5 s
_AT_ONCE: Final = 8  # queues asked at a time
_EXACT: Final = HAREBELL  # the product whose count of a stream's messages is exact
_ORDERED: Final = RABBITMQ  # the one whose answers come after the messages


class StreamBounds:
    """The first message number of a stream queue, the first one that does not exist yet, and the mean size of a body.

    Both numbers are UNKNOWN for a stream that retention has emptied.

    size  bytes, of the last messages; 0 where it was not asked for, or there is none
    kept  the first number that retention has not taken, message or not
    id    the stream's own, None where the broker says none
    """

    __slots__ = ("first", "id", "kept", "size", "tail")

    def __init__(
        self, first: int, tail: int, size: float = 0.0, kept: int | None = None, id: str | None = None
    ) -> None:
        self.first = first
        self.tail = tail
        self.size = size
        self.kept = first if kept is None else kept
        self.id = id

    @property
    def emptied(self) -> bool:
        """Whether retention has removed all messages."""
        return self.tail == UNKNOWN


class BoundsReader:
    """Finds out where stream queues begin and end. Connections are opened when needed, and reused by later calls."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._patience = options.first_patience  # until the broker has answered once
        self._idle: list[Link] = []
        self._described = True  # unless the user may not ask that
        self.product: str | None = None  # of the broker, once it was asked anything
        self._emptied: set[str] = set()  # queues that were found so: this is not doubted again

    def of(
        self, queues: Collection[str], sizes: bool = False, reached: Mapping[str, int] | None = None
    ) -> dict[str, StreamBounds]:
        """The bounds of these queues, by name; with `sizes`, the mean size of their last messages too.

        reached  numbers that the queues have had: an end before that is doubted for a while
        """
        timeout = self._options.read_timeout

        def ask(queue: str) -> StreamBounds:
            number, doubt = (reached or {}).get(queue, 0), queue not in self._emptied
            described = self._description(queue)
            if described is not None and not sizes:
                return described
            found = self._retrying(
                lambda link: read_bounds(link, queue, timeout, sizes=sizes, reached=number, doubt=doubt),
                f"asking {queue}",
            )
            found.id = None if described is None else described.id
            (self._emptied.add if found.emptied else self._emptied.discard)(queue)
            return found

        if len(queues) == 1:
            return {queue: ask(queue) for queue in queues}
        with ThreadPoolExecutor(_AT_ONCE, "bounds") as pool:
            return dict(zip(queues, pool.map(ask, queues), strict=True))

    def first(self, queue: str) -> int:
        """The number of the oldest message, 0 for a stream that never had any, UNKNOWN for one that was emptied."""
        if (described := self._description(queue)) is not None:
            return described.first
        return self._retrying(lambda link: first_number(link, queue, self._options.read_timeout), f"asking {queue}")

    def tail(self, queue: str) -> int:
        """One more than the number of the newest message: exact for a queue at rest, a lower bound for a busy one.

        UNKNOWN for one that was emptied.
        """
        return self.of([queue])[queue].tail

    def id_of(self, queue: str) -> str | None:
        """The stream's own id; None where the broker says none."""
        described = self._description(queue)
        return None if described is None else described.id

    def number_at(self, queue: str, position: Position) -> int:
        """The number of the first message at a position; where nothing is there yet, the one that comes next.

        UNKNOWN when that is not known because retention has emptied the stream.
        """
        if isinstance(position, int):
            return position
        if position == "earliest":
            return self.first(queue)
        if position == "latest":
            return self.tail(queue)
        return self._retrying(lambda link: self._number_at(link, queue, position), f"asking {queue}")

    def close(self) -> None:
        """Closes the connections; the next question opens another."""
        while self._idle:
            self._idle.pop().close()

    def _number_at(self, link: Link, queue: str, position: str | datetime) -> int:
        return number_at(link, queue, position, lambda: self.tail(queue))

    def _description(self, queue: str) -> StreamBounds | None:
        """What the broker says of the queue itself; None when it does not, or not to this user."""
        if not self._described or self.product not in (None, _EXACT):
            return None

        def ask(link: Link) -> StreamBounds | None:
            if link.product != _EXACT:
                return None
            body = json.dumps({"queue": queue}).encode()
            told = ask_service(link, "amq.queue", body, self._options.timeout)
            if told["type"] != "stream":
                raise InvalidArgument(f"asking {queue}: it is no stream queue but a {told['type']} one")
            return StreamBounds(told["first_offset"], told["next_offset"], id=told["id"])

        try:
            return self._retrying(ask, f"asking {queue}")
        except (NoService, AccessRefused) as error:
            log.debug("amq.queue is not to be asked: %s", error)
            self._described = False
            return None

    def _retrying(self, work: Callable[[Link], T], what: str) -> T:
        def once() -> T:
            try:
                link = self._idle.pop()
            except IndexError:
                link = Link(self._options.url, self._options.timeout)
                self.product = link.product
            try:
                answer = work(link)
            except PreconditionFailed as error:
                link.close()
                if STREAM_OFFSET in error.detail:
                    raise InvalidArgument(f"{what}: it is no stream queue ({error.detail})") from error
                raise
            except BaseException:
                link.close()  # a consumer may be left on it; a fresh one is simpler than knowing
                raise
            self._idle.append(link)
            self._patience = self._options.retry_timeout
            return answer

        return retrying(once, self._patience, what)


def read_bounds(
    link: Link, queue: str, timeout: float, *, sizes: bool = False, reached: int = 0, doubt: bool = True
) -> StreamBounds:
    """Both bounds of a stream queue.

    reached  a number that it has had: an end before it is doubted, for `timeout` seconds at most
    doubt    whether it is doubted for a while that it was emptied
    """
    deadline, attempts = time.monotonic() + min(timeout, _LATE), 0
    while True:
        bounds = _bounds(link, queue, timeout, sizes, doubt)
        # A count that is 0 since a start, or a replica that is behind; unless the queue was declared again.
        late = not bounds.emptied and bounds.tail < reached and link.product != _EXACT
        if not late or time.monotonic() > deadline:
            return bounds
        attempts += 1
        time.sleep(_BACKOFF.longest(attempts))


def _bounds(link: Link, queue: str, timeout: float, sizes: bool, doubt: bool) -> StreamBounds:
    first = _oldest(link, queue, timeout, doubt)
    if first is None:
        return StreamBounds(0, 0)
    if first == UNKNOWN:
        return StreamBounds(UNKNOWN, UNKNOWN)
    if link.product == _EXACT and not sizes:
        # After `first`: what retention takes in between makes the end too low, never too high.
        if count := link.count(queue):
            return StreamBounds(first, first + count)
    return _bounds_by_last(link, queue, first, timeout)


def number_at(link: Link, queue: str, position: str | datetime, tail: Callable[[], int]) -> int:
    """The number of the first message at a position that the broker knows ("last", a span, a moment).

    `tail` gives the first number that does not exist yet; that one, where nothing is at the position.
    """
    ordered = link.product == _ORDERED
    link.consume(queue, 1, {STREAM_OFFSET: position})
    got = link.receive(1, _SILENCE if ordered else _FIRST_WAIT)
    if not got:
        # Silence means the end of the stream, or a busy machine; knowing the end excludes the latter.
        end = tail()
        if ordered:
            link.overtake(queue)
        got = link.receive(1, 0 if ordered else _FIRST_WAIT)
    link.reset()
    return stream_offset(got[0]) if got else end


def first_number(link: Link, queue: str, timeout: float) -> int:
    """The number of the oldest message, 0 for a stream that never had any, UNKNOWN for one that was emptied."""
    return _oldest(link, queue, timeout, doubt=True) or 0


def kept_from(product: object, first: int) -> int:
    """The first number that retention has not taken from a stream with this oldest message.

    Every segment of RabbitMQ's but the very first begins with a record that has a number and is not delivered.
    """
    return max(first - 1, 0) if product == _ORDERED else first


def _oldest(link: Link, queue: str, timeout: float, doubt: bool) -> int | None:
    """The number of the oldest message. None for a stream that never had any, UNKNOWN for one that was emptied."""
    ordered = link.product == _ORDERED
    count = 0 if ordered else link.count(queue)
    if not count and link.product == _EXACT:
        return None
    began, wait = time.monotonic(), _SILENCE if ordered else timeout if count else _FIRST_WAIT
    link.consume(queue, 1, {STREAM_OFFSET: "first"})
    while not (got := link.receive(1, wait)):
        if ordered:
            count = link.overtake(queue)
            if got := link.receive(1, 0):
                break
            # It has no message. Whether it had some is in the count.
            patience = _FIRST_WAIT if not count else _DISAGREEMENT if doubt else 0.0
            left = began + min(patience, timeout) - time.monotonic()
            if left > 0:
                wait = min(2 * wait, left)  # growing: each look leaves a consumer until the reset
                continue
        elif count:
            raise DeadlineExceeded(f"queue '{queue}' has {count} messages but delivered none in {timeout} s")
        break
    link.reset()
    if got:
        return stream_offset(got[0])
    return UNKNOWN if count else None


def _bounds_by_last(link: Link, queue: str, first: int, timeout: float) -> StreamBounds:
    ordered = link.product == _ORDERED
    # Where no order is known, silence can be a busy machine, and a count can lag: the end is where both agree.
    least = 0 if ordered else first + link.count(queue)
    tail = messages = octets = 0
    began = time.monotonic()
    link.consume(queue, _PROBE_PREFETCH, {STREAM_OFFSET: "last"})
    while True:
        got = link.receive(_PROBE_PREFETCH, _SILENCE if tail or ordered else _FIRST_WAIT)
        if not got and ordered:
            link.overtake(queue)
            got = link.receive(_PROBE_PREFETCH, 0)
        if got:
            tail = stream_offset(got[-1]) + 1
            messages += len(got)
            octets += sum(delivery.body_size for delivery in got)
            link.ack(got[-1].delivery_tag)
        elif tail >= least:
            break
        waited = time.monotonic() - began
        if tail and waited > _DISAGREEMENT:
            break  # a lower bound, of a queue that is being written; the next call continues from there
        if waited > timeout:
            raise DeadlineExceeded(f"queue '{queue}' has {least - first} messages but delivered none in {timeout} s")
    link.reset()
    if not tail:  # retention took what was there a moment ago, or it is not known
        return StreamBounds(UNKNOWN, UNKNOWN) if ordered else StreamBounds(first, first)
    return StreamBounds(first, tail, octets / messages if messages else 0.0, kept_from(link.product, first))
