"""The feature "qos": prefetch limits that outlast a reconnect, the channel's and that of each consumer.

Without it a channel that has come back has no limits, and its consumers are sent all that the queue holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from harebell.client.middleware.hooks import ChannelReconnectArgs, QosArgs, SubscribeArgs
from harebell.client.middleware.transports import WireChannel
from harebell.protocol.v091 import methods as m

__all__ = ["Qos"]

NO_LIMIT: Final = m.BasicQos(0, 0)  # what a fresh channel has
SPARE: Final = 16  # consumers that have ended and are still remembered, before these are looked for


class Qos:
    """The limits of one channel.

    each    basic.qos for later consumers
    whole   basic.qos with global_: for the channel
    """

    def __init__(self) -> None:
        self.each = self.whole = NO_LIMIT
        self._consumers: dict[str, m.BasicQos] = {}  # what limited each when it was first made
        self._wire: WireChannel | None = None

    async def qos(self, call_next: Callable[[QosArgs], Awaitable[None]], args: QosArgs) -> None:
        await call_next(args)
        limit = m.BasicQos(args.prefetch_size, args.prefetch_count, args.global_)
        if args.global_:
            self.whole = limit
        else:
            self.each = limit

    async def subscribe(self, call_next: Callable[[SubscribeArgs], Awaitable[None]], args: SubscribeArgs) -> None:
        if not args.again:
            await call_next(args)
            if args.prefetch is not None:
                self.each = m.BasicQos(args.prefetch_size, args.prefetch)
            self._consumers[args.consumer_tag] = self.each
            self._forget_ended(args)
            return
        own = self._consumers.get(args.consumer_tag, self.each)
        if own == self.each:
            await call_next(args)
            return
        await call_next(replace(args, prefetch=own.prefetch_count, prefetch_size=own.prefetch_size))
        if self._wire is not None:
            await self._limit(self._wire, self.each, even_none=True)

    def _forget_ended(self, args: SubscribeArgs) -> None:
        alive = args.channel.consumer_tags
        if len(self._consumers) > 2 * len(alive) + SPARE:
            alive.add(args.consumer_tag)
            self._consumers = {tag: limit for tag, limit in self._consumers.items() if tag in alive}

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire = self._wire = await call_next(args)
        await self._limit(wire, self.each)
        return wire

    async def _limit(self, wire: WireChannel, each: m.BasicQos, *, even_none: bool = False) -> None:
        if even_none or each != NO_LIMIT:
            await wire.request(each)
        if self.whole != NO_LIMIT:
            await wire.request(self.whole)  # RabbitMQ's 0 for consumers lifts this one too: it comes after
