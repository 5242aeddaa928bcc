"""The feature "flow": a channel whose deliveries were held back (`flow(False)`) comes back that way.

Without it deliveries go on after a reconnect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harebell.client.middleware.hooks import ChannelReconnectArgs, FlowArgs
from harebell.client.middleware.transports import WireChannel
from harebell.protocol.v091 import methods as m

__all__ = ["Flow"]


class Flow:
    """Whether the deliveries of one channel flow."""

    def __init__(self) -> None:
        self.active = True

    async def flow(self, call_next: Callable[[FlowArgs], Awaitable[None]], args: FlowArgs) -> None:
        await call_next(args)
        self.active = args.active

    async def channel_reconnect(
        self, call_next: Callable[[ChannelReconnectArgs], Awaitable[WireChannel]], args: ChannelReconnectArgs
    ) -> WireChannel:
        wire = await call_next(args)
        if not self.active:
            await wire.request(m.ChannelFlow(False))
        return wire
