"""One message.subscribe of a session: what came and was not taken, and who waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from harebell import errors
from harebell.client.core.slots import copy_of
from harebell.client.sessions.messages import BaseDelivery

__all__ = ["Subscription"]


class Waiting(Protocol):
    """Something that waits for a delivery."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...


class Subscription:
    """A subscription; its session restores it after a loss, so it knows of none.

    tag       its destination
    no_ack    accept-mode none
    browsing  acquire-mode not-acquired
    at_once   what comes is complete at once: the credit limits it, and not a window
    buffer    deliveries that were not taken
    waiters   those who wait for one: futures, or threads
    cancelled  message.cancel is sent, or will be: a second one would end the session (404)
    reason    why it has ended, where that was not the program's wish; `finished` in any case
    """

    __slots__ = (
        "_loop", "at_once", "browsing", "buffer", "cancelled", "finished", "no_ack", "reason", "tag", "waiters",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tag: str, *, no_ack: bool, browsing: bool, at_once: bool = False
    ) -> None:
        self._loop = loop
        self.tag = tag
        self.no_ack = no_ack
        self.browsing = browsing
        self.at_once = at_once
        self.buffer: deque[BaseDelivery] = deque()
        self.cancelled = self.finished = False
        self.reason: errors.HarebellError | None = None
        self.waiters: deque[Waiting] = deque()

    def add(self, delivery: BaseDelivery) -> None:
        self.buffer.append(delivery)
        self.wake()

    def end(self, reason: errors.HarebellError | None) -> None:
        """Nothing comes any more; what is in the buffer is not handed out."""
        if not self.finished:
            self.finished, self.reason = True, reason
            self.buffer.clear()
            while self.waiters:
                self.wake()

    async def filled(self) -> None:
        """Wait until there is a delivery. Raises what has ended the subscription, or StopAsyncIteration."""
        while not self.buffer:
            if self.finished:
                if self.reason is not None:
                    raise copy_of(self.reason)
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = self._loop.create_future()
            self.waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and self.buffer:
                    self.wake()  # this one was woken and goes: the next in line takes the delivery
                elif waiter in self.waiters:
                    self.waiters.remove(waiter)
                raise

    def wake(self) -> None:
        """Wake the first that waits for a delivery."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
