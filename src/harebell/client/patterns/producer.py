"""Publishing with confirms, a window and a graceful end.

    async with connection.producer("orders", window=1000) as producer:
        await producer.publish(b"...", "eu.new")                   # until the broker has it
        pending = await producer.publish_soon(b"...", "eu.new")    # until there is room in the window
        confirmation = await pending
        await producer.publish_many(...)                           # all of them, each with its own outcome

Rules:
1. A producer owns a channel with confirms. At most `window` publications are unconfirmed; further ones wait.
2. Every publication has one outcome: a Confirmation or an error. An error is raised once: where the publication is
   awaited, else by `drain`, which the end of the block calls. When the channel ends with errors that nobody has heard
   of, the log has them, too.
3. A publication that may or may not have arrived becomes what `on_orphan` says, one that is nacked what `on_nack` says.
4. Publications are mandatory unless they, or the producer, say otherwise: one that reaches no queue is an error.
5. While the broker blocks publishers they wait, and that is reported: in the log, to `on_blocked`, as events.Blocked.

The ends of publications come from `core.unconfirmed`; the channel waits out an outage (`recovery.requests`), and
publishes again (`recovery.republish`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from harebell import errors
from harebell.client import events as e
from harebell.client.callbacks import check_plain
from harebell.client.channel import Channel
from harebell.client.core.outcomes import late
from harebell.client.messages import Confirmation, Message, OnNack, OnOrphan, Publication, check_publication
from harebell.client.patterns.codec import Codec, check_codec, message_of
from harebell.client.patterns.deduplication import Keys
from harebell.client.patterns.pending import Pending, Reports
from harebell.client.patterns.source import ChannelSource
from harebell.client.publish_many import CHUNK
from harebell.client.seconds import seconds_of, setting_of

__all__ = ["Producer"]

logger = logging.getLogger("harebell.client")

T = TypeVar("T")

SHOWN: Final = 3  # failures that an error text spells out
MAX_KEPT: Final = 10_000  # failures that were not raised yet; further ones are counted


class Producer(Generic[T]):
    """Publishes with confirms, on a channel of its own. Made by `connection.producer`; enter it with `async with`.

    T is what it publishes beside Messages: bytes, or with a codec the codec's values.

    parked  publications that were set aside, under on_orphan="park" and on_nack="park": (publish tag, publication), for
            the program to take out
    """

    def __init__(
        self,
        connection: ChannelSource,
        exchange: str = "",
        *,
        window: int = 1000,
        on_orphan: OnOrphan = "raise",
        on_nack: OnNack = "raise",
        mandatory: bool = True,
        timeout: float | None = None,
        on_blocked: Callable[[str | None], object] | None = None,
        deduplicate: bool = False,
        codec: Codec[T] | None = None,
    ) -> None:
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        check_codec(codec)
        if on_blocked is not None:
            check_plain("on_blocked", on_blocked, "reason")
        self._connection = connection
        self._loop = connection.recovery.availability.loop
        self._exchange = exchange
        self._window = window
        self._on_orphan: OnOrphan = on_orphan
        self._on_nack: OnNack = on_nack
        self._mandatory = mandatory
        self._timeout = setting_of(timeout, connection.recovery.availability.timeout)
        self._on_blocked = on_blocked
        self._codec = codec
        self._keys = Keys() if deduplicate else None
        self._opened: Channel | None = None
        self._reports = Reports(self._loop, on_orphan, on_nack, self._awaited, self._failure, self._finished)
        self._published = 0
        self._in_flight = 0
        self._untold: dict[int, Pending] = {}  # failures that were not raised yet: the first MAX_KEPT
        self._failed = 0  # how many there are
        self._waiters: deque[tuple[asyncio.Future[None], bool]] = deque()  # (.., whether for all to be over)
        self._watching: asyncio.Task[None] | None = None
        self._events: e.Events | None = None

    @property
    def channel(self) -> Channel:
        """The channel that it publishes on; LocalProtocolError before it was started."""
        if self._opened is None:
            raise errors.LocalProtocolError("the producer is not started: enter it with `async with`, or await start()")
        return self._opened

    @property
    def unconfirmed(self) -> int:
        """How many publications are under way."""
        return self._in_flight

    @property
    def parked(self) -> deque[tuple[int, Publication]]:
        return self.channel.parked

    # -- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Open its channel. Done by `async with`."""
        if self._opened is None:
            channel = await self._connection.channel(timeout=self._timeout)
            try:
                await channel.confirm_select(on_orphan=self._on_orphan, on_nack=self._on_nack, timeout=self._timeout)
            except BaseException:
                channel.recovery.say_goodbye()
                raise
            self._opened = channel
            self._events = self._connection.events()
            self._watching = self._loop.create_task(self._watch(self._events))
        return self

    async def close(self) -> None:
        """Wait for what is under way (`drain`), and close the channel."""
        try:
            await self.drain()
        finally:
            await self._end()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif isinstance(error, Exception):
            try:
                await self.close()
            except errors.HarebellError as failed:  # the error of the block is the one to raise
                logger.warning("leaving the producer after %r: %s", error, failed)
        else:  # a cancelled task does not wait for the network: what was written goes out unconfirmed
            self.abandon()

    def abandon(self) -> None:
        """Close it without waiting for the network, nor for confirms."""
        if self._in_flight:
            logger.warning("a producer was left with %d publications unconfirmed", self._in_flight)
        self._forget()
        if self._opened is not None and not self._opened.is_closed:
            self._opened.recovery.say_goodbye()

    async def _end(self) -> None:
        self._forget()
        if self._opened is not None:
            await self._opened.close(timeout=self._timeout)

    def _forget(self) -> None:
        if self._events is not None:
            self._events.close()
        if self._watching is not None:
            self._watching.cancel()

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self,
        body: T | Message,
        routing_key: str = "",
        *,
        exchange: str | None = None,
        mandatory: bool | None = None,
        timeout: float | None = None,
    ) -> Confirmation:
        """Publish and wait for the confirm.

        body       a Message; bytes; with a codec, a value
        exchange   in place of the producer's; so is `mandatory`
        timeout    seconds for all of it

        Raises what `channel.publish` does: Nacked, Unroutable, PublishOrphaned, ConfirmTimeout, the broker's own error;
        and DeadlineExceeded, ConnectionLost, ChannelClosed when nothing was sent.
        """
        channel = self.channel
        message = self._message(body)
        seconds = seconds_of(timeout, self._timeout)
        if self._in_flight >= self._window:
            deadline = self._loop.time() + seconds
            while self._in_flight >= self._window:
                await self._wait(deadline, seconds)
            seconds = max(deadline - self._loop.time(), 0.0)
        self._in_flight += 1
        try:
            confirmation = await channel.publish(
                message,
                self._exchange if exchange is None else exchange,
                routing_key,
                mandatory=self._mandatory if mandatory is None else mandatory,
                timeout=seconds,
            )
        finally:
            self._finished()
        assert confirmation is not None  # confirms are on
        return confirmation

    async def publish_soon(
        self,
        body: T | Message,
        routing_key: str = "",
        *,
        exchange: str | None = None,
        mandatory: bool | None = None,
        timeout: float | None = None,
    ) -> Pending:
        """Publish without waiting for the confirm: await what this gives, or leave it to `drain`.

        Waits for room in the window, for a broker that blocks, and for the end of an outage, at most `timeout` seconds.
        """
        seconds = self._timeout if timeout is None else seconds_of(timeout, self._timeout)
        publication = self._publication(body, routing_key, exchange, mandatory)
        if not self.has_room:
            await self._room(seconds)
        return self._send(publication)

    @property
    def has_room(self) -> bool:
        """Whether `publish_soon` would not wait now; other tasks have had their turn lately, too."""
        return self._in_flight < self._window and self._published % CHUNK > 0 and self.channel.may_publish

    def begin(
        self, body: T | Message, routing_key: str = "", *, exchange: str | None = None, mandatory: bool | None = None
    ) -> Pending:
        """As `publish_soon`, without waiting: for those that have seen that it `has_room`."""
        return self._send(self._publication(body, routing_key, exchange, mandatory))

    def _publication(
        self, body: T | Message, routing_key: str, exchange: str | None, mandatory: bool | None
    ) -> Publication:
        exchange = self._exchange if exchange is None else exchange
        mandatory = self._mandatory if mandatory is None else mandatory
        return Publication(self._message(body), exchange, routing_key, mandatory)

    async def publish_many(
        self,
        publications: Iterable[Publication] | AsyncIterable[Publication],
        *,
        timeout: float | None = None,
    ) -> list[Confirmation]:
        """Publish all of them, and give the confirmation of each, in their order.

        publications  with an exchange of their own; a codec encodes their messages
        timeout       seconds for all of it, the source of the publications included

        PublishesFailed, once all are answered, when some did not get through: it has the error of each. ConfirmTimeout,
        or DeadlineExceeded where all that were sent are confirmed, when the time is over. When the call ends early
        otherwise, those that were sent are waited for first. What the source of the publications raised is raised as it
        is, and `drain` tells the failures before it; LocalProtocolError for a message that does not fit the wire and
        ChannelClosed are raised where there are no failures before them, else they are the cause of PublishesFailed.
        `failures` and `sent` of these errors tell of every publication: what comes behind `sent` was not sent.
        """
        seconds = seconds_of(timeout, self._timeout)
        sent: list[Pending] = []
        stopped: Exception | None = None
        try:
            async with asyncio.timeout(seconds):
                try:
                    async for publication in _each(publications):
                        await self._put(publication, sent, seconds)
                except Exception as error:  # of the source, of a message, of the channel; the deadline cancels
                    stopped = error
                for pending in sent:
                    if not pending.done:
                        pending.waiter = self._loop.create_future()
                        await pending.waiter
        except TimeoutError:
            raise self._late(sent, seconds) from None
        except BaseException:
            self._give_up(sent, "its caller was cancelled")
            raise
        if stopped is not None and not isinstance(stopped, errors.HarebellError):
            for pending in sent:
                pending.leave()
            raise stopped
        failures = {position: pending.error for position, pending in enumerate(sent) if pending.error is not None}
        if failures:
            failed = _failed(failures, len(failures), len(sent))
            failed.sent = len(sent)
            raise failed from stopped
        if stopped is not None:
            stopped.sent = len(sent)
            stopped.add_note(f"publish_many: {len(sent)} publications before this were confirmed")
            raise stopped
        return [pending.confirmation for pending in sent if pending.confirmation is not None]

    async def _put(self, publication: Publication, sent: list[Pending], seconds: float) -> None:
        if type(publication) is not Publication:
            check_publication(publication)
        message = self._message(publication.message)
        if message is not publication.message or publication.mandatory is None:
            publication = Publication(
                message,
                publication.exchange,
                publication.routing_key,
                self._mandatory if publication.mandatory is None else publication.mandatory,
                publication.immediate,
            )
        if self._in_flight >= self._window or not self.channel.may_publish or not len(sent) % CHUNK:
            await self._room(seconds)
        pending = self._send(publication, taken=True)
        sent.append(pending)

    def _message(self, body: object) -> Message | bytes:
        """What to publish for this."""
        message = message_of(body, self._codec)
        return message if self._keys is None else self._keys.stamp(message)

    def _late(self, sent: list[Pending], seconds: float) -> errors.DeadlineExceeded:
        """The error of publish_many when its time is over."""
        confirmed = sum(pending.confirmation is not None for pending in sent)
        text = f"publish_many: {confirmed} of {len(sent)} sent were confirmed within {seconds:g} s"
        given_up = self._give_up(sent, text)
        failures = {position: pending.error for position, pending in enumerate(sent) if pending.error is not None}
        late: errors.DeadlineExceeded
        if failures:
            tags = tuple(sent[position].publish_tag for position in failures)
            late = errors.ConfirmTimeout(f"{text}; {given_up} may or may not arrive", tags)
        else:
            late = errors.DeadlineExceeded(text)
        late.failures, late.sent = failures, len(sent)
        return late

    def _give_up(self, sent: list[Pending], why: str) -> int:
        """Nobody awaits these any more: those without an outcome are told that they may arrive. How many these are."""
        given_up = [pending for pending in sent if not pending.done]
        channel = self.channel
        for pending in given_up:
            channel.requests.abandon(channel.core, pending.publish_tag)
            pending.end(error=late(pending.publish_tag, why))
        return len(given_up)

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was published has its outcome.

        PublishesFailed when publications failed that are not awaited (positions count from the producer's first
        `publish_soon`); DeadlineExceeded after `timeout` seconds, the producer's when left out.
        """
        seconds = seconds_of(timeout, self._timeout)
        deadline = self._loop.time() + seconds
        while self._in_flight:
            await self._wait(deadline, seconds, all_over=True)
        error = self._failures()
        if error is not None:
            raise error

    def _failures(self) -> errors.PublishesFailed | None:
        """The failures that were not raised yet; from now on they are."""
        untold, self._untold = self._untold, {}
        failed, self._failed = self._failed, 0
        for pending in untold.values():
            pending.untold = False
        found = {position: pending.error for position, pending in untold.items() if pending.error is not None}
        return _failed(found, failed, self._published) if failed else None

    def _failure(self, pending: Pending, error: errors.HarebellError) -> None:
        """A failure that was not raised yet."""
        self._failed += 1
        if len(self._untold) < MAX_KEPT:
            self._untold[pending.position] = pending

    def _awaited(self, pending: Pending) -> None:
        """Its failure is raised where it is awaited."""
        pending.untold = False
        self._untold.pop(pending.position, None)
        self._failed -= 1

    # -- the window --------------------------------------------------------------------------------------------------

    async def _room(self, seconds: float) -> None:
        """Until one more may be written, within these seconds."""
        channel = self.channel
        deadline = self._loop.time() + seconds
        if self._published % CHUNK == 0:
            await asyncio.sleep(0)  # other tasks, and incoming confirms, get their turn
        while self._full or not channel.may_publish:
            if self._full:
                await self._wait(deadline, seconds)
            else:
                await channel.wait_publish(timeout=max(deadline - self._loop.time(), 0.0))

    @property
    def _full(self) -> bool:
        """Whether the next one has to wait."""
        return self._in_flight >= self._window

    async def _wait(self, deadline: float, seconds: float, *, all_over: bool = False) -> None:
        """Until there is room, or until all are over."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (waiter, all_over)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            why = f"; the broker takes no publishes now: {self._connection.blocked}" if self._connection.blocked else ""
            raise errors.DeadlineExceeded(
                f"{self._in_flight} publications were not confirmed within {seconds:g} s, the connection is "
                f"{self._connection.state}{why}"
            ) from None
        except BaseException:
            if entry not in self._waiters and not self._full:
                self._wake()  # it was woken and is cancelled: wake the next one
            raise
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    def _finished(self) -> None:
        """One publication fewer is under way."""
        self._in_flight -= 1
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        """Wake the first that waits for room, and, when all are over, all that wait for that."""
        room, over = not self._full, not self._in_flight
        for entry in list(self._waiters):
            waiter, all_over = entry
            if over if all_over else room:
                self._waiters.remove(entry)
                if not waiter.done():
                    waiter.set_result(None)
                    room = room and all_over

    def _send(self, publication: Publication, *, taken: bool = False) -> Pending:
        """Write it. `taken`: its outcome goes to a caller that waits."""
        pending = Pending(self._reports, self._published, publication)
        pending.taken = taken
        pending.publish_tag = self.channel.publish_nowait(
            publication.message,
            publication.exchange,
            publication.routing_key,
            mandatory=bool(publication.mandatory),
            immediate=publication.immediate,
            waiter=pending,
        )
        pending.counted = True  # and the next two: a signal comes before or behind the three
        self._published += 1
        self._in_flight += 1
        return pending

    # -- a broker that blocks ----------------------------------------------------------------------------------------

    async def _watch(self, events: e.Events) -> None:
        told = self._tell_blocked(None)
        async for event in events:
            if isinstance(event, e.Blocked | e.Unblocked | e.Recovered):
                told = self._tell_blocked(told)
        if self._failed and self._opened is not None and self._opened.is_closed:
            # `drain` still raises them, but a program whose connection is closed may never get there.
            first = next(iter(self._untold.values()))
            logger.error("a producer's channel has ended, and %d failures were not told: %s", self._failed, first.error)

    def _tell_blocked(self, told: str | None) -> str | None:
        reason = self._connection.blocked
        if reason == told:
            return told
        if reason is not None:
            logger.warning("publishing waits: the broker takes no publishes now: %s", reason)
        else:
            logger.info("publishing goes on: the broker takes publishes again")
        if self._on_blocked is not None:
            try:
                self._on_blocked(reason)
            except Exception:  # a failing callback does not end the producer
                logger.exception("on_blocked failed on %r", reason)
        return reason


async def _each(publications: Iterable[Publication] | AsyncIterable[Publication]) -> Any:
    if isinstance(publications, AsyncIterable):
        async for publication in publications:
            yield publication
    else:
        for publication in publications:
            yield publication


def _failed(failures: dict[int, errors.HarebellError], failed: int, of: int) -> errors.PublishesFailed:
    shown = [f"{position}: {error}" for position, error in list(failures.items())[:SHOWN]]
    more = f"; and {failed - len(shown)} more" if failed > len(shown) else ""
    return errors.PublishesFailed(f"{failed} of {of} publications failed: {'; '.join(shown)}{more}", failures)
