"""Where calls wait until commands may be issued, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from harebell import errors
from harebell.client.transport.deadlines import EXPIRED

__all__ = ["Gate"]

MOST_ENTERING: Final = 64  # callers that are let through at a time: each may fill what is left of the room


class Gate:
    """The callers of one session.

    check     raises when every call is to fail
    may_pass  whether a command may be issued this moment
    """

    __slots__ = ("_check", "_entering", "_loop", "_may_pass", "_queue")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, check: Callable[[], None], may_pass: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._check = check
        self._may_pass = may_pass
        self._queue: deque[asyncio.Future[object]] = deque()
        self._entering = 0  # were let through, and have not gone on yet

    async def enter(self, wait: Callable[[asyncio.Future[object]], Awaitable[object]]) -> None:
        """Wait until the caller may issue commands, which it does at once. Raises what `check` and `wait` raise."""
        self._check()
        if not self._queue and not self._entering and self._may_pass():
            return
        put = self._queue.append
        while True:
            future: asyncio.Future[object] = self._loop.create_future()
            put(future)
            try:
                await wait(future)
            except BaseException:
                if future in self._queue:
                    self._queue.remove(future)
                elif future.done() and not future.cancelled() and future.result() is not EXPIRED:
                    self._entered()  # it was let through, and is cancelled
                raise
            self._entered()
            self._check()
            if self._may_pass():
                return
            put = self._queue.appendleft

    def open(self) -> None:
        """Let callers through, as many as may pass now; all of them where they are to fail."""
        while self._queue and (self._fails() or (self._entering < MOST_ENTERING and self._may_pass())):
            future = self._queue.popleft()
            if not future.done():
                self._entering += 1
                future.set_result(True)

    def _fails(self) -> bool:
        try:
            self._check()
        except errors.HarebellError:
            return True
        return False

    def _entered(self) -> None:
        self._entering -= 1
        if not self._entering:
            self._loop.call_soon(self.open)
