"""A reader of a stream queue, which continues where it was: over an outage, and with a name also over its own end.

    offsets = harebell.FileOffsets("/var/lib/billing")
    async with connection.stream("invoices", name="billing", offsets=offsets, offset="first") as stream:
        async for delivery in stream:
            async with delivery.process():
                ...

An acknowledgement takes nothing out of a stream: it lets the broker send more, and says that the message is dealt with.
The number of the last message up to which all are settled is stored every `store_every` messages, every `store_seconds`
where something has changed, and at the end. After a crash, what was settled since then comes again.

Over an outage the reader continues as `resume` says (`recovery.stream_position`).
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from harebell import errors
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery
from harebell.client.patterns.reader import QueueReader
from harebell.client.patterns.source import ChannelSource
from harebell.client.patterns.streams.offsets import Offsets, check_offsets
from harebell.client.prefetch import check_prefetch
from harebell.client.recovery.stream_position import OFFSET, Resume
from harebell.client.seconds import check_seconds
from harebell.client.starting import abandon_starting, start_by_waiting, stop_starting
from harebell.protocol.v091 import Table, TableLike

__all__ = ["Offset", "StreamReader"]

logger = logging.getLogger("harebell.client")

LAST_WORDS: Final = 5.0  # seconds in which who is cancelled may store the last position

Offset = str | int | datetime
"""Where to begin: "first", "last" (block), "next", the number of a message, a time, or an age such as "2h"."""


class StreamReader:
    """An asynchronous iterator of Delivery, made by `connection.stream`; it begins when entered or first asked."""

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        *,
        offset: Offset,
        name: str,
        offsets: Offsets | None,
        resume: Resume,
        store_every: int,
        store_seconds: float,
        prefetch: int,
        arguments: TableLike | None,
        timeout: float | None,
    ) -> None:
        if resume not in ("handed_out", "settled"):
            raise errors.InvalidArgument(f"resume={resume!r}: handed_out or settled is needed")
        check_offsets(offsets)
        if (offsets is None) != (not name):
            raise errors.InvalidArgument("a stored position needs both: name=... and offsets=...")
        store_seconds = check_seconds(store_seconds, "store_seconds")
        if store_every < 1 or store_seconds == 0:
            raise errors.InvalidArgument("store_every is 1 or more messages, store_seconds more than 0")
        self.queue = queue
        self._connection = connection
        self._offset = offset
        self._name = name
        self._offsets = offsets
        self._resume: Resume = resume
        self._store_every = store_every
        self._store_seconds = store_seconds
        self._prefetch = check_prefetch(prefetch, least=1)
        self._arguments = arguments
        self._timeout = None if timeout is None else check_seconds(timeout)
        self.first: asyncio.Task[object] | None = None
        self._reader: QueueReader | None = None
        self._since = 0  # messages handed out since the last store
        self._stored: int | None = None
        self._storing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._store_turn = asyncio.Lock()

    async def start(self) -> Self:
        """Load the position and subscribe, unless that is done. NotFound for a missing queue, AccessRefused."""
        async with self._turn:
            if self._reader is None:
                offset = self._offset
                if self._offsets is not None:
                    self._stored = await self._offsets.load(self.queue, self._name)
                    if self._stored is not None:
                        offset = self._stored + 1
                arguments: Table = {**(self._arguments or {}), OFFSET: offset}  # type: ignore[dict-item]  # field values
                reader = QueueReader(
                    self._connection, self.queue, prefetch=self._prefetch, resubscribe=False, exclusive=False,
                    arguments=arguments, timeout=self._timeout, resume=self._resume,
                )  # fmt: skip
                await reader.start()
                self._reader = reader
        return self

    @property
    def consumer(self) -> Consumer:
        """Its consumer; LocalProtocolError before it began."""
        if self._reader is None:
            raise errors.LocalProtocolError(f"the reader of stream {self.queue!r} has not begun: enter or iterate it")
        return self._reader.consumer

    @property
    def position(self) -> int | None:
        """The number of the last message up to which all are settled; None when there is none yet."""
        if self._reader is None:
            return self._stored
        subscription = self.consumer.subscription
        settled = None
        if subscription.position is not None and subscription.channel is not None:
            settled = subscription.position.settled(subscription.channel.deliveries)
        return self._stored if settled is None else settled

    async def store(self) -> int | None:
        """Store the position now; what it is. LocalProtocolError without `offsets`."""
        if self._offsets is None:
            raise errors.LocalProtocolError(f"the reader of stream {self.queue!r} has no offsets=... to store it in")
        async with self._store_turn:
            position = self.position
            if position is not None and position != self._stored:
                await self._offsets.store(self.queue, self._name, position)
                self._stored = position
            return position

    def _count(self, delivered: int) -> None:
        """So many more were handed out: store the position soon, where that is due."""
        if self._offsets is None:
            return
        self._since += delivered
        if self._since >= self._store_every:
            self._begin_store()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._store_seconds, self._begin_store)

    def _begin_store(self) -> None:
        self._since = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._storing is None:
            self._storing = asyncio.ensure_future(self._store_logged())

    async def _store_logged(self) -> None:
        try:
            await self.store()
        except Exception as error:  # of the store: the next attempt comes with further messages, or at the end
            logger.error("the position in stream %r of %r cannot be stored: %s", self.queue, self._name, error)
        finally:
            self._storing = None

    # -- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    def take(self) -> Delivery | None:
        """The next delivery, if it is there and other tasks have had their turn lately; else None: await the next."""
        delivery = None if self._reader is None else self._reader.take()
        if delivery is not None:
            self._count(1)
        return delivery

    async def __anext__(self) -> Delivery:
        if self._reader is None:
            await start_by_waiting(self)
            if self._reader is None:
                raise StopAsyncIteration  # closed meanwhile
        delivery = self._reader.take()
        if delivery is None:
            delivery = await anext(self._reader)
        self._count(1)
        return delivery

    async def receive(
        self, max_messages: int = 20_000, timeout: float | None = None, *, within: float = 0.0
    ) -> list[Delivery]:
        """A batch of deliveries, as `Consumer.receive` gives it; [] once it has ended."""
        if self._reader is None:
            await start_by_waiting(self)
            if self._reader is None:
                return []  # closed meanwhile
        batch = await self._reader.receive(max_messages, timeout, within=within)
        self._count(len(batch))
        return batch

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Store the position, and close its channel."""
        await stop_starting(self)
        try:
            await self._store_last()
        finally:
            if self._reader is not None:
                await self._reader.close()

    async def _store_last(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._offsets is not None:
            if self._storing is not None:
                await self._storing
            await self.store()

    def abandon(self) -> None:
        """Close its channel without waiting for the network; no position is stored."""
        abandon_starting(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None:
            self._reader.abandon()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            try:
                await self.close()
            except errors.HarebellError:
                if error is None:
                    raise
            return
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._store_last()
        except Exception as failed:
            logger.error("the last position in stream %r is not stored: %s", self.queue, failed)
        finally:
            self.abandon()
