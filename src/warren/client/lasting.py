"""How a channel outlasts its wire channels: calls that wait and are made again, subscriptions, what is put back.

What the channel had is put back in this order: confirms, transactions, flow, prefetch, subscriptions (`_put_back`).
How a connection is lost and found: `connection`. What a program sees of a channel: `channel`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from warren import errors
from warren.client import events as e
from warren.client.core import ChannelCore, ConnectionCore, Reply, fresh
from warren.client.replay import Replay
from warren.client.subscription import Subscription
from warren.client.wire import AsyncCore, FutureSlot
from warren.protocol.v091 import Table, methods as m

if TYPE_CHECKING:
    from warren.client.awaited import Confirmations
    from warren.client.connection import Connection

__all__ = ["LastingChannel"]

NO_LIMIT: Final = m.BasicQos(0, 0)  # what a fresh channel has
# Asking twice for these is not the same as asking once: what a lost connection cut is not asked again.
ONCE_ONLY: Final = (m.TxCommit,)


class LastingChannel:
    """A channel without its public methods."""

    def __init__(self, owner: Connection, connection: AsyncCore, core: ChannelCore) -> None:
        self._owner = owner
        self._connection = connection
        self._core = core
        self._ended: errors.WarrenError | None = None
        self._reviving = False  # between two wire channels
        self._restoring = False  # and somebody is at it
        self._wire_channels = 1
        self._reopens = 0
        self._reopened_at = 0.0
        self._subscriptions: dict[Subscription, None] = {}
        self._qos = self._global_qos = NO_LIMIT
        self._confirm = False
        self._confirmations: Confirmations | None = None
        self._flowing = True
        self._transactional = False
        self._transaction_cut = False
        core.keeper = self._keep
        owner._channels[self] = None

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
            core = await self._wire(request.NAME, deadline, seconds)
            connection = self._connection
            slot = self._slot(topology.translated(request))
            core.request(slot)
            try:
                reply = await connection.reply(slot, seconds, core.abandon, deadline)
            except errors.WarrenError as error:
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
                topology.record(request, reply)
                return reply

    def _may_repeat(self, request: m.Method, core: ChannelCore, error: errors.WarrenError) -> bool:
        """Whether the call was cut by a loss that it did not cause itself, and asking again is harmless."""
        if core.reason is None or self._ended is not None or not self._owner._parks() or isinstance(request, ONCE_ONLY):
            return False
        if isinstance(request, m.QueueDeclare) and not request.queue and not request.exclusive:
            return False  # the first one may exist, under a name that nobody was told
        if isinstance(error, errors.ConnectionError):
            return (error.class_id, error.method_id) != (request.CLASS_ID, request.METHOD_ID)
        return isinstance(error, errors.ConnectionLost)

    async def _wire(self, what: str, deadline: float, seconds: float) -> ChannelCore:
        """The wire channel, once there is one and it has everything back."""
        while True:
            core = self._core
            if core.reason is None and core.ready:
                return core
            self._check_open()
            await self._owner._park(what, deadline, seconds)

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
            except errors.WarrenError:
                if core.reason is None or not self._reviving:
                    raise

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def _subscription(
        self, queue: str, no_ack: bool, exclusive: bool, arguments: Table | None, tag: str
    ) -> Subscription:
        """One that nobody has asked the broker for yet."""
        tag = tag or self._core.next_consumer_tag()
        return Subscription(self._connection, queue, no_ack, exclusive, arguments, tag)

    async def _subscribe(self, subscription: Subscription, prefetch: int | None, timeout: float | None) -> None:
        loop = self._connection.loop
        seconds = self._connection.timeout if timeout is None else timeout
        deadline = loop.time() + seconds
        request = _consume(subscription)
        while subscription.core is None:
            core = await self._wire(request.NAME, deadline, seconds)
            connection = self._connection
            qos = None if prefetch is None else m.BasicQos(0, prefetch)
            translated = self._owner._topology.translated(request)
            try:
                await subscription.subscribe(core, connection, translated, qos, seconds)
            except BaseException as error:
                subscription.give_back(core)  # what came in the turn in which the wait for it ended
                if not isinstance(error, errors.WarrenError) or not self._may_repeat(request, core, error):
                    raise
                subscription.core = None
                continue
            if qos is not None:
                self._qos = qos
        subscription.qos = self._qos
        subscription.on_end = self._subscription_ended
        self._subscriptions[subscription] = None
        self._owner._topology.consuming(subscription.queue)
        if subscription.finished:  # cancelled by the broker in the same turn
            self._subscription_ended(subscription)

    def _subscription_ended(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            self._owner._topology.consumer_gone(subscription.queue)

    async def _unsubscribe(self, subscription: Subscription, timeout: float | None) -> None:
        core, connection, consumer = self._core, self._connection, subscription.core
        if consumer is None or core.reason is not None or consumer.cancelling:
            subscription.ended(None)
            return
        if not consumer.answered:  # it is just being put back
            core.cancel_unheard(consumer)
            subscription.ended(None)
            return
        slot = self._slot(m.BasicCancel(subscription.tag))
        core.cancel(slot, consumer)
        subscription.give_back(core)
        subscription.ended(None)
        try:
            await connection.reply(slot, timeout, core.abandon)
        except errors.WarrenError:
            if core.reason is None or not self._reviving:
                raise  # on a wire channel that is gone it is cancelled, too

    def _unsubscribe_unheard(self, subscription: Subscription) -> None:
        """Nobody is left to take anything: end the subscription without waiting for the answer."""
        if subscription.core is not None:
            self._core.cancel_unheard(subscription.core)
        subscription.give_back(self._core)
        subscription.ended(None)

    # -- coming back -------------------------------------------------------------------------------------------------

    def _keep(self, core: ChannelCore, reason: errors.WarrenError) -> bool:
        """The wire channel is gone: whether there will be another one."""
        owner = self._owner
        self._transaction_cut = self._transactional
        if self._ended is not None or owner._ended is not None:
            return False
        if core.connection.reason is not None:
            self._reviving = owner._reviving
        elif not self._restoring:  # else `_restore` sees the loss, and goes on
            self._reviving = owner._recovery is not None and owner._recovery.reopen_channels
            if self._reviving:
                owner._spawn(self._reopen(reason))
        if not self._reviving:
            self._end(reason)
        return self._reviving

    async def _reopen(self, error: errors.WarrenError) -> None:
        """The broker closed this channel alone."""
        owner, connection = self._owner, self._connection
        assert owner._recovery is not None  # `_keep` has seen to that
        try:
            if isinstance(error, errors.ChannelError):
                await asyncio.sleep(self._reopen_delay())
            await owner._may_reconnect.wait()
            skipped: list[e.Skipped] = []
            topology = owner._topology
            if any(topology.has_auto_delete(subscription.queue) for subscription in self._subscriptions):
                # Those queues went with their last consumer.
                replay = Replay(connection, topology)
                await replay.run()
                skipped += replay.skipped
                for channel in owner._channels:
                    channel._core.frames.forget()
            skipped += await self._restore(connection, owner._locked)
            waiting = {subscription.queue for subscription in self._subscriptions if subscription.core is None}
            for queue in waiting - owner._locked:
                await self._resume(queue)  # unlocked just now
        except errors.WarrenError as failed:
            if connection.reason is None:
                self._end(failed)
            return  # the connection is gone: it brings its channels back with it
        owner._unlock_later(connection)
        owner._emit(e.ChannelReopened(self.number, error, skipped))
        owner._changed()

    def _reopen_delay(self) -> float:
        """None the first time; what fails again and again is slowed down."""
        assert self._owner._recovery is not None
        backoff, now = self._owner._recovery.backoff, self._connection.loop.time()
        self._reopens = 0 if now - self._reopened_at > backoff.most else self._reopens + 1
        self._reopened_at = now
        return backoff.delay(self._reopens) if self._reopens else 0.0

    async def _restore(self, connection: AsyncCore, locked: set[str]) -> list[e.Skipped]:
        """A new wire channel with all that the last one had, but for what the broker refuses, which is told.

        locked  queues whose subscriptions have to wait; more may be found. Raises why the connection ended.
        """
        self._restoring = True
        try:
            return await self._restored(connection, locked)
        finally:
            self._restoring = False

    async def _restored(self, connection: AsyncCore, locked: set[str]) -> list[e.Skipped]:
        skipped: list[e.Skipped] = []
        while self._ended is None:
            known = len(skipped) + len(locked)
            slot = FutureSlot(m.ChannelOpen(), connection.loop.create_future())
            core = connection.new_channel(slot, self._next_core)
            self._core, self._connection = core, connection
            await connection.reply(slot, None)
            try:
                await self._put_back(core, connection, skipped, locked)
                if core.reason is not None:
                    raise fresh(core.reason)
            except errors.ChannelError:
                if connection.reason is not None:
                    raise
                if len(skipped) + len(locked) == known:  # nothing of ours: an acknowledgement of the program's
                    await asyncio.sleep(self._reopen_delay())
                continue  # without the subscription that the broker refused
            self._reviving = self._restoring = False
            self._wire_channels += 1
            core.make_ready(True)
            break
        return skipped

    def _next_core(self, connection: ConnectionCore, number: int) -> ChannelCore:
        last = self._core
        core = ChannelCore(connection, number, last.deliveries, last.publishes, self._owner._topology.renamed)
        core.make_ready(False)
        core.keeper = self._keep
        core.on_return = last.on_return
        core.settler = core if last.settler is last else last.settler
        core.tags_given = last.tags_given
        return core

    async def _put_back(
        self, core: ChannelCore, connection: AsyncCore, skipped: list[e.Skipped], locked: set[str]
    ) -> None:
        modes: list[m.Method] = []
        if self._confirm:
            modes.append(m.ConfirmSelect())
        if self._transactional:
            modes.append(m.TxSelect())
        if not self._flowing:
            modes.append(m.ChannelFlow(False))
        if self._global_qos != NO_LIMIT:
            modes.append(self._global_qos)
        for mode in modes:
            await self._say(core, connection, mode)
        prefetch = NO_LIMIT
        for subscription in list(self._subscriptions):
            if subscription.queue not in locked and not subscription.finished:
                qos = subscription.qos if subscription.qos != prefetch else None
                await self._subscribe_again(subscription, qos, core, connection, skipped, locked)
                prefetch = subscription.qos
        if self._qos != prefetch:
            await self._say(core, connection, self._qos)
        if self._global_qos != NO_LIMIT:
            await self._say(core, connection, self._global_qos)  # RabbitMQ's 0 for consumers lifts this one too

    async def _subscribe_again(
        self,
        subscription: Subscription,
        qos: m.BasicQos | None,
        core: ChannelCore,
        connection: AsyncCore,
        skipped: list[e.Skipped],
        locked: set[str],
    ) -> None:
        request = self._owner._topology.translated(_consume(subscription))
        try:
            await subscription.subscribe(core, connection, request, qos, connection.timeout)
        except errors.ChannelError as error:
            if connection.reason is None:
                ours = self._owner._topology.has_exclusive(subscription.queue)
                if (ours and isinstance(error, errors.ResourceLocked)) or (
                    subscription.exclusive and isinstance(error, errors.AccessRefused)
                ):
                    locked.add(subscription.queue)  # by a connection of ours that the broker still believes in
                else:
                    skipped.append(e.Skipped(f"consumer {subscription.tag!r} of queue {subscription.queue!r}", error))
                    self._owner._emit(e.ConsumerEnded(subscription.queue, subscription.tag, error))
                    subscription.ended(error)
            raise

    async def _resume(self, queue: str) -> None:
        """The queue is no longer locked: put back its subscriptions."""
        for subscription in list(self._subscriptions):
            core, connection = self._core, self._connection
            if subscription.queue == queue and subscription.core is None and core.reason is None and core.ready:
                qos = subscription.qos if subscription.qos != self._qos else None
                try:
                    await self._subscribe_again(subscription, qos, core, connection, [], self._owner._locked)
                    if qos is not None:
                        await self._say(core, connection, self._qos)
                except errors.ChannelError:
                    return  # the channel is opened again, and tells what it could not put back

    async def _say(self, core: ChannelCore, connection: AsyncCore, request: m.Method) -> None:
        slot = FutureSlot(request, connection.loop.create_future())
        core.request(slot)
        await connection.reply(slot, None)

    def _end(self, reason: errors.WarrenError) -> None:
        """Closed for good: by us, by an error that is not to be survived, or with the connection."""
        if self._ended is not None:
            return
        self._ended = reason
        self._reviving = False
        self._owner._channels.pop(self, None)
        ours = isinstance(reason, errors.ChannelClosed)
        for subscription in list(self._subscriptions):
            subscription.ended(None if ours else fresh(reason))
        if self._confirmations is not None:
            self._confirmations.end(None if ours else reason)
        self._owner._changed()


def _consume(subscription: Subscription) -> m.BasicConsume:
    return m.BasicConsume(
        subscription.queue,
        subscription.tag,
        no_ack=subscription.no_ack,
        exclusive=subscription.exclusive,
        arguments=subscription.arguments,
    )
