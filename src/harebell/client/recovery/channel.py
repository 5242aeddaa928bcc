"""How a channel outlasts its wire channels: calls that wait and are made again, and the next wire channel.

What the channel had is put back by the middlewares of the hook `channel_reconnect` (`middleware`), in this order: tags,
confirms, transactions, flow, prefetch; then come its subscriptions (`subscribing`).
How a connection is lost and found: `connection`. What a program sees of a channel: `channel`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from harebell import errors
from harebell.client import events as e
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.slots import Reply, copy_of
from harebell.client.middleware.hooks import ChannelReconnectArgs
from harebell.client.middleware.transports import WireChannel
from harebell.client.notifications import Notices, TellingChannel
from harebell.client.recovery.recorded_topology import Late
from harebell.client.recovery.subscription import Subscription
from harebell.client.statistics import Tally, of_deliveries, of_ended, of_publishes
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import methods as m

if TYPE_CHECKING:
    from harebell.client.channel import Channel
    from harebell.client.confirms import Confirmations
    from harebell.client.connection import Connection
    from harebell.client.middleware.chain import Chains

__all__ = ["LastingChannel"]

_W = TypeVar("_W")

# Asking twice for these is not the same as asking once: what a lost connection cut is not asked again.
ONCE_ONLY: Final = (m.TxCommit,)


class LastingChannel(TellingChannel):
    """A channel without its public methods."""

    def __init__(self, owner: Connection, connection: AsyncCore, core: ChannelCore, chains: Chains) -> None:
        super().__init__(chains)
        self._owner = owner
        self._connection = connection
        self._core = core
        self._ended: errors.HarebellError | None = None
        self._reviving = False  # between two wire channels
        self._restoring = False  # and somebody is at it
        self._wire_channels = 1
        self._reopens = 0
        self._reopened_at = 0.0
        self._before = Tally()  # of tables that are no longer this channel's
        self._subscriptions: dict[Subscription, None] = {}
        self._confirm = False  # what the wire channel was told
        self._confirmations: Confirmations | None = None
        self._notices = Notices(cast("Channel", self), chains, self._listeners)
        self._dress(core)
        owner._channels[self] = None

    def _dress(self, core: ChannelCore) -> None:
        """Have this wire channel, the first or another, tell us."""
        core.on_loss = self._keep
        self._chains.shadow(core.settlement, ("ack", "nack", "reject"), self)  # here: a delivery knows its core only
        self._notices.attach(core)

    @property
    def number(self) -> int:
        """Of the wire channel; another one may have another number."""
        return self._core.number

    # -- calls -------------------------------------------------------------------------------------------------------

    def _slot(self, request: m.Method) -> FutureSlot:
        return FutureSlot(request, self._connection.loop.create_future())

    async def _ask(self, request: m.Method, timeout: float | None) -> Reply:
        """The answer to a request; one that a lost connection cut is made again where that does no harm.

        A broker that has not noticed the loss yet may refuse it then, for a queue that is exclusive to the connection
        that is gone: 405. That passes, so it is asked until the deadline.
        """
        loop, topology = self._connection.loop, self._owner._topology
        seconds = self._connection.timeout if timeout is None else timeout
        deadline = loop.time() + seconds
        cut = False
        refused = 0
        while True:
            core = await self._wire(request.NAME, deadline, seconds, topology.queue_named(request))
            connection = self._connection
            slot = self._slot(topology.translated(request))
            core.request(slot)
            try:
                reply = await connection.reply(slot, seconds, core.abandon, deadline)
            except errors.HarebellError as error:
                if self._may_repeat(request, core, error):
                    cut = True
                    continue
                recovery = self._owner._recovery
                if recovery is None or not cut or self._ended or not isinstance(error, errors.ResourceLocked):
                    raise
                refused += 1
                delay = recovery.backoff.delay(refused)
                if loop.time() + delay >= deadline:
                    raise
                await asyncio.sleep(delay)
            else:
                return reply

    def _may_repeat(self, request: m.Method, core: ChannelCore, error: errors.HarebellError) -> bool:
        """Whether the call was cut by a loss that it did not cause itself, and asking again is harmless."""
        if core.reason is None or self._ended is not None or not self._owner._parks() or isinstance(request, ONCE_ONLY):
            return False
        if isinstance(request, m.QueueDeclare) and not request.queue and not request.exclusive:
            return False  # the first one may exist, under a name that nobody was told
        if isinstance(error, errors.ConnectionError):
            return (error.class_id, error.method_id) != (request.CLASS_ID, request.METHOD_ID)
        return isinstance(error, errors.ConnectionLost)

    async def _wire(self, what: str, deadline: float, seconds: float, queue: str = "") -> ChannelCore:
        """The wire channel, once there is one and it has everything back; this queue, too."""
        owner = self._owner
        while True:
            core = self._core
            late = queue in owner._late and owner._parks()
            if core.reason is None and core.ready and not late:
                return core
            self._check_open()
            await owner._park(what, deadline, seconds, queue if late else "")

    def _check_open(self) -> None:
        if self._ended is not None:
            raise errors.ChannelClosed(f"channel {self.number} is closed: {self._ended}") from self._ended

    async def _may_publish(self, seconds: float) -> ChannelCore:
        """Wait until publishes may be written: there is a connection, it is not blocked, its transport takes more."""
        deadline = self._connection.loop.time() + seconds
        while True:
            core = await self._wire("basic.publish", deadline, seconds)
            connection = self._connection
            if connection.may_publish(core):
                return core
            try:
                await connection.publishing(core, seconds, deadline)
            except errors.HarebellError:
                if core.reason is None or not self._reviving:
                    raise

    # -- coming back -------------------------------------------------------------------------------------------------

    def _keep(self, core: ChannelCore, reason: errors.HarebellError) -> bool:
        """The wire channel is gone: whether there will be another one."""
        kept = self._outlasts(core, reason)
        # Where the feature publish_tags has not orphaned them, nobody answers for the publications any more.
        self._tell_disconnected(reason, kept, functools.partial(core.publishes.fail, reason))
        if kept:
            self._flow_told(False)
        else:
            self._end(reason)
        return kept

    def _outlasts(self, core: ChannelCore, reason: errors.HarebellError) -> bool:
        owner = self._owner
        if self._ended is not None or owner._ended is not None:
            return False
        if core.connection.reason is not None:
            self._reviving = owner._reviving
        elif not self._restoring:  # else `_restore` sees the loss, and goes on
            self._reviving = owner._recovery is not None and owner._recovery.reopen_channels
            if self._reviving:
                owner._spawn(self._reopen(reason))
        return self._reviving

    def _flow_told(self, active: bool) -> None:
        if self._core.observer is not None:
            self._core.observer.flowing(active)

    async def _reopen(self, error: errors.HarebellError) -> None:
        """The broker closed this channel alone."""
        owner, connection = self._owner, self._connection
        assert owner._recovery is not None  # `_keep` has seen to that
        try:
            if isinstance(error, errors.ChannelError):
                await asyncio.sleep(self._reopen_delay())
            await owner._may_reconnect.wait()
            skipped = await self._restore(connection, owner._late, error, alone=True)
            waiting = {subscription.queue for subscription in self._subscriptions if subscription.core is None}
            for queue in waiting - owner._late.keys():
                await self._resume(queue, owner._late)  # it came back just now
        except errors.HarebellError as failed:
            if connection.reason is None:
                self._end(failed)
                if self._core.reason is None:
                    self._core.close()
            return  # the connection is gone: it brings its channels back with it
        owner._await_late(connection)
        owner._emit(e.ChannelReopened(self.number, error, skipped))
        owner._changed()

    def _reopen_delay(self) -> float:
        """None the first time; what fails again and again is slowed down."""
        assert self._owner._recovery is not None
        backoff, now = self._owner._recovery.backoff, self._connection.loop.time()
        self._reopens = 0 if now - self._reopened_at > backoff.most else self._reopens + 1
        self._reopened_at = now
        return backoff.delay(self._reopens) if self._reopens else 0.0

    async def _restore(
        self, connection: AsyncCore, late: Late, error: BaseException | None, *, alone: bool = False
    ) -> list[e.Skipped]:
        """A new wire channel with all that the last one had, but for what the broker refuses, which is told.

        late    queues whose subscriptions have to wait; more may be found
        error   why the last one was lost; `alone`: the connection under it was not

        Raises why the connection ended.
        """
        self._restoring = True
        try:
            return await self._restored(connection, late, error, alone)
        finally:
            self._restoring = False

    async def _restored(
        self, connection: AsyncCore, late: Late, error: BaseException | None, alone: bool
    ) -> list[e.Skipped]:
        skipped: list[e.Skipped] = []
        attempt = 0
        while self._ended is None:
            attempt += 1
            known = len(skipped) + len(late)
            try:
                core = await self._next_wire(connection, skipped, attempt, error, alone)
                await self._subscribe_all_again(core, connection, skipped, late)
                if core.reason is not None:
                    raise copy_of(core.reason)
            except errors.ChannelError as failed:
                self._tell_dialed(self._target(connection), failed)
                if connection.reason is not None:
                    raise
                error = failed
                if len(skipped) + len(late) == known:  # nothing of ours: an acknowledgement of the program's
                    await asyncio.sleep(self._reopen_delay())
                continue  # without the subscription that the broker refused
            except errors.HarebellError as failed:
                self._tell_dialed(self._target(connection), failed)
                raise
            self._reviving = self._restoring = False
            self._wire_channels += 1
            self._confirm = core.publishes.confirming
            core.make_ready(True)
            self._tell_dialed(self._target(connection), None)
            self._flow_told(True)
            break
        return skipped

    def _target(self, connection: AsyncCore) -> str:
        return f"channel {self.number} of {connection.parameters.peer}"

    async def _next_wire(
        self, connection: AsyncCore, skipped: list[e.Skipped], attempt: int, error: BaseException | None, alone: bool
    ) -> ChannelCore:
        """Another wire channel, which the middlewares have prepared."""

        async def innermost(args: ChannelReconnectArgs) -> WireChannel:
            if self._core.reason is None:
                self._core.close()  # a middleware has called next twice
            slot = FutureSlot(m.ChannelOpen(), connection.loop.create_future())
            core = connection.new_channel(slot, functools.partial(self._next_core, args))
            self._core, self._connection = core, connection
            await connection.reply(slot, None)
            return WireChannel(core, connection)

        args = ChannelReconnectArgs(attempt, error, alone, channel=cast("Channel", self))
        made = self._chains.call("channel_reconnect", innermost)(args)
        wire = await opened("channel_reconnect", made, WireChannel)
        skipped += wire.skipped
        return wire.core

    def _next_core(self, args: ChannelReconnectArgs, connection: ConnectionCore, number: int) -> ChannelCore:
        last = self._core
        if args.publishes is not last.publishes:
            self._before.update(of_publishes(last.publishes))
        if args.deliveries is not last.deliveries:
            self._before.update(of_deliveries(last.deliveries, last.deliveries.last_tag))
        core = ChannelCore(connection, number, args.deliveries, args.publishes, self._owner._topology.renamed)
        core.make_ready(False)
        core.on_return = last.on_return
        core.settler = core.settlement if last.settler is last.settlement else last.settler
        core.consumer_tags_made = last.consumer_tags_made
        self._dress(core)
        if args.deliveries is not last.deliveries:  # what the last one delivered is acknowledged on this one
            last.settlement.replace_by(cast("Channel", self))
        return core

    if TYPE_CHECKING:  # in `subscribing`, which stands on this

        async def _subscribe_all_again(
            self, core: ChannelCore, connection: AsyncCore, skipped: list[e.Skipped], late: Late
        ) -> None: ...

        async def _resume(self, queue: str, late: Late) -> None: ...

    def _end(self, reason: errors.HarebellError) -> None:
        """Closed for good: by us, by an error that is not to be survived, or with the connection."""
        if self._ended is not None:
            return
        self._ended = reason
        self._reviving = False
        if self._owner._channels.pop(self, 0) is None:  # it was there
            self._owner._before.update(of_ended(cast("Channel", self)))
        ours = isinstance(reason, errors.ChannelClosed)
        for subscription in list(self._subscriptions):
            subscription.ended(None if ours else copy_of(reason))
        if self._confirmations is not None:
            self._confirmations.end(None if ours else reason)
        self._tell_closed(reason)
        self._owner._changed()


async def opened(hook: str, made: object, kind: type[_W]) -> _W:
    """What the chain of a reconnect hook has opened. What a middleware raises there makes the attempt a failed one."""
    try:
        wire = await cast(Awaitable[object], made)
    except errors.HarebellError:
        raise
    except Exception as error:
        raise errors.ConnectionLost(f"a middleware failed in {hook}: {error!r}") from error
    if not isinstance(wire, kind):
        raise errors.ConnectionLost(f"the middlewares of {hook} gave {wire!r}: return what call_next gives")
    return wire
