"""A channel's present wire channel, and the calls that go over it: each waits for one, and is made again after a loss.

A call is one loop with one deadline, computed when it begins. Calls come to their end by that deadline, however often
the connection is lost meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from harebell import errors
from harebell.client.core.channel import ChannelCore, Keeper
from harebell.client.core.slots import Reply, closed
from harebell.client.recovery.availability import Availability
from harebell.client.seconds import seconds_of
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import methods as m

__all__ = ["Requests"]

# Asking twice for these is not the same as asking once: what a lost connection cut is not asked again.
ONCE_ONLY: Final = (m.TxCommit,)
MODES: Final = (m.ConfirmSelect, m.TxSelect, m.BasicQos, m.ChannelFlow)  # they change how the channel works from now on


class Republishing(Keeper, Protocol):
    """What publishes again, as calls know it."""

    def waiting_for(self, waiter: object) -> list[int]: ...
    def abandon(self, publish_tag: int) -> None: ...


class Requests:
    """The calls of one channel.

    core, transport  the present wire channel, or the last, and the transport that it is on
    keeper           publishes again what is not accepted; None: nothing does
    reviving         it is lost, and another one will come
    ended            why the channel is closed for good
    confirming       the program has put the channel into confirm mode: each wire channel is to be, from its beginning
    mode_changes     how many calls have put the channel into another mode
    unnumbered       publications of `publish_many` without confirms, which have no publish tag
    """

    def __init__(self, availability: Availability, transport: AsyncCore, core: ChannelCore) -> None:
        self.availability = availability
        self.transport = transport
        self.core = core
        self.keeper: Republishing | None = None
        self.reviving = False
        self.ended: errors.HarebellError | None = None
        self.confirming = False
        self.mode_changes = 0
        self.unnumbered = 0

    def slot(self, request: m.Method) -> FutureSlot:
        return FutureSlot(request, self.transport.loop.create_future())

    async def ask(self, request: m.Method, timeout: float | None, written: Callable[[], None] | None = None) -> Reply:
        """The answer to a request; one that a lost connection cut is made again where that does no harm.

        A broker that has not noticed the loss yet may then refuse it, for a queue that is exclusive to the lost
        connection: 405. That passes, so the request is made again until the deadline.

        written  called each time that the request was written
        """
        availability = self.availability
        loop, topology = availability.loop, availability.topology
        seconds = seconds_of(timeout, self.transport.timeout)
        deadline = loop.time() + seconds
        cut = False
        refused = 0
        if isinstance(request, MODES):
            self.mode_changes += 1
        while True:
            core = await self.usable(request.NAME, deadline, seconds, topology.queue_named(request))
            transport = self.transport
            slot = self.slot(topology.translated(request))
            core.request(slot)
            if written is not None:
                written()
            try:
                return await transport.reply(slot, seconds, core.abandon, deadline)
            except errors.HarebellError as error:
                if isinstance(request, m.TxCommit) and not isinstance(error, errors.ChannelError):
                    raise _unknown(error) from error
                if self.may_repeat(request, core, error):
                    availability.check_deadline(request.NAME, deadline, seconds)
                    cut = True
                    continue
                policy = availability.policy
                if policy is None or not cut or self.ended or not isinstance(error, errors.ResourceLocked):
                    raise
                refused += 1
                delay = policy.backoff.delay(refused)
                if loop.time() + delay >= deadline:
                    raise
                await asyncio.sleep(delay)

    def may_repeat(self, request: m.Method, core: ChannelCore, error: errors.HarebellError) -> bool:
        """Whether the call was cut by a loss that it did not cause itself, and asking again is harmless."""
        if core.reason is None or self.ended is not None or not self.availability.parks:
            return False
        if isinstance(request, ONCE_ONLY):
            return False
        if isinstance(request, m.QueueDeclare) and not request.queue and not request.exclusive:
            return False  # the first one may exist, under a name that nobody knows
        if isinstance(error, errors.ConnectionError):
            return (error.class_id, error.method_id) != (request.CLASS_ID, request.METHOD_ID)
        return isinstance(error, errors.ConnectionLost)

    async def usable(self, what: str, deadline: float, seconds: float, queue: str = "") -> ChannelCore:
        """The wire channel, once there is one on which everything is restored; this queue, too."""
        availability = self.availability
        while True:
            core = self.core
            late = queue in availability.late and availability.parks
            if core.reason is None and core.ready and not late:
                return core
            self.check_open()
            await availability.park(what, deadline, seconds, queue if late else "")

    def check_open(self) -> None:
        """ChannelClosed when the channel is closed for good."""
        if self.ended is not None:
            raise closed(f"channel {self.core.number}", self.ended)

    def abandon(self, core: ChannelCore, publish_tag: int) -> None:
        """The publication that was made on this wire channel is no longer awaited: it is not published again."""
        core.publishes.abandon(publish_tag)
        if self.keeper is not None:
            self.keeper.abandon(publish_tag)

    def give_up(self, waiter: object) -> list[int]:
        """The publications that this waits for are no longer awaited; their tags."""
        core, keeper = self.core, self.keeper
        tags = list(core.publishes.waiting_for(waiter))
        if keeper is not None:
            tags += keeper.waiting_for(waiter)
        for tag in tags:
            self.abandon(core, tag)
        return sorted(tags)

    async def may_publish(self, deadline: float, seconds: float) -> ChannelCore:
        """Wait until publishes may be written: there is a connection, it is not blocked, its transport takes more."""
        while True:
            core = await self.usable("basic.publish", deadline, seconds)
            transport = self.transport
            if transport.may_publish(core):
                return core
            try:
                await transport.publishing(core, seconds, deadline)
            except errors.HarebellError as error:
                if core.reason is None or not self.reviving or isinstance(error, errors.DeadlineExceeded):
                    raise
                self.availability.check_deadline("basic.publish", deadline, seconds)


def _unknown(error: errors.HarebellError) -> errors.TransactionLost:
    """The error for a commit that was written, and whose answer does not come because of this."""
    late = isinstance(error, errors.DeadlineExceeded)
    kind = errors.CommitTimeout if late else errors.TransactionLost
    why = "the time was over" if late else "the channel was lost"
    return kind(f"{why} before the answer to tx.commit: it took effect whole, or not at all ({error})")
