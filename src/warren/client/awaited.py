"""Who waits for confirms in the asyncio face: one publication, a batch of them, or a stream of confirmations."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Self

from warren import errors
from warren.client.core import fresh
from warren.client.publishes import Batch
from warren.client.records import Confirmation, Publication, Returned

__all__ = ["ORPHANED", "AwaitedBatch", "Confirmations", "KeptBatch", "Published"]


class _Orphaned:
    def __repr__(self) -> str:
        return "ORPHANED"


ORPHANED: Final = _Orphaned()  # a result and not an exception: a future nobody looks at any more must not complain


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

    def fail(self, reason: errors.WarrenError) -> None:
        if not self.future.done():
            self.future.set_result(fresh(reason))


class AwaitedBatch(Batch):
    """A batch somebody awaits: woken once enough of it is settled."""

    __slots__ = ("waiter", "wake_at")

    def __init__(self) -> None:
        super().__init__()
        self.waiter: asyncio.Future[None] | None = None
        self.wake_at = 0

    def keep(self, publish_tag: int, publication: Publication) -> None:
        """Remember it until it is settled; here nobody wants it back."""

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

    def fail(self, reason: errors.WarrenError) -> None:
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
            raise fresh(self.failure)


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


class Confirmations:
    """What became of the publications of `channel.send`, as an asynchronous iterator. Made by `channel.confirmations`.

    It ends when the channel is closed: without an error after our own close, else with the reason.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Confirmation] = deque()
        self._returns: dict[int, Returned] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._reason: errors.WarrenError | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        self._put(Confirmation(publish_tag, acked, returned=self._returns.pop(publish_tag, None)))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returns[publish_tag] = returned

    def orphaned(self, publish_tag: int) -> None:
        self._returns.pop(publish_tag, None)
        self._put(Confirmation(publish_tag, False, orphaned=True))

    def fail(self, reason: errors.WarrenError) -> None:
        """The channel's own end is told by `end`; one that is opened again says what became of these by its error."""

    def end(self, reason: errors.WarrenError | None) -> None:
        if not self._ended:
            self._ended, self._reason = True, reason
            self._wake()

    def _put(self, confirmation: Confirmation) -> None:
        self._waiting.append(confirmation)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Confirmation:
        while not self._waiting:
            if self._ended:
                if self._reason is not None:
                    raise fresh(self._reason)
                raise StopAsyncIteration
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            await asyncio.shield(self._waiter)
        return self._waiting.popleft()
