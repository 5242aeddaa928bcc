"""What a reconnect has opened, for the middlewares around it.

It becomes the connection's transport, or the channel's, once everything is back. No calls of the program's go through
it before that; the requests made here do.
"""

from __future__ import annotations

from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import Reply
from harebell.client.events import Skipped
from harebell.client.recovery.recorded_topology import Late
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import Table, methods as m

__all__ = ["WireChannel", "WireConnection"]


class WireConnection:
    """A connection that was just opened again.

    skipped  what could not be put back so far; a middleware that puts something back adds to it
    late     queues that the broker keeps for the dead connection, or buries with it: their consumers have to wait
    """

    def __init__(self, core: AsyncCore) -> None:
        self.core = core
        self.skipped: list[Skipped] = []
        self.late: Late = {}

    @property
    def peer(self) -> str:
        return self.core.parameters.peer

    @property
    def server_properties(self) -> Table:
        return self.core.handshake.server_properties


class WireChannel:
    """A channel that was just opened again; `skipped` as above."""

    def __init__(self, core: ChannelCore, connection: AsyncCore) -> None:
        self.core = core
        self.connection = connection
        self.skipped: list[Skipped] = []

    @property
    def number(self) -> int:
        return self.core.number

    async def request(self, method: m.Method) -> Reply:
        """The broker's answer to this method. Raises what the broker said: then the channel is opened once more."""
        slot = FutureSlot(method, self.connection.loop.create_future())
        self.core.request(slot)
        return await self.connection.reply(slot, None)
