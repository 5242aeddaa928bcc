"""The feature "delivery_tags": delivery tags go on over a reconnect, and an acknowledgement that is too late says so.

The numbers themselves are in `core.unacked`, which the hot path writes; this hands that table on.

Without it a program sees the tags of the wire, which begin at 1 with each wire channel, and an acknowledgement of an
earlier delivery goes to the broker on the present one: it closes the channel (406), or settles another delivery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from harebell.client.middleware.hooks import ChannelReconnectArgs
from harebell.client.middleware.transports import WireChannel

__all__ = ["DeliveryTags"]


class DeliveryTags:
    """The delivery tags of one channel."""

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        return await call_next(replace(args, deliveries=args.channel.core.deliveries))
