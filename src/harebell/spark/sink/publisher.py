"""One task of a write: publishes parts with confirms, and counts the outcome of every message.

Rules:
1. A task is done when the broker has confirmed every message; one that is refused (nack) or that reaches no queue
   (return) fails the task, or goes where the options say, and is counted. Nothing is lost silently.
2. Parts are under way beside each other, `window` messages at most. After a lost connection what has no answer is
   published again, in the same order and under the same ids; what was confirmed is not.
3. The broker may be unavailable for `retryTimeout` seconds without any progress, and may take no messages
   (connection.blocked) for `blockedTimeout`. What trying again does not cure (no such exchange, no permission) fails
   the task at once.
4. In a transaction (`publish_in_transaction`) nothing is tried again: the task is all or nothing, and Spark repeats it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, TypeVar

from harebell import errors
from harebell.client.recovery.policy import Backoff
from harebell.spark.connection import TRANSIENT, Link
from harebell.spark.options.address import Address
from harebell.spark.sink.rate_limit import RateLimit
from harebell.spark.sink.row_encoding import Part

if TYPE_CHECKING:
    from harebell.client.blocking.confirms import Bulk
    from harebell.spark.options import SinkOptions

__all__ = ["TaskPublisher", "publish_in_transaction"]

log = logging.getLogger("harebell.spark")

T = TypeVar("T")

BACKOFF: Final = Backoff(0.1, 3.0)
CHECK_SECONDS: Final = 0.5  # how often a wait checks whether the broker is blocked


class _GaveUp(Exception):
    """The final error of a task, although a retry might seem to cure it."""

    def __init__(self, error: errors.HarebellError) -> None:
        self.error = error


class TaskPublisher:
    """Publishes the parts of one task with confirms.

    counts  messages so far: `confirmed` have arrived, of these `unroutable diverted` and `nacked diverted` elsewhere;
            `unroutable dropped` and `nacked dropped` have not; `nacked retried` and `repeated` (after a lost
            connection) were published more than once
    """

    def __init__(
        self,
        options: SinkOptions,
        link: Callable[[Address, float], Link] = Link,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._options = options
        self._connect = link
        self._clock = clock
        self._sleep = sleep
        self._link: Link | None = None
        self._under_way: deque[tuple[Part, Bulk]] = deque()
        self._lost_at: float | None = None  # when the connection was lost, until something is confirmed again
        self._losses = 0  # since the last success

    def publish(self, parts: Iterable[Part]) -> None:
        """Publishes all of them, and returns when every message has been confirmed, dropped or diverted.

        Raises Nacked, Unroutable, DeadlineExceeded when the broker was away or blocked for too long, or what it
        refused the publishing with.
        """
        rate = None if self._options.max_rate is None else RateLimit(self._options.max_rate, self._clock, self._sleep)
        try:
            for part in parts:
                if rate is not None:
                    rate.take(len(part))
                self._await_confirms(self._options.window - len(part))
                self._send(part)
            self._await_confirms(0)
        except _GaveUp as end:
            raise end.error from end.error.__cause__
        finally:
            self._close()

    def _send(self, *parts: Part) -> None:
        waiting = deque(parts)
        while waiting:
            part = waiting[0]
            try:
                if self._link is None:
                    self._link = self._connect(self._options.url, self._options.timeout)
                    self._link.confirm_select()
                link, mandatory = self._link, self._options.mandatory or part.diverted
                bulk = self._patiently(lambda seconds: link.publish_part(part, mandatory, seconds))  # noqa: B023
            except (errors.HarebellError, OSError) as error:
                waiting.extendleft(reversed(self._lost(error)))
            else:
                self._under_way.append((part, bulk))
                waiting.popleft()

    def _await_confirms(self, room: int) -> None:
        """Wait until no more than `room` messages are under way."""
        while self._under_way and sum(len(part) for part, _ in self._under_way) > max(room, 0):
            part, bulk = self._under_way[0]
            try:
                self._patiently(lambda seconds: bulk.wait(timeout=seconds))  # noqa: B023
            except (errors.HarebellError, OSError) as error:
                self._send(*self._lost(error))
                continue
            if self._link is not None and bulk.acked + len(bulk.nacked) < len(part):
                self._send(*self._lost(self._link.ended))
                continue
            self._under_way.popleft()
            self._send(*self._answered(part, bulk))

    def _answered(self, part: Part, bulk: Bulk) -> list[Part]:
        """Count what the broker has answered for; what is to be published yet, because it was refused or came back."""
        options, more = self._options, []
        acked, nacked, returns = bulk.acked, bulk.nacked, bulk.returns
        self.counts["confirmed"] += acked
        if acked:
            self._lost_at, self._losses = None, 0
        if returns and acked < len(part):
            unanswered = set(bulk.unanswered)  # those will be published again, and come back again
            returns = {place: returned for place, returned in returns.items() if place not in unanswered}
        if returns:
            first = min(returns)
            returned = returns[first]
            exchange, key = part.address(first)
            text = (
                f"{len(returns)} of {len(part)} messages reached no queue; the first went to exchange "
                f"{exchange!r} with routing key {key!r} ({returned.reply_code} {returned.reply_text})"
            )
            if part.diverted or options.on_unroutable == "fail":
                hint = "which is where alternate messages go" if part.diverted else "or say option onUnroutable"
                raise errors.Unroutable(f"{text}: bind a queue to it, {hint}", returned)
            self.counts["confirmed"] -= len(returns)
            if options.on_unroutable == "drop":
                self.counts["unroutable dropped"] += len(returns)
                log.warning("dropped: %s", text)
            else:
                self.counts["unroutable diverted"] += len(returns)
                more.append(part.only(sorted(returns)).divert())
        if nacked:
            more += self._refused(part, nacked)
        return more

    def _refused(self, part: Part, places: list[int]) -> list[Part]:
        on_nack, exchange_and_key = self._options.on_nack, part.address(places[0])
        text = (
            f"the broker refused {len(places)} of {len(part)} messages, the first to exchange {exchange_and_key[0]!r} "
            f"with routing key {exchange_and_key[1]!r}: a queue is full (x-overflow=reject-publish), or it has failed"
        )
        if part.diverted or on_nack == "fail":
            raise errors.Nacked(text)
        if on_nack == "drop":
            self.counts["nacked dropped"] += len(places)
            log.warning("dropped: %s", text)
            return []
        if on_nack == "alternate":
            self.counts["nacked diverted"] += len(places)
            return [part.only(places).divert()]
        again, now = part.only(places), self._clock()
        if again.since is None or len(places) < len(part):  # since then some of them went through
            again.since = now
            self._losses = 0
        elif now - again.since >= self._options.retry_timeout:
            raise errors.Nacked(f"{text}; it did so for {self._options.retry_timeout:g} s")
        self.counts["nacked retried"] += len(places)
        self._rest()
        return [again]

    def _patiently(self, step: Callable[[float], T]) -> T:
        """What `step` gives, asked again while the broker has said that it takes nothing, or confirms something."""
        options = self._options
        return _patiently(step, self._link, options.timeout, options.blocked_timeout, self._clock, self._progress)

    def _progress(self) -> int:
        return sum(bulk.settled for _, bulk in self._under_way)

    def _lost(self, error: errors.HarebellError | OSError) -> list[Part]:
        """Give up a lost connection; returns the parts to publish again. Raises the error when it is final."""
        error = _root(error)
        if not isinstance(error, TRANSIENT):
            raise error
        now = self._clock()
        self._close()
        under_way, self._under_way = self._under_way, deque()
        again = []
        for part, bulk in under_way:
            unanswered = bulk.unanswered
            again += self._answered(part, bulk)
            if unanswered:
                self.counts["repeated"] += len(unanswered)
                again.append(part.only(unanswered))
        if self._lost_at is None:
            self._lost_at = now
        pause = BACKOFF.longest(self._losses + 1)
        if now + pause - self._lost_at > self._options.retry_timeout:
            raise error
        log.warning("publishing: %s; trying again in %.1f s", error, pause)
        self._rest()
        return again

    def _rest(self) -> None:
        self._losses += 1
        self._sleep(BACKOFF.longest(self._losses))

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _patiently(
    step: Callable[[float], T],
    link: Link | None,
    most: float,
    most_blocked: float,
    clock: Callable[[], float],
    progress: Callable[[], int] = lambda: 0,
) -> T:
    """What `step` gives, called with some seconds until it raises no DeadlineExceeded any more.

    It has `most` seconds without progress, or `most_blocked` while the broker says that it takes nothing. Raises
    DeadlineExceeded for a broker that does not answer, _GaveUp for one that takes nothing.
    """
    began, before, was_blocked = clock(), progress(), False
    while True:
        blocked = None if link is None else link.blocked
        if was_blocked and blocked is None:
            began = clock()
        was_blocked = blocked is not None
        left = began + (most if blocked is None else most_blocked) - clock()
        if left <= 0:
            if blocked is not None:
                raise _GaveUp(
                    errors.DeadlineExceeded(
                        f"the broker has taken no messages for {most_blocked:g} s (option 'blockedTimeout'): {blocked}"
                    )
                )
            raise errors.DeadlineExceeded(f"the broker has not answered for {most:g} s (option 'timeout')")
        try:
            return step(min(left, CHECK_SECONDS))
        except errors.DeadlineExceeded:
            if progress() != before:
                began, before = clock(), progress()


def _root(error: errors.HarebellError | OSError) -> errors.HarebellError | OSError:
    """The cause of a closed channel, which says more than the closing."""
    cause = error.__cause__
    return cause if isinstance(error, errors.ChannelClosed) and isinstance(cause, errors.HarebellError) else error


def publish_in_transaction(
    options: SinkOptions,
    parts: Iterable[Part],
    link: Callable[[Address, float], Link] = Link,
    clock: Callable[[], float] = time.monotonic,
) -> Counter[str]:
    """Publishes all parts in one transaction; the counts, as TaskPublisher has them.

    Raises TransactionLost when the connection was lost, or the broker took nothing for too long: nothing took effect,
    unless the text says that it may have.
    Raises Unroutable for messages that reached no queue, and Nacked for messages that full queues refuse; the others
    have taken effect then, for messages come back no sooner than with the commit.
    """
    sent = 0
    rate = None if options.max_rate is None else RateLimit(options.max_rate)
    with link(options.url, options.timeout) as connection:
        connection.begin()
        for part in parts:
            if rate is not None:
                rate.take(len(part))
            try:
                _patiently(
                    lambda seconds: connection.publish_part(part, options.mandatory, seconds),  # noqa: B023
                    connection,
                    options.timeout,
                    options.blocked_timeout,
                    clock,
                )
            except (errors.HarebellError, OSError, _GaveUp) as error:
                root = error.error if isinstance(error, _GaveUp) else _root(error)
                if not isinstance(root, TRANSIENT):
                    raise root from None
                raise errors.TransactionLost(
                    f"the transaction was cut: nothing of what this task has published took effect ({root})"
                ) from error
            sent += len(part)
        try:
            returned = _committed(connection, options, clock)
        except (*TRANSIENT, _GaveUp) as error:
            root = error.error if isinstance(error, _GaveUp) else error
            raise errors.TransactionLost(
                f"tx.commit was cut: what this task has published took effect whole, or not at all ({root}); the "
                "message ids tell copies apart"
            ) from error
        except errors.PreconditionFailed as error:
            raise errors.Nacked(
                f"the broker refused some of the {sent} messages with the commit ({error}): a queue is full "
                "(x-overflow=reject-publish), or it has failed. The others have taken effect. Make room for all, or "
                "leave out transactions=partition: then onNack says what becomes of them"
            ) from error
    if returned and options.on_unroutable == "fail":
        raise errors.Unroutable(
            f"{returned} of {sent} messages reached no queue; the others have taken effect: in a transaction messages "
            "come back with the commit. Bind a queue, or say option onUnroutable"
        )
    if returned:
        log.warning("dropped: %d of %d messages reached no queue", returned, sent)
    counts = Counter({"confirmed": sent - returned})
    if returned:
        counts["unroutable dropped"] = returned
    return counts


def _committed(link: Link, options: SinkOptions, clock: Callable[[], float]) -> int:
    """Commits; how many messages came back. A broker that takes nothing has `blockedTimeout` seconds for it.

    A commit cannot be asked for twice. So a thread waits for its answer while this one looks whether the broker blocks;
    the thread ends with the connection.
    """
    most = max(options.timeout, options.retry_timeout)
    thread = ThreadPoolExecutor(1, "harebell-commit")
    try:
        answer = thread.submit(link.commit, max(most, options.blocked_timeout))

        def step(seconds: float) -> int:
            if not wait([answer], seconds).done:
                raise errors.DeadlineExceeded("no answer yet")
            return 0

        _patiently(step, link, most, options.blocked_timeout, clock)
        return answer.result()
    finally:
        thread.shutdown(wait=False)
