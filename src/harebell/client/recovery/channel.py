"""How a channel outlasts its wire channels: what happens when one is lost, and how the next one gets all it had.

The middlewares of the hook `channel_reconnect` restore the channel's state (`features`), in this order: tags, confirms,
transactions, flow, prefetch; then come its subscriptions (`subscriptions`). Calls meanwhile: `requests`.
How the connection comes back: `connection`. What a program sees of a channel: `harebell.client.channel`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from dataclasses import replace
from typing import Final, Protocol

from harebell import errors
from harebell.client import events as e
from harebell.client.core.channel import Carrier, ChannelCore
from harebell.client.core.slots import copy_of, was_answer
from harebell.client.messages import OnNack, OnOrphan, Publication
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import ChannelReconnectArgs, HookedChannel
from harebell.client.middleware.transports import WireChannel
from harebell.client.notifications import ChannelNotifications
from harebell.client.recovery.connection import ConnectionRecovery, opened
from harebell.client.recovery.policy import Backoff, Pauses
from harebell.client.recovery.recorded_topology import Late
from harebell.client.recovery.republish import Republisher
from harebell.client.recovery.requests import Requests
from harebell.client.recovery.subscriptions import Subscriptions
from harebell.client.statistics import Tally, of_deliveries, of_publishes
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import methods as m

__all__ = ["CarriedChannel", "ChannelRecovery"]

logger = logging.getLogger("harebell.client")

MOST_PAUSE: Final = 2.0  # seconds before a channel is opened again that the broker closes again and again


class CarriedChannel(Protocol):
    """The channel of a program, as its recovery knows it."""

    def carried_by(self, core: ChannelCore, transport: AsyncCore) -> None:
        """Another wire channel carries it from now on."""

    def restored(self, core: ChannelCore) -> None:
        """That wire channel has all that the last one had."""

    def tally(self) -> Tally:
        """What it counts itself."""

    def ended(self, reason: errors.HarebellError | None) -> None:
        """It is closed for good; None: by the program."""


class ChannelRecovery:
    """One channel, over every wire channel that carries it.

    connection     the recovery of its connection
    wire_channels  how many there have been
    """

    def __init__(
        self,
        connection: ConnectionRecovery,
        requests: Requests,
        subscriptions: Subscriptions,
        notifications: ChannelNotifications,
        chains: Chains,
        channel: HookedChannel,
        carried: CarriedChannel,
    ) -> None:
        self.connection = connection
        self.requests = requests
        self.subscriptions = subscriptions
        self.notifications = notifications
        self.chains = chains
        self.wire_channels = 1
        self._channel = channel
        self._carried = carried
        self._restoring = False  # a task restores it
        self._pauses = None if connection.policy is None else Pauses(_of_channels(connection.policy.backoff), free=1)
        self._republisher: Republisher | None = None
        self._before = Tally()  # of tables that are no longer this channel's
        self._prepare(requests.core)
        connection.channels[self] = None

    def _prepare(self, core: ChannelCore) -> None:
        """Connect this wire channel, the first or another, with what stands above it."""
        core.on_loss = self._lost
        # Acknowledgements are hooked here and not at the channel: deliveries know only what settles them.
        self.chains.hook_methods(core.settlement, ("ack", "nack", "reject"), self._channel)
        self.notifications.attach(core)

    def keep(self, on_orphan: OnOrphan, on_nack: OnNack, parked: deque[tuple[int, Publication]]) -> None:
        """Publications that are not accepted become what these say from now on; `parked` takes those to set aside."""
        requests, republisher = self.requests, self._republisher
        if republisher is None:
            if on_orphan == on_nack == "raise":
                return
            spawn = self.connection.spawn
            self._republisher = republisher = Republisher(requests, parked, spawn, self._renew)
            requests.keeper = requests.core.keeper = republisher
        republisher.on_orphan, republisher.on_nack = on_orphan, on_nack

    def _renew(self) -> None:
        """Close the wire channel, whose publications are nacked again and again, so that another one is opened.

        Not where the channel consumes, or a call is under way: unsettled deliveries would come a second time.
        """
        core, policy = self.requests.core, self.connection.policy
        if policy is None or not policy.reopen_channels or core.slots:
            return
        if self.subscriptions.active or core.consumers or core.deliveries.unacked or core.unseen.first():
            logger.warning("channel %d: the broker nacks what is published, again and again; another channel may help, "
                           "but this one consumes: publish on a channel of its own", core.number)  # fmt: skip
            return
        core.lose(errors.ConnectionLost(f"channel {core.number} is opened again: the broker nacked again and again"))

    # -- a loss ------------------------------------------------------------------------------------------------------

    def _lost(self, core: ChannelCore, reason: errors.HarebellError) -> bool:
        """The wire channel is gone: whether there will be another one."""
        if _refuses_confirms(reason):  # a channel that asked again would be closed again
            self.requests.confirming = False
        goes_on = self._goes_on(core, reason)
        core.publishes.end(reason)
        self.notifications.disconnected(reason, goes_on)
        if goes_on:
            self._flowing(False)
        else:
            self.end(reason)
        return goes_on

    def _goes_on(self, core: ChannelCore, reason: errors.HarebellError) -> bool:
        connection, requests = self.connection, self.requests
        availability = connection.availability
        if requests.ended is not None or availability.ended is not None:
            return False
        if core.connection.reason is not None:
            requests.reviving = availability.reviving
        elif not self._restoring:  # else `restore` sees the loss, and goes on
            requests.reviving = connection.policy is not None and connection.policy.reopen_channels
            if requests.reviving:
                connection.spawn(self._reopen(reason))
        return requests.reviving

    def _flowing(self, active: bool) -> None:
        observer = self.requests.core.observer
        if observer is not None:
            observer.flowing(active)

    async def _reopen(self, error: errors.HarebellError) -> None:
        """The broker closed this channel alone."""
        connection, transport = self.connection, self.requests.transport
        availability = connection.availability
        try:
            if isinstance(error, errors.ChannelError) and not was_answer(error):
                await self._pause()
            await connection.may_reconnect.wait()
            skipped = await self.restore(transport, availability.late, error, alone=True)
            for queue in self.subscriptions.interrupted - availability.late.keys():
                await self.subscriptions.resume(queue, availability.late)  # it came back just now
        except errors.HarebellError as failed:
            if transport.reason is None:
                self.end(failed)
                if self.requests.core.reason is None:
                    self.requests.core.close()
            return  # the connection is gone: its recovery restores the channel
        connection.await_late(transport)
        connection.emit(e.ChannelReopened(self.requests.core.number, error, skipped))
        availability.changed()

    async def _pause(self) -> None:
        """None the first time; a channel that is closed again and again is opened more and more slowly.

        Only where no call has got the error as its answer: a program that polls for a queue sets its pace itself.
        """
        assert self._pauses is not None  # nothing is opened again without a policy
        await asyncio.sleep(self._pauses.next(self.requests.transport.loop.time()))

    # -- coming back -------------------------------------------------------------------------------------------------

    async def restore(
        self, transport: AsyncCore, late: Late, error: BaseException | None, *, alone: bool = False
    ) -> list[e.Skipped]:
        """Another wire channel with all that the last one had, but for what the broker refuses, which is reported.

        late    queues whose subscriptions have to wait; more may be added
        error   why the last one was lost; `alone`: the connection under it was not

        Raises why the connection ended.
        """
        self._restoring = True
        try:
            return await self._restore(transport, late, error, alone)
        finally:
            self._restoring = False

    async def _restore(
        self, transport: AsyncCore, late: Late, error: BaseException | None, alone: bool
    ) -> list[e.Skipped]:
        skipped: list[e.Skipped] = []
        attempt = 0
        while self.requests.ended is None:
            attempt += 1
            known = len(skipped) + len(late)
            try:
                core = await self._next_core(transport, skipped, attempt, error, alone)
                await self.subscriptions.restore(core, transport, skipped, late)
                if core.reason is not None:
                    raise copy_of(core.reason)
            except errors.HarebellError as failed:
                self.notifications.dialed(self._target(transport), failed)
                refused = isinstance(failed, errors.ChannelError)
                lost_alone = isinstance(failed, errors.ConnectionLost) and self.requests.core.reason is not None
                if transport.reason is not None or not (refused or lost_alone):
                    raise
                error = failed
                if len(skipped) + len(late) == known:  # no subscription was refused, but the program's acknowledgement
                    await self._pause()
                continue  # without the subscription that the broker refused
            self.requests.reviving = self._restoring = False
            self.wire_channels += 1
            if self._pauses is not None:
                self._pauses.succeeded(transport.loop.time())
            self._carried.restored(core)
            if self._republisher is not None:
                self._republisher.resume(core)
            core.make_ready(True)
            self.notifications.dialed(self._target(transport), None)
            self._flowing(True)
            break
        return skipped

    def _target(self, transport: AsyncCore) -> str:
        return f"channel {self.requests.core.number} of {transport.parameters.peer}"

    async def _next_core(
        self, transport: AsyncCore, skipped: list[e.Skipped], attempt: int, error: BaseException | None, alone: bool
    ) -> ChannelCore:
        """Another wire channel, which the middlewares have prepared."""

        async def innermost(args: ChannelReconnectArgs) -> WireChannel:
            requests = self.requests
            if requests.core.reason is None:
                requests.core.close()  # a middleware has called next twice
            slot = FutureSlot(m.ChannelOpen(), transport.loop.create_future())
            core = transport.new_channel(slot, functools.partial(self._make_core, args))
            requests.core, requests.transport = core, transport
            self._carried.carried_by(core, transport)
            await transport.reply(slot, None)
            return WireChannel(core, transport)

        args = ChannelReconnectArgs(attempt, error, alone, channel=self._channel)
        made = self.chains.call("channel_reconnect", innermost)(args)
        wire = await opened("channel_reconnect", made, WireChannel)
        skipped += wire.skipped
        return wire.core

    def _make_core(self, args: ChannelReconnectArgs, connection: Carrier, number: int) -> ChannelCore:
        last = self.requests.core
        if args.publishes is not last.publishes:
            self._before.update(of_publishes(last.publishes))
        if args.deliveries is not last.deliveries:
            self._before.update(of_deliveries(last.deliveries, last.deliveries.last_tag))
        topology = self.connection.availability.topology
        core = ChannelCore(connection, number, args.deliveries, args.publishes, topology.renamed)
        core.make_ready(False)
        core.on_return = last.on_return
        core.keeper = self._republisher
        core.settler = core.settlement if last.settler is last.settlement else last.settler
        core.consumer_tags_made = last.consumer_tags_made
        self._prepare(core)
        if args.deliveries is not last.deliveries:  # what the last one delivered is acknowledged on this one
            last.settlement.replace_by(_Present(self.requests))
        return core

    # -- the end, and the numbers ------------------------------------------------------------------------------------

    def say_goodbye(self) -> FutureSlot | None:
        """Close the channel, without waiting for the answer; the slot gets it."""
        requests, slot = self.requests, None
        core = requests.core
        if core.reason is None:
            slot = requests.slot(m.ChannelClose())
            core.close(slot)
        self.end(errors.ChannelClosed(f"channel {core.number} was closed by this client"))
        return slot

    def end(self, reason: errors.HarebellError) -> None:
        """Closed for good: by the program, by an error that no channel survives, or with the connection."""
        requests = self.requests
        if requests.ended is not None:
            return
        requests.ended = reason
        requests.reviving = False
        connection = self.connection
        if connection.channels.pop(self, 0) is None:  # it was there
            connection.add_ended(self.tally())
        if self._republisher is not None:
            self._republisher.end(reason)
        why = None if isinstance(reason, errors.ChannelClosed) else reason
        self.subscriptions.end(why)
        self._carried.ended(why)
        self.notifications.closed(reason)
        connection.availability.changed()

    def forked(self, error: errors.LocalProtocolError) -> None:
        """In a child of the process that opened the channel: every call raises this."""
        requests, core = self.requests, self.requests.core
        requests.ended = requests.ended or error
        requests.reviving = False
        if core.reason is None:
            core.forked(error)

    def tally(self) -> Tally:
        """What was counted of the channel so far."""
        core = self.requests.core
        tally = of_publishes(core.publishes)
        if core.reason is None:
            tally.update(of_deliveries(core.deliveries, core.last_tag, core.unseen))
        else:
            tally.update(of_deliveries(core.deliveries, core.deliveries.last_tag))
        tally.update(self._before)
        tally.update(self._carried.tally())
        tally["buffered"] += self.subscriptions.buffered
        tally["reopened"] += self.wire_channels - 1
        return tally


def _of_channels(backoff: Backoff) -> Backoff:
    """The backoff between openings of one channel: the connection stands, and other calls on the channel wait."""
    return replace(backoff, base=min(backoff.base, MOST_PAUSE), most=min(backoff.most, MOST_PAUSE))


def _refuses_confirms(reason: errors.HarebellError) -> bool:
    """Whether this is the broker's answer to confirm.select: on a transactional channel, say."""
    if not isinstance(reason, errors.ChannelError | errors.ConnectionError):
        return False
    return (reason.class_id, reason.method_id) == (m.ConfirmSelect.CLASS_ID, m.ConfirmSelect.METHOD_ID)


class _Present:
    """Acknowledges on the present wire channel of a channel."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        self._requests.core.settlement.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._requests.core.settlement.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._requests.core.settlement.reject(delivery_tag, requeue=requeue)
