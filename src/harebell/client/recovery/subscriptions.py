"""A channel's subscriptions: made, ended, and put back on the next wire channel, each behind the hook `subscribe`.

What a subscription is: `subscription`. What a program sees of it: `consumer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from harebell import errors
from harebell.client import events as e
from harebell.client.core.channel import ChannelCore
from harebell.client.middleware.hooks import SubscribeArgs
from harebell.client.recovery.channel import LastingChannel
from harebell.client.recovery.recorded_topology import Late
from harebell.client.recovery.subscription import Subscription
from harebell.client.transport.protocol import AsyncCore
from harebell.protocol.v091 import TableLike, methods as m

if TYPE_CHECKING:
    from harebell.client.channel import Channel

__all__ = ["SubscribingChannel"]


class SubscribingChannel(LastingChannel):
    """A channel with subscriptions that outlast its wire channels."""

    @property
    def consuming(self) -> set[str]:
        """The queues of its consumers."""
        return {subscription.queue for subscription in self._subscriptions}

    @property
    def consumer_tags(self) -> set[str]:
        """The tags of its consumers."""
        return {subscription.tag for subscription in self._subscriptions}

    def _subscription(
        self, queue: str, no_ack: bool, exclusive: bool, arguments: TableLike | None, tag: str
    ) -> Subscription:
        """One that nobody has asked the broker for yet."""
        tag = tag or self._core.next_consumer_tag()
        return Subscription(self._connection, queue, no_ack, exclusive, arguments, tag)

    async def _subscribe(self, subscription: Subscription, prefetch: int | None, timeout: float | None) -> None:
        async def innermost(args: SubscribeArgs) -> None:
            _adjust(subscription, args)
            await self._subscribe_first(subscription, _qos(args), timeout)

        if self._chains.has("delivery_event"):
            subscription.deliver = self._chains.event("delivery_event", subscription.append)
        await self._around_subscribe(innermost, subscription, prefetch, again=False)
        self._subscriptions[subscription] = None
        subscription.on_end = self._subscription_ended
        self._owner._topology.consuming(subscription.queue)
        if subscription.finished:  # cancelled by the broker in the same turn
            self._subscription_ended(subscription)

    def _around_subscribe(
        self,
        innermost: Callable[[SubscribeArgs], Awaitable[None]],
        subscription: Subscription,
        prefetch: int | None,
        again: bool,
    ) -> Awaitable[None]:
        args = SubscribeArgs(
            subscription.queue,
            subscription.tag,
            subscription.no_ack,
            subscription.exclusive,
            subscription.arguments,
            prefetch,
            0,
            again,
            channel=cast("Channel", self),
        )
        return cast(Awaitable[None], self._chains.call("subscribe", innermost)(args))

    async def _subscribe_first(self, subscription: Subscription, qos: m.BasicQos | None, timeout: float | None) -> None:
        seconds = self._connection.timeout if timeout is None else timeout
        deadline = self._connection.loop.time() + seconds
        request = _consume(subscription)
        while subscription.core is None:
            core = await self._wire(request.NAME, deadline, seconds, subscription.queue)
            translated = self._owner._topology.translated(request)
            try:
                await subscription.subscribe(core, self._connection, translated, qos, seconds)
            except BaseException as error:
                subscription.give_back(core)  # what came in the turn in which the wait for it ended
                if not isinstance(error, errors.HarebellError) or not self._may_repeat(request, core, error):
                    raise
                subscription.core = None

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
            core.cancel_unanswered(consumer)
            subscription.ended(None)
            return
        slot = self._slot(m.BasicCancel(subscription.tag))
        core.cancel(slot, consumer)
        subscription.give_back(core)
        subscription.ended(None)
        try:
            await connection.reply(slot, timeout, core.abandon)
        except errors.HarebellError:
            if core.reason is None or not self._reviving:
                raise  # on a wire channel that is gone it is cancelled, too

    def _unsubscribe_unheard(self, subscription: Subscription) -> None:
        """Nobody is left to take anything: end the subscription without waiting for the answer."""
        if subscription.core is not None:
            self._core.cancel_unanswered(subscription.core)
        subscription.give_back(self._core)
        subscription.ended(None)

    # -- coming back -------------------------------------------------------------------------------------------------

    async def _subscribe_all_again(
        self, core: ChannelCore, connection: AsyncCore, skipped: list[e.Skipped], late: Late
    ) -> None:
        for subscription in list(self._subscriptions):
            if subscription.queue not in late and not subscription.finished:
                await self._subscribe_again(subscription, core, connection, skipped, late)

    async def _subscribe_again(
        self,
        subscription: Subscription,
        core: ChannelCore,
        connection: AsyncCore,
        skipped: list[e.Skipped],
        late: Late,
    ) -> None:
        async def innermost(args: SubscribeArgs) -> None:
            _adjust(subscription, args)
            request = self._owner._topology.translated(_consume(subscription))
            await subscription.subscribe(core, connection, request, _qos(args), connection.timeout)

        try:
            await self._around_subscribe(innermost, subscription, None, again=True)
        except errors.ChannelError as error:
            if connection.reason is None:
                if self._comes_later(subscription, error):
                    late[subscription.queue] = error
                else:
                    skipped.append(e.Skipped(f"consumer {subscription.tag!r} of queue {subscription.queue!r}", error))
                    self._owner._emit(e.ConsumerEnded(subscription.queue, subscription.tag, error))
                    subscription.ended(error)
            raise

    def _comes_later(self, subscription: Subscription, error: errors.ChannelError) -> bool:
        """Whether the broker refuses it for the sake of a connection of ours that it has not buried yet."""
        topology = self._owner._topology
        match error:
            case errors.ResourceLocked():
                return topology.has_exclusive(subscription.queue)
            case errors.NotFound():
                return topology.may_have_gone(subscription.queue)
            case errors.AccessRefused():
                return subscription.exclusive
        return False

    async def _resume(self, queue: str, late: Late) -> None:
        """The queue is there again: put back its subscriptions. It may prove to be late once more."""
        for subscription in list(self._subscriptions):
            core, connection = self._core, self._connection
            if subscription.queue == queue and subscription.core is None and core.reason is None and core.ready:
                try:
                    await self._subscribe_again(subscription, core, connection, [], late)
                except errors.ChannelError:
                    return  # the channel is opened again, and tells what it could not put back


def _adjust(subscription: Subscription, args: SubscribeArgs) -> None:
    """What the middlewares have made of it."""
    subscription.queue = args.queue
    subscription.tag = args.consumer_tag
    subscription.no_ack = args.no_ack
    subscription.exclusive = args.exclusive
    subscription.arguments = args.arguments


def _qos(args: SubscribeArgs) -> m.BasicQos | None:
    return None if args.prefetch is None else m.BasicQos(args.prefetch_size, args.prefetch)


def _consume(subscription: Subscription) -> m.BasicConsume:
    return m.BasicConsume(
        subscription.queue,
        subscription.tag,
        no_ack=subscription.no_ack,
        exclusive=subscription.exclusive,
        arguments=subscription.arguments,
    )
