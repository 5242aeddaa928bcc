"""What a reconnect has opened, for the middlewares around it.

It becomes the connection's transport, or the channel's, once everything is restored. No calls of the program go through
it before that; the requests made here do.
"""

from __future__ import annotations

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import Reply
from harebell.client.events import Skipped
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.protocol.v091 import Table, methods as m

__all__ = ["WireChannel", "WireConnection"]


class WireConnection:
    """A connection that was just opened again.

    skipped  what could not be restored so far; a middleware that restores something adds to it
    late     queues that are unavailable until the broker has closed the lost connection, each with the error that it
             gave: their consumers have to wait
    """

    def __init__(self, core: AsyncCore) -> None:
        self.core = core
        self.skipped: list[Skipped] = []
        self.late: dict[str, errors.HarebellError] = {}

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
