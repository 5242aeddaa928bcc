"""Publishing with confirms, a window and a graceful end.

    async with connection.producer("orders", window=1000) as producer:
        await producer.publish(b"...", "eu.new")                   # until the broker has it
        pending = await producer.publish_soon(b"...", "eu.new")    # until there is room in the window
        confirmation = await pending
        await producer.publish_many(...)                           # all of them, each with its own outcome

Rules:
1. A producer owns a channel with confirms. At most `window` publications are unconfirmed; further ones wait.
2. Every publication has one outcome: a Confirmation or an error. An error is raised where the publication is awaited,
   else by `drain`, which the end of the block calls.
3. A publication that an outage orphaned becomes what `on_orphan` says. "retry" sends it again, in order.
4. While the broker blocks publishers they wait, and that is reported: in the log, to `on_blocked`, as events.Blocked.

Confirms are matched in `core.unconfirmed`; the channel waits out an outage (`recovery.requests`).
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
from harebell.client.channel import Channel
from harebell.client.messages import Confirmation, Message, OnOrphan, Publication
from harebell.client.patterns.codec import Codec, message_of
from harebell.client.patterns.pending import Pending, Reports
from harebell.client.patterns.source import ChannelSource
from harebell.client.publish_many import CHUNK

__all__ = ["Producer"]

logger = logging.getLogger("harebell.client")

T = TypeVar("T")

SHOWN: Final = 3  # failures that an error text spells out
MAX_KEPT: Final = 10_000  # failures that were not raised yet; further ones are counted


class Producer(Generic[T]):
    """Publishes with confirms, on a channel of its own. Made by `connection.producer`; enter it with `async with`.

    T is what it publishes beside Messages: bytes, or with a codec the codec's values.

    parked  orphaned publications under on_orphan="park": (publish tag, publication), for the program to take out
    """

    def __init__(
        self,
        connection: ChannelSource,
        exchange: str = "",
        *,
        window: int = 1000,
        on_orphan: OnOrphan = "raise",
        mandatory: bool = False,
        timeout: float | None = None,
        on_blocked: Callable[[str | None], object] | None = None,
        codec: Codec[T] | None = None,
    ) -> None:
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        self._connection = connection
        self._loop = connection.recovery.availability.loop
        self._exchange = exchange
        self._window = window
        self._on_orphan: OnOrphan = on_orphan
        self._mandatory = mandatory
        self._timeout = connection.recovery.availability.timeout if timeout is None else timeout
        self._on_blocked = on_blocked
        self._codec = codec
        self._opened: Channel | None = None
        self._reports = Reports(
            self._loop, on_orphan, self._awaited, self._failure, self._send_again, self._park, self._finished
        )
        self._published = 0
        self._in_flight = 0
        self._failures: dict[int, errors.HarebellError] = {}  # those that were not raised yet: the first MAX_KEPT
        self._failed = 0
        self._again: deque[Pending] = deque()
        self._waiters: deque[tuple[asyncio.Future[None], bool]] = deque()  # (.., whether for all to be over)
        self._tasks: set[asyncio.Task[None]] = set()
        self._resending: asyncio.Task[None] | None = None
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
                await channel.confirm_select(on_orphan=self._on_orphan, timeout=self._timeout)
            except BaseException:
                channel.recovery.say_goodbye()
                raise
            self._opened = channel
            self._events = self._connection.events()
            self._spawn(self._watch(self._events))
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
        for task in self._tasks:
            task.cancel()

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

        Nacked when the broker refuses, Unroutable when a mandatory message reached no queue, PublishOrphaned (or what
        `on_orphan` says) when the connection was lost meanwhile, DeadlineExceeded: it may or may not have arrived.
        """
        channel = self.channel
        message = message_of(body, self._codec)
        seconds = self._timeout if timeout is None else timeout
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
        exchange = self._exchange if exchange is None else exchange
        mandatory = self._mandatory if mandatory is None else mandatory
        publication = Publication(message_of(body, self._codec), exchange, routing_key, mandatory)
        await self._room(self._timeout if timeout is None else timeout)
        pending = Pending(self._reports, self._published, publication)
        self._send(pending)
        self._published += 1
        self._in_flight += 1
        return pending

    async def publish_many(
        self,
        publications: Iterable[Publication] | AsyncIterable[Publication],
        *,
        timeout: float | None = None,
    ) -> list[Confirmation]:
        """Publish all of them, and give the confirmation of each, in their order.

        publications  with exchange and mandatory of their own; a codec encodes their messages
        timeout       seconds for all of it, the source of the publications included

        PublishesFailed, once all are answered, when some did not get through: it has the error of each. After
        DeadlineExceeded those without an answer may or may not have arrived.
        """
        seconds = self._timeout if timeout is None else timeout
        sent: list[Pending] = []
        try:
            async with asyncio.timeout(seconds):
                async for publication in _each(publications):
                    message = message_of(publication.message, self._codec)
                    if message is not publication.message:
                        publication = Publication(
                            message, publication.exchange, publication.routing_key, publication.mandatory
                        )
                    if self._in_flight >= self._window or not self.channel.may_publish or not len(sent) % CHUNK:
                        await self._room(seconds)
                    pending = Pending(self._reports, self._published, publication)
                    pending.taken = True
                    self._send(pending)
                    self._published += 1
                    self._in_flight += 1
                    sent.append(pending)
                for pending in sent:
                    if not pending.done:
                        pending.waiter = self._loop.create_future()
                        await pending.waiter
        except BaseException as error:
            for pending in sent:  # the caller gets this error alone
                pending.leave()
            if not isinstance(error, TimeoutError) or isinstance(error, errors.HarebellError):
                raise
            confirmed = sum(pending.confirmation is not None for pending in sent)
            raise errors.DeadlineExceeded(
                f"publish_many: {confirmed} of {len(sent)} sent were confirmed within {seconds:g} s"
            ) from None
        failures = {position: pending.error for position, pending in enumerate(sent) if pending.error is not None}
        _raise_failures(failures, len(failures), len(sent))
        return [pending.confirmation for pending in sent if pending.confirmation is not None]

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was published has its outcome.

        PublishesFailed when publications failed that are not awaited (positions count from the producer's first
        `publish_soon`); DeadlineExceeded after `timeout` seconds, the producer's when left out.
        """
        seconds = self._timeout if timeout is None else timeout
        deadline = self._loop.time() + seconds
        while self._in_flight or self._again:
            await self._wait(deadline, seconds, all_over=True)
        failures, self._failures = self._failures, {}
        failed, self._failed = self._failed, 0
        _raise_failures(failures, failed, self._published)

    def _failure(self, position: int, error: errors.HarebellError) -> None:
        """A failure that was not raised yet."""
        self._failed += 1
        if len(self._failures) < MAX_KEPT:
            self._failures[position] = error

    def _awaited(self, position: int) -> None:
        """It is raised where the publication is awaited."""
        if self._failures.pop(position, None) is not None:
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
        """Whether the next one has to wait; what is to be sent again goes first."""
        return self._in_flight >= self._window or bool(self._again)

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
        room, over = not self._full, not self._in_flight and not self._again
        for entry in list(self._waiters):
            waiter, all_over = entry
            if over if all_over else room:
                self._waiters.remove(entry)
                if not waiter.done():
                    waiter.set_result(None)
                    room = room and all_over

    # -- sending, and sending again ----------------------------------------------------------------------------------

    def _send(self, pending: Pending) -> None:
        publication = pending.publication
        self.channel.publish_nowait(
            publication.message,
            publication.exchange,
            publication.routing_key,
            mandatory=publication.mandatory,
            waiter=pending,
        )

    def _park(self, publish_tag: int, publication: Publication) -> None:
        self.parked.append((publish_tag, publication))

    def _send_again(self, pending: Pending) -> None:
        self._again.append(pending)
        if self._resending is None:
            self._resending = self._spawn(self._resend())

    async def _resend(self) -> None:
        """Send what was orphaned again, in its order, once the channel is back."""
        channel = self.channel
        try:
            while self._again:
                try:
                    await channel.wait_publish(timeout=self._timeout)
                    self._send(self._again[0])
                    self._again.popleft()
                except errors.LocalProtocolError as error:  # this broker takes shorter frames than the last one
                    self._again.popleft().fail(error)
                except errors.DeadlineExceeded as error:
                    logger.warning("%d orphaned publications wait to be sent again: %s", len(self._again), error)
                except errors.HarebellError as error:
                    if not channel.is_closed:  # calls="fail": `wait_publish` does not wait for it
                        await self._connection.recovery.availability.change()
                        continue
                    again, self._again = self._again, deque()
                    for pending in again:
                        pending.fail(error)
        finally:
            self._resending = None
            self._wake()

    # -- a broker that blocks ----------------------------------------------------------------------------------------

    async def _watch(self, events: e.Events) -> None:
        told = self._tell_blocked(None)
        async for event in events:
            if isinstance(event, e.Blocked | e.Unblocked | e.Recovered):
                told = self._tell_blocked(told)

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

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _each(publications: Iterable[Publication] | AsyncIterable[Publication]) -> Any:
    if isinstance(publications, AsyncIterable):
        async for publication in publications:
            yield publication
    else:
        for publication in publications:
            yield publication


def _raise_failures(failures: dict[int, errors.HarebellError], failed: int, of: int) -> None:
    if failed:
        shown = "; ".join(f"{position}: {error}" for position, error in list(failures.items())[:SHOWN])
        more = f"; and {failed - SHOWN} more" if failed > SHOWN else ""
        raise errors.PublishesFailed(f"{failed} of {of} publications failed: {shown}{more}", failures)
