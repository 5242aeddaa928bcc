"""What waits for confirms in the asyncio API: one publication, many of them, or a stream of confirmations."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Final, Self

from harebell import errors
from harebell.client.core.outcomes import blames_publishing
from harebell.client.core.slots import copy_of
from harebell.client.core.unconfirmed import Batch
from harebell.client.messages import Confirmation, Returned
from harebell.client.seconds import seconds_of

__all__ = ["AwaitedBatch", "Bulk", "Confirmations", "Published"]


class Published:
    """One publication whose confirm is awaited.

    future    its result is True or False for the broker's confirm, an error of its own, or ORPHANED
    returns   what came back of it
    reason    why it is orphaned
    """

    __slots__ = ("future", "reason", "returns")

    def __init__(self, future: asyncio.Future[object]) -> None:
        self.future = future
        self.returns: Returned | None = None
        self.reason: errors.HarebellError | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        if not self.future.done():
            self.future.set_result(acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns = returned

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        if not self.future.done():
            self.future.set_result(error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.reason = reason
        if not self.future.done():
            self.future.set_result(ORPHANED)


class _Orphaned:
    def __repr__(self) -> str:
        return "ORPHANED"


ORPHANED: Final = _Orphaned()  # a result and not an exception: asyncio complains of an exception that is never read


class AwaitedBatch(Batch):
    """A batch that a task awaits: woken once enough of it has its end."""

    __slots__ = ("waiter", "wake_at")

    def __init__(self, *, parks: bool = False, parks_nacked: bool = False) -> None:
        super().__init__(parks=parks, parks_nacked=parks_nacked)
        self.waiter: asyncio.Future[None] | None = None
        self.wake_at = 0

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.settled += 1
        if not acked:
            self.nacked.append(publish_tag)
        if self.settled >= self.wake_at and self.waiter is not None:
            self.wake()

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        super().refused(publish_tag, error)
        if self.settled >= self.wake_at:
            self.wake()

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        super().orphaned(publish_tag, reason)
        if self.settled >= self.wake_at:
            self.wake()

    def accepted(self) -> int:
        """How many were published and not set aside. Raises what `raise_refused` does."""
        self.raise_refused()
        return self.sent - len(self.orphans) - len(self.nacked)

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self, settled: int, loop: asyncio.AbstractEventLoop) -> None:
        """Until that many have their end."""
        while self.settled < settled:
            self.waiter, self.wake_at = loop.create_future(), settled
            try:
                await self.waiter
            finally:
                self.waiter = None


class Bulk:
    """What becomes of the publications of one `channel.publish_bulk`, each known by its place in it.

    count      how many they are
    first_tag  the publish tag of the first, those of the others follow; 0 with confirms off
    settled    how many have an answer, or will never have one
    returns    what came back of mandatory ones that reached no queue, by place; the broker confirms these too
    refusals   the broker's error for one because of which it closed the channel, by place
    failure    why the channel was closed, where one of these publications may be the reason, or the program closed it
    """

    __slots__ = ("_loop", "_states", "_waiter", "count", "failure", "first_tag", "refusals", "returns", "settled")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.count = count
        self.settled = 0
        self.returns: dict[int, Returned] = {}
        self.refusals: dict[int, errors.HarebellError] = {}
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
        """The places of those that have no answer: when their channel has ended, they may or may not have arrived."""
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

        DeadlineExceeded when it passes; `failure` where there is one. Both leave this as it is: it may be waited for
        again, and asked.
        """
        try:
            async with asyncio.timeout(seconds_of(timeout, math.inf)):
                while self.settled < self.count:
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

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.refusals[publish_tag - self.first_tag] = self.failure = error
        self._lose(publish_tag, _REFUSED)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        if isinstance(reason, errors.ChannelClosed) or blames_publishing(reason):
            self.failure = reason
        self._lose(publish_tag, _LOST)

    def _lose(self, publish_tag: int, state: int) -> None:
        self._states[publish_tag - self.first_tag] = state
        self.settled += 1
        if self.settled == self.count:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_ACKED: Final = 1  # the states of a publication in a Bulk; 0: no answer yet
_NACKED: Final = 2
_LOST: Final = 3
_REFUSED: Final = 4


class Confirmations:
    """What became of the publications of `channel.send`, as an asynchronous iterator. Made by `channel.confirmations`.

    Each has one, whatever becomes of it. The iterator ends when the channel is closed, behind the last of them: without
    an error after our own close, else with the reason. `waiting` are those that were not taken yet.
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

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.put(Confirmation(publish_tag, False, error=error))

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.put(Confirmation(publish_tag, False, orphaned=True, error=reason))

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
