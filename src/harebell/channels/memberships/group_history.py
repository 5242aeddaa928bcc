"""The last messages of a group, for members that join later: a stream queue behind its exchange. In the I/O thread.

Only for groups that match the setting `group_history`. A reader publishes a marker to the stream and reads from the
oldest stored message to that marker, so that it ends exactly there, also on brokers that do not tell a stream's length.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from typing import Final

from harebell import errors
from harebell.channels.links.batch import Part, Publish
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link, bind, bind_exchange, declare_exchange, declare_queue
from harebell.channels.messages.controls import CONTROL_HEADER
from harebell.client.messages import Message
from harebell.protocol.v091 import Table, methods as m

__all__ = ["GroupHistory"]

KEPT_BYTES: Final = 5_000_000  # stored of each group, at least; a stream drops whole segments
SEGMENT_BYTES: Final = 500_000
PREFETCH: Final = 1000


class GroupHistory:
    """Stores and reads the messages of groups; `known` are the groups whose stream queue is declared."""

    def __init__(self, connection: LayerConnection) -> None:
        self._connection = connection
        self.known: set[str] = set()

    def keeps(self, group: str) -> bool:
        """Whether the messages of a group are stored."""
        return self._connection.settings.history.of(group) > 0

    async def ensure(self, group: str) -> None:
        """Declare the group's stream queue: its messages are stored from now on."""
        connection, names = self._connection, self._connection.names
        if group in self.known:
            return
        arguments: Table = {
            "x-queue-type": "stream",
            "x-max-length-bytes": KEPT_BYTES,
            "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
        }
        parts: list[Part] = [
            declare_exchange(names.group(group), "fanout", auto_delete=True),
            declare_queue(names.history(group), arguments),
            bind(names.history(group), names.group(group)),
            bind_exchange(names.group(group), names.groups, group),
        ]
        await connection.over_links(lambda link: link.ask(parts))
        self.known.add(group)

    async def forget(self) -> None:
        """Delete what is stored of the groups that this layer has written to or read."""
        known, self.known = list(self.known), set()
        names = self._connection.names
        for group in known:
            part = m.QueueDelete(names.history(group))
            await self._connection.over_links(lambda link, part=part: link.ask([part]))  # type: ignore[misc]

    async def read(self, group: str, seconds: float) -> list[bytes]:
        """The bodies of the group's last messages, the oldest first, as many as the setting says."""
        connection = self._connection
        await self.ensure(group)
        queue, marker = connection.names.history(group), uuid.uuid4().hex
        found: deque[bytes] = deque(maxlen=connection.settings.history.of(group))
        end = Message(b"", headers={CONTROL_HEADER: marker})

        async def ask(link: Link) -> bool:
            found.clear()
            await link.ask([Publish(end, "", queue)])
            async with link.client.channel() as channel:
                consumer = channel.consume(queue, prefetch=PREFETCH, arguments={"x-stream-offset": "first"})
                async for delivery in consumer:
                    delivery.ack()
                    word = delivery.headers.get(CONTROL_HEADER)
                    if word == marker:
                        return True
                    if word is None:
                        found.append(delivery.body)
            return False

        try:
            async with asyncio.timeout(seconds):
                if await connection.over_links(ask):
                    return list(found)
        except TimeoutError:
            pass
        raise errors.DeadlineExceeded(f"the history of group {group!r} could not be read within {seconds:g} s")
