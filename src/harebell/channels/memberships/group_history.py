"""The last messages of a group, for members that join later: a stream queue behind its exchange. In the I/O thread.

Only for groups that match the setting `group_history`. A reader publishes a marker to the stream and reads from the
oldest stored message to that marker, so that it ends exactly there, also on brokers that do not tell a stream's length.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
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
KNOWN: Final = 10_000  # groups known to have their stream; one more, and the oldest is declared again when it is used


class GroupHistory:
    """Stores and reads the messages of groups."""

    def __init__(self, connection: LayerConnection) -> None:
        self._connection = connection
        self._known: OrderedDict[str, int] = OrderedDict()  # by group: the number of the link that declared its stream

    def keeps(self, group: str) -> bool:
        """Whether the messages of a group are stored."""
        return self._connection.settings.history.of(group) > 0

    def is_declared(self, group: str) -> bool:
        """Whether the group's stream was declared over the present link. In any thread.

        The broker of another link may be another one, or one that has lost its disk.
        """
        connection = self._connection
        return connection.link is not None and self._known.get(group) == connection.links

    async def ensure(self, group: str) -> None:
        """Declare the group's stream queue: its messages are stored from now on."""
        if not self.is_declared(group):
            await self._connection.over_links(lambda link: self._declare(link, group))

    async def _declare(self, link: Link, group: str, *more: Part) -> None:
        """Declare the group's stream queue, and do more behind it."""
        names, number = self._connection.names, self._connection.links
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
        await link.ask([*parts, *more])
        self._known[group] = number
        self._known.move_to_end(group)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    async def forget(self) -> None:
        """Delete what is stored of the groups that this layer has written to or read, of the last KNOWN of them."""
        known = list(self._known)
        self._known.clear()
        names = self._connection.names
        for group in known:
            part = m.QueueDelete(names.history(group))
            await self._connection.over_links(lambda link, part=part: link.ask([part]))  # type: ignore[misc]

    async def read(self, group: str, seconds: float) -> list[bytes]:
        """The bodies of the group's last messages, the oldest first, as many as the setting says."""
        connection = self._connection
        queue, marker = connection.names.history(group), uuid.uuid4().hex
        found: deque[bytes] = deque(maxlen=connection.settings.history.of(group))
        end = Message(b"", headers={CONTROL_HEADER: marker})

        async def ask(link: Link) -> bool:
            found.clear()
            await self._declare(link, group, Publish(end, "", queue))  # also where somebody has deleted the stream
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
