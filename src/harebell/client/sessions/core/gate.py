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

    __slots__ = ("_check", "_entering", "_loop", "_may_pass", "_queue", "_tickets")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, check: Callable[[], None], may_pass: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._check = check
        self._may_pass = may_pass
        self._queue: deque[tuple[int, asyncio.Future[object]]] = deque()  # by ticket
        self._tickets = 0
        self._entering = 0  # were let through, and have not gone on yet

    @property
    def free(self) -> bool:
        """Whether a caller may issue commands at once: nobody is before it."""
        return not self._queue and not self._entering and self._may_pass()

    async def enter(self, wait: Callable[[asyncio.Future[object]], Awaitable[object]]) -> None:
        """Wait until the caller may issue commands, which it does at once. Raises what `check` and `wait` raise."""
        self._check()
        if self.free:
            return
        self._tickets += 1
        ticket = self._tickets
        while True:
            future: asyncio.Future[object] = self._loop.create_future()
            waiting = (ticket, future)
            self._queue.insert(self._place(ticket), waiting)
            try:
                await wait(future)
            except BaseException:
                if waiting in self._queue:
                    self._queue.remove(waiting)
                elif future.done() and not future.cancelled() and future.result() is not EXPIRED:
                    self._entered()  # it was let through, and is cancelled
                raise
            self._entered()
            self._check()
            if self._may_pass():
                return

    def _place(self, ticket: int) -> int:
        """Where a caller belongs: at the end, or, if others have filled the room before its turn, near the front."""
        queue = self._queue
        if not queue or queue[-1][0] < ticket:
            return len(queue)
        return next(at for at, (other, _) in enumerate(queue) if other > ticket)

    def open(self) -> None:
        """Let callers through, as many as may pass now; all of them where they are to fail."""
        while self._queue and (self._fails() or (self._entering < MOST_ENTERING and self._may_pass())):
            _, future = self._queue.popleft()
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
