"""What waits for confirms in the asyncio API: one publication, many of them, or a stream of confirmations."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Self

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.core.unconfirmed import Batch
from harebell.client.messages import Confirmation, Publication, Returned

__all__ = ["ORPHANED", "AwaitedBatch", "Bulk", "Confirmations", "KeptBatch", "Published"]


class _Orphaned:
    def __repr__(self) -> str:
        return "ORPHANED"


ORPHANED: Final = _Orphaned()  # a result and not an exception: asyncio complains of an exception that is never read


class Published:
    """One publication whose confirm is awaited: the future gets True, False, ORPHANED or an error."""

    __slots__ = ("future", "returns")

    def __init__(self, future: asyncio.Future[object]) -> None:
        self.future = future
        self.returns: Returned | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        if not self.future.done():
            self.future.set_result(acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns = returned

    def orphaned(self, publish_tag: int) -> None:
        if not self.future.done():
            self.future.set_result(ORPHANED)

    def fail(self, reason: errors.HarebellError) -> None:
        if not self.future.done():
            self.future.set_result(copy_of(reason))


class AwaitedBatch(Batch):
    """A batch that a task awaits: woken once enough of it has its confirms."""

    __slots__ = ("waiter", "wake_at")

    def __init__(self) -> None:
        super().__init__()
        self.waiter: asyncio.Future[None] | None = None
        self.wake_at = 0

    def keep(self, publish_tag: int, publication: Publication) -> None:
        """Remember it until its confirm; only `KeptBatch` does."""

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.settled += 1
        if not acked:
            self.nacked.append(publish_tag)
        if self.settled >= self.wake_at and self.waiter is not None:
            self.wake()

    def orphaned(self, publish_tag: int) -> None:
        super().orphaned(publish_tag)
        if self.settled >= self.wake_at:
            self.wake()

    def fail(self, reason: errors.HarebellError) -> None:
        super().fail(reason)
        self.wake()

    def accepted(self) -> int:
        """How many were published. Raises what `raise_refused` does."""
        self.raise_refused()
        return self.sent

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self, settled: int, loop: asyncio.AbstractEventLoop) -> None:
        """Until that many are settled, or the channel has closed: then its reason is raised."""
        while self.failure is None and self.settled < settled:
            self.waiter, self.wake_at = loop.create_future(), settled
            try:
                await self.waiter
            finally:
                self.waiter = None
        if self.failure is not None:
            raise copy_of(self.failure)


class KeptBatch(AwaitedBatch):
    """A batch that keeps its publications until they are settled, to have the orphaned ones back.

    again  orphaned publications with their tags, in the order of sending
    lost   how many of those there have been; they count as sent and as settled
    """

    __slots__ = ("_kept", "again", "lost")

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, Publication] = {}
        self.again: deque[tuple[int, Publication]] = deque()
        self.lost = 0

    def keep(self, publish_tag: int, publication: Publication) -> None:
        self._kept[publish_tag] = publication

    def settle(self, publish_tag: int, acked: bool) -> None:
        self._kept.pop(publish_tag, None)
        super().settle(publish_tag, acked)

    def accepted(self) -> int:
        return super().accepted() - self.lost

    def orphaned(self, publish_tag: int) -> None:
        self.again.append((publish_tag, self._kept.pop(publish_tag)))
        self.lost += 1
        self.settled += 1
        if self.settled >= self.wake_at:
            self.wake()


class Bulk:
    """What becomes of the publications of one `channel.publish_bulk`, each known by its place in it.

    count      how many they are
    first_tag  the publish tag of the first, those of the others follow; 0 with confirms off
    settled    how many have an answer, or will never have one because the connection was lost
    returns    what came back of mandatory ones that reached no queue, by place; the broker confirms these too
    failure    why the channel was closed before all had an answer
    """

    __slots__ = ("_loop", "_states", "_waiter", "count", "failure", "first_tag", "returns", "settled")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.count = count
        self.settled = 0
        self.returns: dict[int, Returned] = {}
        self.failure: errors.HarebellError | None = None
        self._states = bytearray(count)  # a place each, one byte: what is asked at the end is found by bytes.find
        self.first_tag = 0
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    @property
    def acked(self) -> int:
        """How many the broker has confirmed."""
        return self._states.count(_ACKED)

    @property
    def nacked(self) -> list[int]:
        """The places of those that the broker refused."""
        return self._places(_NACKED)

    @property
    def unanswered(self) -> list[int]:
        """The places of those that have no answer: with a loss behind them, they may or may not have arrived."""
        return sorted(self._places(0) + self._places(_LOST))

    def _places(self, state: int) -> list[int]:
        places, at = [], self._states.find(state)
        while at >= 0:
            places.append(at)
            at = self._states.find(state, at + 1)
        return places

    async def wait(self, *, timeout: float | None = None) -> None:
        """Until every one has an answer, or a loss has settled that it gets none.

        timeout  seconds, without end when left out

        DeadlineExceeded when it passes; the reason when the channel is closed before. Both leave this as it is: it may
        be waited for again, and asked.
        """
        try:
            async with asyncio.timeout(timeout):
                while self.failure is None and self.settled < self.count:
                    self._waiter = self._loop.create_future()
                    try:
                        await self._waiter
                    finally:
                        self._waiter = None
        except TimeoutError:
            raise errors.DeadlineExceeded(
                f"{self.settled} of {self.count} publications were confirmed within {timeout:g} s"
            ) from None
        if self.failure is not None:
            raise copy_of(self.failure)

    # -- asked by the core -------------------------------------------------------------------------------------------

    def begin(self, first_tag: int) -> None:
        """They are written. 0: without confirms there will be no answers, and none is waited for."""
        self.first_tag = first_tag
        if not first_tag:
            self.settled = self.count

    def settle(self, publish_tag: int, acked: bool) -> None:
        self._states[publish_tag - self.first_tag] = _ACKED if acked else _NACKED
        self.settled += 1
        if self.settled == self.count:
            self._wake()

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns[publish_tag - self.first_tag] = returned

    def orphaned(self, publish_tag: int) -> None:
        self._states[publish_tag - self.first_tag] = _LOST
        self.settled += 1
        if self.settled == self.count:
            self._wake()

    def fail(self, reason: errors.HarebellError) -> None:
        self.failure = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_ACKED: Final = 1  # the states of a publication in a Bulk; 0: no answer yet
_NACKED: Final = 2
_LOST: Final = 3


class Confirmations:
    """What became of the publications of `channel.send`, as an asynchronous iterator. Made by `channel.confirmations`.

    It ends when the channel is closed: without an error after our own close, else with the reason.
    `waiting` are those that were not taken yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waiting: deque[Confirmation] = deque()
        self._returns: dict[int, Returned] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._reason: errors.HarebellError | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.put(Confirmation(publish_tag, acked, returned=self._returns.pop(publish_tag, None)))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returns[publish_tag] = returned

    def orphaned(self, publish_tag: int) -> None:
        self._returns.pop(publish_tag, None)
        self.put(Confirmation(publish_tag, False, orphaned=True))

    def fail(self, reason: errors.HarebellError) -> None:
        """Nothing: `end` is called at the end of the channel, and one that is opened again has raised its error."""

    def end(self, reason: errors.HarebellError | None) -> None:
        if not self._ended:
            self._ended, self._reason = True, reason
            self._wake()

    def put(self, confirmation: Confirmation) -> None:
        self.waiting.append(confirmation)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Confirmation:
        while not self.waiting:
            if self._ended:
                if self._reason is not None:
                    raise copy_of(self._reason)
                raise StopAsyncIteration
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            await asyncio.shield(self._waiter)
        return self.waiting.popleft()
