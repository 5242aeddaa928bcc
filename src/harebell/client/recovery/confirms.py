"""The feature "confirms": a channel whose publications are confirmed comes back that way.

They are from the moment that confirm.select was written, so a call that was cut or given up later counts as well.

Without it a channel that has come back does not confirm, and `publish` there waits for nothing, until the program calls
`confirm_select` again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harebell.client.middleware.hooks import ChannelReconnectArgs
from harebell.client.middleware.transports import WireChannel
from harebell.protocol.v091 import methods as m

__all__ = ["Confirms"]


class Confirms:
    """Whether the publications of one channel are confirmed."""

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire = await call_next(args)
        if args.channel.requests.confirming:
            await wire.request(m.ConfirmSelect())
        return wire
