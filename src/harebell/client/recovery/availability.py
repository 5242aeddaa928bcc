"""Whether a connection can be used, and the calls that wait until it can.

Its recovery (`connection`) writes this; calls and channels read it, and wait here.
"""

from __future__ import annotations

import asyncio

from harebell import errors
from harebell.client.core.slots import closed
from harebell.client.recovery.policy import Recovery
from harebell.client.recovery.recorded_topology import Late, Topology
from harebell.client.transport.deadlines import EXPIRED, Deadlines
from harebell.client.transport.protocol import AsyncCore

__all__ = ["Availability"]


class Availability:
    """The state of one connection, over all its transports.

    policy      how it comes back; None: not at all
    timeout     seconds for a call that gives none
    peers       its hosts, for the text of an error
    topology    what was declared on it
    transport   the present one, or the last
    reviving    it is lost, and is being dialled or restored
    ended       why it is closed for good
    last_error  why it was lost, or why the last attempt failed
    late        queues that are unavailable until the broker has closed the lost connection
    waiting     one future for each call that waits until something changes, in their order: publishes keep it
    deadlines   of publications, which may be published again on another transport
    """

    transport: AsyncCore

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        policy: Recovery | None,
        timeout: float,
        peers: str,
        topology: Topology,
    ) -> None:
        self.loop = loop
        self.policy = policy
        self.timeout = timeout
        self.peers = peers
        self.topology = topology
        self.reviving = False
        self.ended: errors.HarebellError | None = None
        self.last_error: BaseException | None = None
        self.late: Late = {}
        self.waiting: dict[asyncio.Future[object], None] = {}
        self.deadlines = Deadlines(loop)

    @property
    def parks(self) -> bool:
        """Whether calls wait for the end of an outage."""
        return self.ended is None and self.policy is not None and self.policy.calls == "park"

    def changed(self) -> None:
        """Let the waiting calls ask again."""
        waiting, self.waiting = self.waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self) -> None:
        """Wait until something has changed: the connection or a channel has come back, or has ended."""
        waiter: asyncio.Future[object] = self.loop.create_future()
        self.waiting[waiter] = None
        try:
            await waiter
        finally:
            self.waiting.pop(waiter, None)

    async def usable(self, what: str, deadline: float, seconds: float) -> None:
        """Wait until the connection is open. ChannelClosed, ConnectionLost (calls="fail"), DeadlineExceeded.

        what      the call that waits, for the text of an error
        deadline  in the loop's time; it was `seconds` away when the call began
        """
        while self.ended is not None or self.reviving or self.transport.reason is not None:
            if self.ended is not None:
                raise closed(f"the connection to {self.transport.parameters.peer}", self.ended)
            await self.park(what, deadline, seconds)

    async def park(self, what: str, deadline: float, seconds: float, queue: str = "") -> None:
        """Wait until something has changed: for a connection, or for a queue that is late."""
        if not self.parks:
            raise errors.ConnectionLost(f"{what}: reconnecting to {self.peers}: {self.last_error}")
        self.check_deadline(what, deadline, seconds, queue)
        # No asyncio.timeout: the caller may be a thread, which has no task.
        waiter: asyncio.Future[object] = self.loop.create_future()
        self.waiting[waiter] = None
        timer = self.loop.call_at(deadline, _expire, waiter)
        try:
            if await waiter is EXPIRED:
                raise self._too_late(what, seconds, queue)
        finally:
            timer.cancel()
            self.waiting.pop(waiter, None)

    def check_deadline(self, what: str, deadline: float, seconds: float, queue: str = "") -> None:
        """DeadlineExceeded once the deadline is past: each call that is made again asks this before."""
        if self.loop.time() >= deadline:
            raise self._too_late(what, seconds, queue)

    def _too_late(self, what: str, seconds: float, queue: str) -> errors.DeadlineExceeded:
        missing, error = f"no connection to {self.peers}", self.last_error
        if queue in self.late:
            missing, error = f"queue {queue!r} is not back", self.late[queue]
        late = errors.DeadlineExceeded(f"{what}: {missing} within {seconds:g} s: {error}")
        late.__cause__ = error
        return late


def _expire(waiter: asyncio.Future[object]) -> None:
    if not waiter.done():
        waiter.set_result(EXPIRED)
