"""A relay: publishes what an outbox holds, which the program has put there in its own database transactions.

    outbox = harebell.SQLiteOutbox("shop.db")
    with db:                                                # the program's transaction
        db.execute("INSERT INTO orders ...")
        outbox.put(db, b"...", "orders")
    async with connection.relay(outbox): ...                # here, or in a process of its own

Rules:
1. The relay publishes with confirms, oldest first, and reports to the outbox what was confirmed; the outbox forgets it.
2. What was not confirmed stays there, and is published again: at least once. Each publication has a key of its own, the
   same at each attempt, by which a queue with `x-message-deduplication` takes it once.
3. What the broker refuses because of itself, what reaches no queue and what does not fit the wire is reported as
   refused, with the error; those behind it go on.
4. One relay at a time publishes what an outbox holds: it holds a lease, and another one waits until that is over.
5. A loss of the broker or of the database is waited out, with growing pauses. The relay ends with its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.messages import Publication
from harebell.client.patterns.producer import Producer
from harebell.client.patterns.source import ChannelSource
from harebell.client.recovery.policy import Backoff
from harebell.client.seconds import check_seconds, setting_of

__all__ = ["Outbox", "OutboxEntry", "Relay", "is_final"]

logger = logging.getLogger("harebell.client")

AT_ONCE: Final = 500  # publications that are read together; each read is one turn of the lease
PAUSES: Final = Backoff(0.2, 10.0)  # seconds between attempts that were in vain
SPARE: Final = 30.0  # seconds that a lease is longer than the longest time for publishing what was read


class OutboxEntry:
    """One publication that waits in an outbox.

    number       its number there; higher ones were put later
    publication  what to publish; its key is in its headers
    """

    __slots__ = ("number", "publication")

    def __init__(self, number: int, publication: Publication) -> None:
        self.number = number
        self.publication = publication

    def __repr__(self) -> str:
        return f"OutboxEntry({self.number}, {self.publication!r})"


class Outbox(Protocol):
    """What a relay needs, as `SQLiteOutbox` and `PostgresOutbox` have it: implement it for another database."""

    async def hold(self, relay: str, seconds: float) -> bool:
        """Give the lease to this relay for so many seconds from now, or take it back with 0.

        False when another relay has it, and its time is not over.
        """
        ...

    async def oldest(self, count: int) -> Sequence[OutboxEntry]:
        """So many of those that wait, oldest first. They stay there."""
        ...

    async def confirmed(self, numbers: Sequence[int]) -> None:
        """The broker has these: they are not to be published again."""
        ...

    async def refused(self, number: int, error: errors.HarebellError) -> None:
        """This one can't be published: it is not among the `oldest` any more."""
        ...


class Relay:
    """Publishes what an outbox holds. Made by `connection.relay`; enter it with `async with`, or await `run()`.

    published  how many were confirmed
    refused    how many can't be published
    """

    def __init__(
        self,
        connection: ChannelSource,
        outbox: Outbox,
        *,
        window: int = 1000,
        interval: float = 0.5,
        timeout: float | None = None,
    ) -> None:
        if not (interval := check_seconds(interval, "interval")):
            raise errors.InvalidArgument(f"interval is {interval}: more than 0 seconds are needed")
        seconds = setting_of(timeout, connection.recovery.availability.timeout)
        if seconds == math.inf:
            raise errors.InvalidArgument("timeout is inf: the lease of a relay that was lost ends some time after it")
        self._outbox = outbox
        self._interval = interval
        self._timeout = seconds
        self._loop = connection.recovery.availability.loop
        self._producer: Producer[object] = Producer(connection, window=window, on_orphan="retry", timeout=timeout)
        self._name = uuid.uuid4().hex
        self._woken = asyncio.Event()
        self._vain = 0  # attempts one after the other
        self._turn = asyncio.Lock()  # `run` and `drain` do not publish the same
        self._running: asyncio.Task[None] | None = None
        self.published = 0
        self.refused = 0

    # -- its life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._running = self._loop.create_task(self.run())
        self._running.add_done_callback(_log_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it. What is under way is waited for where the block has ended well; the rest stays in the outbox.

        Raises why `run` has ended, if it has.
        """
        running, self._running = self._running, None
        assert running is not None  # __aenter__ has made it
        try:
            if error is None:
                async with self._turn:
                    running.cancel()
        finally:  # the wait for the turn may be cancelled
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise
            except errors.HarebellError:
                if error is None:
                    raise
            finally:
                self._producer.abandon()

    async def run(self) -> None:
        """Publish for ever: cancel it to end it. Raises why the connection was closed for good."""
        await self._producer.start()
        forget = self._producer.channel.notify_close(lambda event: self._woken.set())
        try:
            while True:
                self._woken.clear()
                try:
                    went_on = await self._turn_of_publishing()
                except errors.HarebellError:
                    raise
                except Exception:  # the database is away for a while
                    logger.exception("the outbox failed; it is asked again")
                    self._vain += 1
                    went_on = False
                if not went_on:
                    await self._pause()
        finally:
            forget()
            await self._let_go()

    async def drain(self) -> int:
        """Publish what the outbox holds now, and give how many were confirmed.

        Returns early while another relay has the lease. Raises what the outbox raises, and when publications were not
        accepted for now PublishesFailed, with the errors by their numbers in the outbox.
        """
        await self._producer.start()
        before = self.published
        try:
            while await self._turn_of_publishing(raising=True):
                pass
        finally:
            if self._running is None:
                await self._let_go()
        return self.published - before

    def wake(self) -> None:
        """Look into the outbox now, and not only after `interval`: a transaction has committed. From any thread."""
        self._loop.call_soon_threadsafe(self._woken.set)

    async def close(self) -> None:
        """Close its channel, after `run` or `drain` without `async with`."""
        self._producer.abandon()

    # -- publishing ----------------------------------------------------------------------------------------------------

    async def _turn_of_publishing(self, *, raising: bool = False) -> bool:
        """Publish the oldest ones. Whether there may be more to publish at once."""
        async with self._turn:
            ended = self._producer.channel.closed_reason
            if ended is not None:
                raise copy_of(ended)
            if not await self._outbox.hold(self._name, self._timeout + SPARE):
                return False
            entries = await self._outbox.oldest(AT_ONCE)
            if not entries:
                self._vain = 0
                return False
            failures, sent = await self._publish([entry.publication for entry in entries])
            confirmed = [entries[n].number for n in range(sent) if n not in failures]
            if confirmed:
                await self._outbox.confirmed(confirmed)
                self.published += len(confirmed)
            later: dict[int, errors.HarebellError] = {}
            for position, error in sorted(failures.items()):
                entry = entries[position]
                if is_final(error):
                    logger.error("publication %d of the outbox can't be published: %s", entry.number, error)
                    await self._outbox.refused(entry.number, error)
                    self.refused += 1
                else:
                    later[entry.number] = error
            if len(failures) - len(later) or (confirmed and not later):
                self._vain = 0
                return True
            self._vain += 1
            first = next(iter(later.values()), None)
            logger.warning("%d publications of the outbox wait for another attempt: %s", len(entries), first)
            if raising and first is not None:
                raise errors.PublishesFailed(f"{len(later)} publications were not confirmed: {first}", later)
            return False

    async def _publish(self, publications: list[Publication]) -> tuple[Mapping[int, errors.HarebellError], int]:
        """Publish them; (the errors by position, how many were sent)."""
        try:
            await self._producer.publish_many(publications, timeout=self._timeout)
        except errors.HarebellError as error:
            ended = self._producer.channel.closed_reason
            if ended is not None:
                raise ended from error
            sent = error.sent or 0
            failures = dict(error.failures)
            at_fault = error.__cause__ if isinstance(error, errors.PublishesFailed) else error
            if isinstance(at_fault, errors.LocalProtocolError | errors.InvalidArgument) and sent < len(publications):
                failures[sent] = at_fault  # it has ended the call, and was not sent
            elif not failures and sent < len(publications):
                failures[sent] = error  # the time is over, and nothing was written from here on
            return failures, sent
        return {}, len(publications)

    async def _pause(self) -> None:
        """Until the next look: `interval` when all was well, else longer and longer."""
        seconds = self._interval if not self._vain else max(self._interval, PAUSES.longest(self._vain))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._vain:
                    await asyncio.sleep(seconds)
                await self._woken.wait()

    async def _let_go(self) -> None:
        """Let another relay have the lease."""
        with contextlib.suppress(Exception):  # else it ends by itself
            await self._outbox.hold(self._name, 0)


def is_final(error: errors.HarebellError) -> bool:
    """Whether another attempt would end as this one did.

    What was published beside others that are at fault, too, is refused alone only behind an attempt without an answer:
    then the broker's error is the cause.
    """
    if isinstance(error, errors.ConfirmTimeout):
        return False
    if isinstance(error, errors.PublishOrphaned) and isinstance(error.__cause__, errors.HarebellError):
        error = error.__cause__
    if isinstance(error, errors.AmqpError):
        return not isinstance(error, errors.ConnectionForced | errors.InternalError)
    return isinstance(error, errors.Unroutable | errors.LocalProtocolError | errors.InvalidArgument)


def _log_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("the relay of an outbox has ended: %s", error)
