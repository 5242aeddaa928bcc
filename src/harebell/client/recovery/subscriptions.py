"""A channel's subscriptions: begun, ended, and restored on the next wire channel, each behind the hook `subscribe`.

What a subscription is: `subscription`. What a program sees of it: `harebell.client.consumer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from harebell import errors
from harebell.client import events as e
from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import HookedChannel, SubscribeArgs
from harebell.client.recovery.recorded_topology import Late
from harebell.client.recovery.requests import Requests
from harebell.client.recovery.stream_position import OFFSET, Position
from harebell.client.recovery.subscription import Subscription
from harebell.client.seconds import seconds_of
from harebell.client.transport.protocol import AsyncCore
from harebell.protocol.v091 import TableLike, methods as m

__all__ = ["Subscriptions"]


class Subscriptions:
    """The subscriptions of one channel; they outlast its wire channels.

    active  those that have begun and not ended
    """

    def __init__(
        self, requests: Requests, chains: Chains, channel: HookedChannel, emit: Callable[[e.Event], None]
    ) -> None:
        self.requests = requests
        self.active: dict[Subscription, None] = {}
        self._chains = chains
        self._channel = channel
        self._emit = emit

    @property
    def queues(self) -> set[str]:
        return {subscription.queue for subscription in self.active}

    @property
    def tags(self) -> set[str]:
        return {subscription.tag for subscription in self.active}

    @property
    def buffered(self) -> int:
        """How many deliveries wait to be taken."""
        return sum(len(subscription.buffer) for subscription in self.active)

    def new(self, queue: str, no_ack: bool, exclusive: bool, arguments: TableLike | None, tag: str) -> Subscription:
        """One that the broker does not know yet."""
        requests = self.requests
        tag = tag or requests.core.next_consumer_tag()
        return Subscription(requests.transport, queue, no_ack, exclusive, arguments, tag)

    async def begin(self, subscription: Subscription, prefetch: int | None, timeout: float | None) -> None:
        """Subscribe. NotFound for a missing queue, AccessRefused, DeadlineExceeded."""

        async def innermost(args: SubscribeArgs) -> None:
            _adjust(subscription, args)
            await self._begin(subscription, _qos(args), timeout)

        if prefetch is not None:
            self.requests.mode_changes += 1
        if subscription.position is None and self.requests.availability.topology.is_stream(subscription.queue):
            subscription.position = Position(subscription.resume, subscription.arguments)
        if self._chains.has("delivery_event"):
            subscription.deliver = _seen_by(self._chains.event("delivery_event", subscription.append), subscription)
        await self._around(innermost, subscription, prefetch, again=False)
        self.active[subscription] = None
        subscription.on_end, subscription.on_gap = self._ended, self._gap
        self.requests.availability.topology.consuming(subscription.queue)
        if subscription.finished:  # cancelled by the broker in the same turn
            self._ended(subscription)

    def _around(
        self,
        innermost: Callable[[SubscribeArgs], Awaitable[None]],
        subscription: Subscription,
        prefetch: int | None,
        again: bool,
    ) -> Awaitable[None]:
        arguments, position = subscription.arguments, subscription.position
        args = SubscribeArgs(
            subscription.queue,
            subscription.tag,
            subscription.no_ack,
            subscription.exclusive,
            position.arguments(arguments) if again and position is not None else arguments,
            prefetch,
            0,
            again,
            channel=self._channel,
        )
        return cast(Awaitable[None], self._chains.call("subscribe", innermost)(args))

    async def _begin(self, subscription: Subscription, qos: m.BasicQos | None, timeout: float | None) -> None:
        requests = self.requests
        availability = requests.availability
        seconds = seconds_of(timeout, requests.transport.timeout)
        deadline = availability.loop.time() + seconds
        request = _consume(subscription)
        while subscription.core is None:  # a loss may take it in the turn of its answer
            core = await requests.usable(request.NAME, deadline, seconds, subscription.queue)
            translated = availability.topology.translated(request)
            try:
                await subscription.subscribe(core, requests.transport, translated, qos, seconds, deadline)
            except BaseException as error:
                subscription.give_back()  # what came in the turn in which the wait for it ended
                if not isinstance(error, errors.HarebellError) or not requests.may_repeat(request, core, error):
                    raise
                subscription.core = None
                availability.check_deadline(request.NAME, deadline, seconds)

    def _ended(self, subscription: Subscription) -> None:
        if subscription in self.active:
            del self.active[subscription]
            reason = subscription.reason
            again = reason is not None and subscription.resubscribing
            self.requests.availability.topology.consumer_gone(subscription.queue, comes_back=again)
            if reason is not None:
                self._emit(e.ConsumerEnded(subscription.queue, subscription.tag, reason, again))

    def _gap(self, subscription: Subscription, expected: int, came: int) -> None:
        self._emit(e.StreamGap(subscription.queue, subscription.tag, expected, came))

    async def cancel(self, subscription: Subscription, requeue: bool, timeout: float | None) -> None:
        """End it; what was not taken goes back to the queue, or is left to be taken, as what still comes is."""
        requests = self.requests
        seconds = seconds_of(timeout, requests.transport.timeout)
        core, transport, consumer = requests.core, requests.transport, subscription.core
        if consumer is None or core.reason is not None or consumer.cancelling:
            subscription.ended(None)
            return
        if not consumer.answered:  # it is being restored
            core.cancel_unanswered(consumer)
            subscription.ended(None)
            return
        slot = requests.slot(m.BasicCancel(subscription.tag))
        core.cancel(slot, consumer, requeue=requeue)
        if requeue:
            subscription.give_back()
            subscription.ended(None)
        try:
            await transport.reply(slot, seconds, core.abandon)
        except errors.HarebellError:
            if core.reason is None:
                raise  # on a wire channel that is gone it is cancelled, too
        finally:
            subscription.ended(None)

    def abandon(self, subscription: Subscription) -> None:
        """End it without waiting for the answer."""
        core = self.requests.core
        if subscription.core is not None:
            core.cancel_unanswered(subscription.core)
        subscription.give_back()
        subscription.ended(None)

    def end(self, reason: errors.HarebellError | None) -> None:
        """The channel is closed for good; None: by the program."""
        for subscription in list(self.active):
            subscription.ended(None if reason is None else copy_of(reason))

    # -- coming back -------------------------------------------------------------------------------------------------

    async def restore(self, core: ChannelCore, transport: AsyncCore, skipped: list[e.Skipped], late: Late) -> None:
        """Begin all of them on this wire channel, but for those of late queues.

        skipped, late  consumers that the broker refuses, and further queues that are late, are added
        """
        for subscription in list(self.active):
            if subscription.queue not in late and not subscription.finished:
                await self._restore(subscription, core, transport, skipped, late)

    async def _restore(
        self,
        subscription: Subscription,
        core: ChannelCore,
        transport: AsyncCore,
        skipped: list[e.Skipped],
        late: Late,
    ) -> None:
        async def innermost(args: SubscribeArgs) -> None:
            _adjust(subscription, args)
            request = self.requests.availability.topology.translated(_consume(subscription))
            seconds = transport.timeout
            await subscription.subscribe(core, transport, request, _qos(args), seconds, transport.loop.time() + seconds)

        try:
            await self._around(innermost, subscription, None, again=True)
            if subscription.position is not None:
                offset = (subscription.arguments or {}).get(OFFSET)
                self._emit(e.StreamResumed(subscription.queue, subscription.tag, offset))
        except errors.ChannelError as error:
            if transport.reason is None:
                if self._comes_later(subscription, error):
                    late[subscription.queue] = error
                    self._emit(e.ConsumerWaiting(subscription.queue, subscription.tag, error))
                else:
                    skipped.append(e.Skipped(f"consumer {subscription.tag!r} of queue {subscription.queue!r}", error))
                    subscription.ended(error)
            raise

    def _comes_later(self, subscription: Subscription, error: errors.ChannelError) -> bool:
        """Whether the broker refuses it only until it has closed the lost connection."""
        topology = self.requests.availability.topology
        match error:
            case errors.ResourceLocked():
                return topology.has_exclusive(subscription.queue)
            case errors.NotFound():
                return topology.may_have_gone(subscription.queue)
            case errors.AccessRefused():
                return subscription.exclusive and "exclusive use" in error.detail  # both brokers' words
        return False

    @property
    def interrupted(self) -> set[str]:
        """The queues whose subscriptions are not restored yet."""
        return {subscription.queue for subscription in self.active if subscription.core is None}

    async def resume(self, queue: str, late: Late) -> None:
        """The queue is available again: restore its subscriptions. It may prove to be late once more."""
        for subscription in list(self.active):
            core, transport = self.requests.core, self.requests.transport
            if subscription.queue == queue and subscription.core is None and core.reason is None and core.ready:
                try:
                    await self._restore(subscription, core, transport, [], late)
                except errors.ChannelError:
                    return  # the channel is opened again, and reports what it could not restore


def _seen_by(relay: Callable[[Delivery], None], subscription: Subscription) -> Callable[[Delivery], None]:
    """What takes deliveries where middlewares see each one as it comes."""

    def deliver(delivery: Delivery) -> None:
        if subscription.arrived is not None:
            subscription.arrived(delivery.delivery_tag)
        relay(delivery)

    return deliver


def _adjust(subscription: Subscription, args: SubscribeArgs) -> None:
    """Give it what the middlewares have made of it."""
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
