"""Many publications under one deadline, with a window of unconfirmed ones: what `channel.publish_many` does.

The blocking API takes the same steps from its own threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final

from harebell import errors
from harebell.client.confirms import AwaitedBatch, KeptBatch
from harebell.client.core.slots import copy_of
from harebell.client.messages import OnOrphan, Publication, encoded
from harebell.client.recovery.requests import Requests

__all__ = ["CHUNK", "PublishMany"]

CHUNK: Final = 256  # publications encoded between two turns of the loop


class PublishMany:
    """One call of `publish_many`.

    batch     its publications and their confirms, counted
    window    how many may be unconfirmed at a time
    seconds   what the call may take; `deadline`: its end, in the loop's time
    """

    def __init__(
        self,
        requests: Requests,
        *,
        confirming: bool,
        on_orphan: OnOrphan,
        parked: deque[tuple[int, Publication]],
        window: int,
        seconds: float,
    ) -> None:
        requests.check_open()
        self._requests = requests
        self._confirming = confirming
        self._on_orphan = on_orphan
        self._parked = parked
        self.batch: AwaitedBatch = KeptBatch() if confirming and on_orphan != "raise" else AwaitedBatch()
        self.window = window
        self.seconds = seconds
        self.deadline = requests.availability.loop.time() + seconds

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """DeadlineExceeded for what is not done by the deadline."""
        try:
            async with asyncio.timeout_at(self.deadline):
                yield
        except TimeoutError as error:
            if isinstance(error, errors.HarebellError):
                raise
            batch = self.batch
            raise errors.DeadlineExceeded(
                self._requests.transport.late(
                    f"publish_many, {batch.settled} of {batch.sent} sent were confirmed", self.seconds
                )
            ) from None

    async def put_each(self, publications: AsyncIterable[Publication]) -> None:
        """Publish them as they come."""
        async for publication in publications:
            await self._room()
            self._put(publication)

    async def put_all(self, publications: Iterable[Publication]) -> None:
        """Publish them all."""
        batch, source, more = self.batch, iter(publications), True
        while more:
            await self._room()
            until = batch.sent + CHUNK - batch.sent % CHUNK
            if self._requests.core.publishes.confirming:
                until = min(until, batch.settled + self.window)
            more = self.put_some(source, until)

    def put_some(self, source: Iterator[Publication], until: int) -> bool:
        """Publish until so many of the batch are sent. False when the source has ended before."""
        requests, batch = self._requests, self.batch
        before = batch.sent
        publish, keep = requests.core.publish, batch.keep if isinstance(batch, KeptBatch) else None
        try:
            for publication in source:
                raw, body = encoded(publication.message)
                tag = publish(raw, body, publication.exchange, publication.routing_key, publication.mandatory, batch)
                batch.sent += 1
                if keep is not None:
                    keep(tag, publication)
                if batch.sent == until:
                    return True
            return False
        finally:
            if not requests.core.publishes.confirming:
                requests.unnumbered += batch.sent - before
            requests.transport.flush()

    async def finish(self) -> None:
        """All were put: wait for the confirms, or for the transport."""
        requests = self._requests
        if self._confirming:
            await self._confirmed()
            return
        requests.transport.flush_now()
        if requests.transport.writing_paused or not requests.core.active:
            await requests.may_publish(self.deadline, self.seconds)

    async def _confirmed(self) -> None:
        """Until all are; what is orphaned meanwhile is parked, or published again."""
        requests, batch = self._requests, self.batch
        while True:
            requests.transport.expecting()
            await batch.wait(batch.sent, requests.transport.loop)
            if not isinstance(batch, KeptBatch) or not batch.again:
                return
            again, batch.again = batch.again, deque()
            if self._on_orphan == "park":
                self._parked.extend(again)
                return
            for _, publication in again:
                await self._room()
                self._put(publication)

    async def _room(self) -> None:
        """Wait until the next publication may go out; every CHUNK the loop gets its turn."""
        requests, batch = self._requests, self.batch
        yielded = bool(batch.sent % CHUNK)
        while batch.failure is None:
            transport, core = requests.transport, requests.core
            if not transport.may_publish(core):
                await requests.may_publish(self.deadline, self.seconds)
            elif not yielded:
                yielded = True
                transport.flush_now()
                await asyncio.sleep(0)
            elif core.publishes.confirming and batch.sent - batch.settled >= self.window:
                # Half of the window at a time: waking for each confirm would cost more than the publishing.
                transport.expecting()
                await batch.wait(batch.sent - self.window // 2, transport.loop)
            else:
                transport.expecting()
                return
        raise copy_of(batch.failure)

    def _put(self, publication: Publication) -> None:
        requests, batch = self._requests, self.batch
        raw, body = encoded(publication.message)
        tag = requests.core.publish(
            raw, body, publication.exchange, publication.routing_key, publication.mandatory, batch
        )
        batch.sent += 1
        if not tag:
            requests.unnumbered += 1
        batch.keep(tag, publication)
        requests.transport.flush()
