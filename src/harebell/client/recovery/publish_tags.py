"""The feature "publish_tags": publish tags go on over a reconnect, and what a loss left unconfirmed is orphaned.

The numbers themselves are in `core.unconfirmed`, which the hot path writes; this hands that table on.

Without it the tags of each wire channel begin at 1, a loss fails the publications that wait with its own error
(ConnectionLost, no PublishOrphaned), `on_orphan` has nothing to do, and `confirmations` says nothing about them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from harebell import errors
from harebell.client.middleware.hooks import ChannelReconnectArgs, DisconnectEvent, HookedChannel
from harebell.client.middleware.transports import WireChannel

__all__ = ["PublishTags"]


class PublishTags:
    """The publish tags of one channel."""

    def disconnect_event(self, call_next: Callable[[DisconnectEvent], None], event: DisconnectEvent) -> None:
        # An error that the broker closed the channel with answers for what was published: that is no orphan.
        if event.reconnecting and not isinstance(event.error, errors.ChannelError):
            cast(HookedChannel, event.source).core.publishes.orphan()  # it is made for one channel
        call_next(event)

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        return await call_next(replace(args, publishes=args.channel.core.publishes))
