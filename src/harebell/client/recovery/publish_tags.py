"""The feature "publish_tags": publish tags go on over a reconnect.

The numbers themselves are in `core.unconfirmed`, which the hot path writes; this hands that table on. Without it the
tags of each wire channel begin at 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from harebell.client.middleware.hooks import ChannelReconnectArgs
from harebell.client.middleware.transports import WireChannel

__all__ = ["PublishTags"]


class PublishTags:
    """The publish tags of one channel."""

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        return await call_next(replace(args, publishes=args.channel.core.publishes))
