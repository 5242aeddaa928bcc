"""Many publications under one deadline, with a window of unconfirmed ones: what `channel.publish_many` does.

However the call ends, it tells the end of all that was written: when its source fails, or a message does not fit the
wire, it waits for the confirms of those before. The blocking API takes the same steps from its own threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from typing import Final

from harebell import errors
from harebell.client.confirms import AwaitedBatch
from harebell.client.messages import Publication, check_publication, encoded
from harebell.client.recovery.requests import Requests
from harebell.client.transport.wire import LARGE_BODY
from harebell.protocol.v091.hot import IMMEDIATE, MANDATORY

__all__ = ["CHUNK", "PublishMany", "flags_of"]

CHUNK: Final = 256  # publications encoded between two turns of the loop


def flags_of(mandatory: bool, immediate: bool = False) -> int:
    """The flags of basic.publish."""
    return (MANDATORY if mandatory else 0) | (IMMEDIATE if immediate else 0)


class PublishMany:
    """One call of `publish_many`.

    batch     its publications and their confirms, counted
    window    how many may be unconfirmed at a time
    seconds   what the call may take; `deadline`: its end, in the loop's time
    """

    def __init__(self, requests: Requests, batch: AwaitedBatch, *, window: int, seconds: float) -> None:
        requests.check_open()
        self._requests = requests
        self.batch = batch
        self.window = window
        self.seconds = seconds
        self.deadline = requests.availability.loop.time() + seconds

    async def run(self, publications: Iterable[Publication] | AsyncIterable[Publication]) -> int:
        """Publish all of them; how many are confirmed and not set aside."""
        failed = await self.step(lambda: self._put(publications))
        return await self.end(failed)

    async def step(self, put: Callable[[], Awaitable[None]]) -> Exception | None:
        """Take one step, by the deadline. Why no other one is to be taken: its error is not raised yet."""
        try:
            async with asyncio.timeout_at(self.deadline):
                try:
                    await put()
                except Exception as error:  # of the source, of a message, of the channel; the deadline cancels
                    return error
        except TimeoutError:
            raise self._late() from None
        except asyncio.CancelledError:
            self._requests.give_up(self.batch)
            raise
        return None

    async def end(self, failed: Exception | None) -> int:
        """After the last step: wait for the confirms, and raise why that was the last, or what was not accepted."""
        batch = self.batch
        unfinished = await self.step(self._finish)
        failed = failed or unfinished
        if failed is None:
            return batch.accepted()
        error = batch.error()
        if error is not None:
            error.failures, error.sent = batch.failures(), batch.sent
            raise error from failed
        if isinstance(failed, errors.HarebellError):
            failed.sent = batch.sent
        became = "written" if batch.unnumbered else "confirmed"
        failed.add_note(f"publish_many: {batch.sent} publications before this were {became}")
        raise failed

    def _late(self) -> errors.DeadlineExceeded:
        """The error when the time is over; what is under way is no longer awaited."""
        requests, batch = self._requests, self.batch
        text = requests.transport.late(
            f"publish_many, {batch.settled} of {batch.sent} sent were confirmed", self.seconds
        )
        unanswered = requests.give_up(batch)
        error = batch.error(unanswered=unanswered, late=text)
        if isinstance(error, errors.ConfirmTimeout):
            error.failures = batch.failures(unanswered)
        else:
            error = errors.DeadlineExceeded(text)
            error.failures = batch.failures()
        error.sent = batch.sent
        return error

    async def _put(self, publications: Iterable[Publication] | AsyncIterable[Publication]) -> None:
        if isinstance(publications, AsyncIterable):
            async for publication in publications:
                await self._room()
                self.put_some(iter((publication,)), self.batch.sent + 1)
        else:
            await self.put_all(publications)

    async def put_all(self, publications: Iterable[Publication]) -> None:
        """Publish them all."""
        batch, source, more = self.batch, iter(publications), True
        while more:
            await self._room()
            until = batch.sent + CHUNK - batch.sent % CHUNK
            if self._requests.core.publishes.confirming:
                until = min(until, batch.sent - batch.under_way + self.window)
            more = self.put_some(source, until)

    def put_some(self, source: Iterator[Publication], until: int) -> bool:
        """Publish until so many of the batch are sent. False when the source has ended before.

        It stops after a large one, too, which may be all that the transport likes; not for a thread that steps.
        """
        requests, batch = self._requests, self.batch
        sent, unnumbered = batch.sent, batch.unnumbered
        core = requests.core
        publish = core.publish
        expected = batch.next_tag
        size = 0
        try:
            for publication in source:
                if type(publication) is not Publication:
                    check_publication(publication)
                raw, body = encoded(publication.message)
                flags = 1 if publication.mandatory else 0
                if publication.immediate:
                    flags |= IMMEDIATE
                tag = publish(raw, body, publication.exchange, publication.routing_key, flags, batch)
                if tag == expected:
                    expected += 1
                elif tag:
                    batch.numbered(tag, sent)
                    expected = tag + 1
                else:
                    unnumbered += 1
                    expected = -1
                sent += 1
                size = len(body)
                if sent == until or (size >= LARGE_BODY and not requests.transport.stepped):
                    return True
            return False
        finally:
            batch.sent, batch.next_tag = sent, expected
            requests.unnumbered += unnumbered - batch.unnumbered
            batch.unnumbered = unnumbered
            requests.transport.flush(size)

    async def _finish(self) -> None:
        """All were put: wait for the confirms, or for the transport."""
        requests, batch = self._requests, self.batch
        requests.transport.expecting()
        await batch.wait(batch.sent - batch.unnumbered, requests.transport.loop)
        if not batch.unnumbered:
            return
        requests.transport.flush_now()
        if requests.transport.writing_paused or not requests.core.active:
            await requests.may_publish(self.deadline, self.seconds)

    async def _room(self) -> None:
        """Wait until the next publication may go out; every CHUNK the loop gets its turn."""
        requests, batch = self._requests, self.batch
        yielded = bool(batch.sent % CHUNK)
        while True:
            transport, core = requests.transport, requests.core
            if not transport.may_publish(core):
                await requests.may_publish(self.deadline, self.seconds)
            elif not yielded:
                yielded = True
                transport.flush_now()
                await asyncio.sleep(0)
            elif core.publishes.confirming and batch.under_way >= self.window:
                # Half of the window at a time: waking for each confirm would cost more than the publishing.
                transport.expecting()
                await batch.wait(batch.sent - batch.unnumbered - self.window // 2, transport.loop)
            else:
                transport.expecting()
                return
