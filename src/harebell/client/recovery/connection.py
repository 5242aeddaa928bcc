"""How a connection comes back, and with it its topology, its channels and the calls that wait.

What a program holds (Connection, Channel, Consumer) keeps its identity; underneath stands one core per transport
(`transport.AsyncCore`, `core.ChannelCore`), which ends with it and never comes back. When a core ends without a close
by the program,

1. it fails the requests that wait, ends what is unconfirmed and unacknowledged, and calls `_lost`;
2. that starts one task, the only one, which dials until a core is open (`policy.Pauses`, `transport.Dialer`);
3. the topology is declared again (`topology`, around the dialling);
4. each channel gets a new ChannelCore (`channel`) with its modes, its prefetch and its tables of deliveries and
   publications, so that public tags go on (each a file, see `features`), and its subscriptions; what is to be
   published again goes before what is new (`republish`);
5. calls that were parked go on (`availability`), and Recovered is emitted (`events`).

A second loss on the way makes the attempt a failed one. The hot path knows nothing of this: a core that is not usable
is not `active`, which publishing asks anyway, and has no unacknowledged tags, where acknowledging looks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from harebell import errors
from harebell.client import events as e
from harebell.client.callbacks import awaited
from harebell.client.core.slots import copy_of
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import ConnectionReconnectArgs, HookedConnection
from harebell.client.middleware.transports import WireConnection
from harebell.client.notifications import Notifications
from harebell.client.recovery.availability import Availability
from harebell.client.recovery.policy import Pauses, Recovery
from harebell.client.recovery.recorded_topology import Late, Topology
from harebell.client.recovery.redeclare import Redeclaration
from harebell.client.recovery.topology import TopologyReplay
from harebell.client.statistics import Tally, of_ended
from harebell.client.transport.dialling import Dialer
from harebell.client.transport.forks import watch
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import methods as m

__all__ = ["ConnectionRecovery", "RecoveredChannel", "opened"]

logger = logging.getLogger("harebell.client")

_W = TypeVar("_W")


class Resumed(Protocol):
    """What begins again once a late queue is available."""

    async def resume(self, queue: str, late: Late) -> None: ...


class RecoveredChannel(Protocol):
    """A channel, as the recovery of its connection knows it."""

    @property
    def subscriptions(self) -> Resumed: ...
    async def restore(self, transport: AsyncCore, late: Late, error: BaseException | None) -> list[e.Skipped]: ...
    def end(self, reason: errors.HarebellError) -> None: ...
    def forked(self, error: errors.LocalProtocolError) -> None: ...
    def tally(self) -> Tally: ...


class ConnectionRecovery:
    """One connection, over every transport that carries it.

    policy         how it comes back; None: it ends with its transport
    availability   whether it can be used, for calls and channels
    channels       those that are not closed for good, in the order of their opening
    over           done once it is closed for good
    may_reconnect  cleared by a test that wants an outage
    transports     how many there have been
    tasks          what is under way: the recovery, channels that are opened again
    inherited      this process is a child of the one that made the connection
    """

    def __init__(
        self,
        connection: HookedConnection,
        dialer: Dialer[AsyncCore],
        policy: Recovery | None,
        chains: Chains,
        notifications: Notifications,
    ) -> None:
        self.connection = connection
        self.policy = policy
        self.dialer = dialer
        feature = chains.providers.get("topology")
        topology = feature.table if isinstance(feature, TopologyReplay) else Topology()
        topology.scope = policy.topology if policy is not None else "none"
        loop = asyncio.get_running_loop()
        self.availability = Availability(loop, policy, dialer.hosts[0].timeout, dialer.peers, topology)
        self.channels: dict[RecoveredChannel, None] = {}
        self.over: asyncio.Future[None] = loop.create_future()
        self.may_reconnect = asyncio.Event()
        self.may_reconnect.set()
        self.transports = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.inherited = False
        watch(self)
        self.emit: Callable[[e.Event], None] = chains.event("event", self._put)
        self._loop = loop
        self._chains = chains
        self.notifications = notifications
        self._pauses = None if policy is None else Pauses(policy.backoff)
        self._readers = e.Readers(self._loop)
        self._dialed: AsyncCore | None = None  # by the attempt under way
        self._ended_channels = Tally()
        self._awaiting_late: AsyncCore | None = None  # the transport on which a task tries late queues again

    # -- events ------------------------------------------------------------------------------------------------------

    def events(self) -> e.Events:
        reader = self._readers.new()
        if self.availability.ended is not None:
            reader.put(e.Closed(self.availability.ended))
        return reader

    def _put(self, event: e.Event) -> None:
        self._readers.put(event)

    # -- dialling ----------------------------------------------------------------------------------------------------

    async def first_dial(self) -> None:
        policy, pauses, timeout = self.policy, self._pauses, self.availability.timeout
        if policy is None or pauses is None or policy.first == "once":
            self._attach(await self._dial(timeout))
            return
        deadline = self._loop.time() + timeout
        why: errors.HarebellError | None = None
        while True:
            try:
                core = await self._dial(max(deadline - self._loop.time(), 0.001), deadline)
            except errors.InvalidArgument:
                raise
            except errors.HarebellError as error:
                now = self._loop.time()
                delay = pauses.next(now)
                if why is None or not isinstance(error, errors.DeadlineExceeded):
                    why = error  # a last attempt that had no time says nothing about the broker
                if now + delay >= deadline:
                    raise why from None
                await asyncio.sleep(delay)
            else:
                self._attach(core)
                return

    async def _dial(self, seconds: float, deadline: float | None = None) -> AsyncCore:
        try:
            core = await self.dialer.dial(seconds, self._connecting, deadline)
        except Exception as error:
            self.notifications.dialed(self.dialer.peers, error)
            raise
        self.notifications.dialed(core.parameters.peer, None)
        return core

    def _connecting(self, peer: str) -> None:
        self.emit(e.Connecting(peer))

    def _attach(self, core: AsyncCore) -> None:
        """This core is the connection now."""
        self.availability.transport = core
        self.transports += 1
        if self._pauses is not None:
            self._pauses.succeeded(self._loop.time())
        core.on_end = self._lost
        core.on_blocking = self._blocking_changed

    # -- coming back -------------------------------------------------------------------------------------------------

    def _lost(self, reason: errors.HarebellError) -> None:
        """The core has ended without a close by the program; it asks the channels next."""
        availability = self.availability
        if availability.ended is not None:
            return
        if self.policy is None or self._pauses is None:
            self.notifications.disconnected(reason, False)
            self.end(reason)
            return
        availability.reviving = True
        availability.last_error = reason
        self.spawn(self._revive(self.policy, self._pauses, reason))
        self.notifications.disconnected(reason, True)

    async def _revive(self, policy: Recovery, pauses: Pauses, error: BaseException) -> None:
        """Dial and restore everything, again and again until that was successful."""
        attempt = 0
        end = math.inf if policy.give_up_after is None else self._loop.time() + policy.give_up_after
        while True:
            attempt += 1
            now = self._loop.time()
            delay = pauses.next(now)
            if now + delay > end:
                gave_up = errors.RecoveryGaveUp(
                    f"no connection to {self.dialer.peers} for {policy.give_up_after:g} s: {error}"
                )
                gave_up.__cause__ = error
                self.end(gave_up)
                return
            self.availability.last_error = error
            self.emit(e.Reconnecting(attempt, delay, error))
            await asyncio.sleep(delay)
            await self.may_reconnect.wait()
            self._dialed = None
            try:
                async with asyncio.timeout_at(None if end == math.inf else end) as limit:
                    await self._restore(attempt, error)
                return
            except (errors.HarebellError, TimeoutError) as failed:
                if not isinstance(failed, TimeoutError) or not limit.expired():
                    error = failed  # else the error before says why
                if self._dialed is not None:
                    why = str(failed) or "give_up_after is over"
                    logger.warning("reconnected to %s, and lost it again: %s", self._dialed.parameters.peer, why)
                    self._dialed.abort()
            except BaseException:
                if self._dialed is not None:
                    self._dialed.abort()
                raise

    async def _restore(self, attempt: int, error: BaseException) -> None:
        async def innermost(args: ConnectionReconnectArgs) -> WireConnection:
            if self._dialed is not None:
                self._dialed.abort()  # a middleware has called next twice
            core = self._dialed = await self._dial(self.availability.timeout)
            self.emit(e.Open(core.parameters.peer))
            return WireConnection(core)

        availability = self.availability
        args = ConnectionReconnectArgs(attempt, error, connection=self.connection)
        made = self._chains.call("connection_reconnect", innermost)(args)
        wire = await opened("connection_reconnect", made, WireConnection)
        core, skipped, availability.late = wire.core, wire.skipped, wire.late
        for channel in list(self.channels):
            skipped += await channel.restore(core, availability.late, error)
        if core.reason is not None:
            raise copy_of(core.reason)
        availability.reviving = False
        self._attach(core)
        self.await_late(core)
        self.emit(e.Recovered(skipped))
        if core.blocked is not None:
            self._blocking_changed(core.blocked)
        availability.changed()

    def _blocking_changed(self, reason: str | None) -> None:
        self.emit(e.Unblocked() if reason is None else e.Blocked(reason))

    # -- late queues -------------------------------------------------------------------------------------------------

    def await_late(self, core: AsyncCore) -> None:
        """Have late queues tried again, unless a task does that already."""
        if self.availability.late and self._awaiting_late is not core:
            self._awaiting_late = core
            self.spawn(self._declare_late(core))

    async def _declare_late(self, core: AsyncCore) -> None:
        """Declare the queues that were unavailable until the broker closed the lost connection."""
        assert self.policy is not None  # nothing is restored without
        availability, pauses = self.availability, Pauses(self.policy.backoff)
        try:
            while availability.late and core.reason is None:
                await asyncio.sleep(pauses.next(self._loop.time()))
                tried = set(availability.late)
                redeclaration = Redeclaration(core, availability.topology)
                await redeclaration.run(tried)
                availability.late |= redeclaration.late
                tried -= redeclaration.late.keys()
                for queue in sorted(tried - await self._consumed(core, tried)):
                    await self._resume(queue, redeclaration.skipped)
        except errors.HarebellError as error:
            if core.reason is None:
                logger.error("giving up on the queues %s: %s", ", ".join(sorted(availability.late)), error)
                availability.late.clear()
                availability.changed()
        finally:
            if self._awaiting_late is core:
                self._awaiting_late = None

    async def _consumed(self, core: AsyncCore, late: set[str]) -> set[str]:
        """Those of these queues that wait for the end of another one's consumer, which is still there.

        Their consumers are exclusive. Each attempt that the broker refused would cost their whole channel.
        """
        refused = [queue for queue in late if isinstance(self.availability.late[queue], errors.AccessRefused)]
        if not refused:
            return set()
        found = await Redeclaration(core, self.availability.topology).inspect(refused)
        return {queue for queue, there in found.items() if there.consumer_count}

    async def _resume(self, queue: str, skipped: list[e.Skipped]) -> None:
        """The queue is available again: restore its subscriptions, then let the calls go on that wait for it."""
        availability = self.availability
        late_again: Late = {}
        for channel in list(self.channels):
            await channel.subscriptions.resume(queue, late_again)
        availability.late.pop(queue, None)
        if queue not in late_again:
            for channel in list(self.channels):  # one that was itself being restored has left it out
                await channel.subscriptions.resume(queue, late_again)
        availability.late |= late_again
        if queue not in late_again:
            self.emit(e.QueueRecovered(queue, skipped))
        availability.changed()

    # -- the end -----------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> FutureSlot | None:
        """Close the connection, without waiting for the answer; the slot gets it."""
        core = self.availability.transport
        slot: FutureSlot | None = None
        if core.open:
            slot = FutureSlot(m.ConnectionClose(), self._loop.create_future())
            core.close(slot)
        self.end(errors.ChannelClosed("the connection was closed by this client"))
        return slot

    def hang_up(self) -> None:
        """Close the connection and wait for nothing: the transport closes once the goodbye is written."""
        self.say_goodbye()
        self.availability.transport.closed()

    def end(self, reason: errors.HarebellError) -> None:
        """Closed for good."""
        availability = self.availability
        if availability.ended is not None:
            return
        availability.ended = reason
        availability.reviving = False
        try:
            current = asyncio.current_task()
        except RuntimeError:  # called by the loop itself
            current = None
        for task in self.tasks:
            if task is not current:
                task.cancel()
        for channel in list(self.channels):
            channel.end(reason)
        self.emit(e.Closed(reason))
        self.notifications.closed(reason)
        if not self.over.done():
            self.over.set_result(None)
        availability.deadlines.close()
        availability.changed()

    def forked(self, error: errors.LocalProtocolError) -> None:
        """In a child of the process that made the connection: every call raises this, and nothing else happens."""
        self.inherited = True
        self.tasks.clear()
        availability = self.availability
        availability.ended = availability.ended or error
        availability.reviving = False
        for channel in self.channels:
            channel.forked(error)

    # -- for channels ------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run it as a task, which ends with the connection."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake in the recovery itself. Without this, every call would wait for its deadline.
            logger.critical("recovery failed", exc_info=error)
            self.end(errors.ConnectionLost(f"recovery failed: {error!r}"))
            self.availability.transport.abort()

    def add_ended(self, tally: Tally) -> None:
        """A channel is closed, and has counted this."""
        self._ended_channels.update(of_ended(tally))

    def tally(self) -> Tally:
        """What was counted of all channels, closed ones too."""
        tally = self._ended_channels.copy()
        for channel in self.channels:
            tally.update(channel.tally())
        return tally


async def opened(hook: str, made: object, kind: type[_W]) -> _W:
    """What the chain of a reconnect hook has opened. What a middleware raises there makes the attempt a failed one."""
    try:
        wire = await awaited(made)
    except errors.HarebellError:
        raise
    except Exception as error:
        raise errors.ConnectionLost(f"a middleware failed in {hook}: {error!r}") from error
    if not isinstance(wire, kind):
        raise errors.ConnectionLost(f"the middlewares of {hook} gave {wire!r}: return what call_next gives")
    return wire
