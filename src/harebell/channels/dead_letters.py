"""Ends memberships by the broker's dead letters. In the I/O thread.

All layers consume one queue of dead letters; each letter goes to one of them, and names the queue where it died:
- a marker, expired: that membership was not added again within the group's expiry, so it ends; unless the marker's
  queue holds a marker again (a dead letter may be older than the present marker);
- a marker, replaced by the next one: nothing follows;
- a channel's queue, expired: its reader is gone, so the channel leaves all its groups; unless the queue has a consumer,
  because then the reader is only slow.
A letter is acknowledged when all that is done; if the process dies before that, another layer handles the letter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from harebell import errors
from harebell.channels.connection import LayerConnection
from harebell.channels.groups import Groups
from harebell.channels.names import is_local
from harebell.channels.publishing import CHANNEL_HEADER
from harebell.client.messages import Delivery

__all__ = ["DeadLetters"]

logger = logging.getLogger("harebell.channels")


class DeadLetters:
    """Handles the dead letters that one layer gets.

    counted  how many letters it handled, by reason: "expired", "maxlen"...
    """

    def __init__(self, connection: LayerConnection, groups: Groups) -> None:
        self._connection = connection
        self._groups = groups
        self.counted: Counter[str] = Counter()

    def start(self, connection: LayerConnection) -> None:
        connection.thread.start(self._listen())

    async def _listen(self) -> None:
        connection = self._connection
        while not connection.closed:
            try:
                async with connection.client.channel() as channel:
                    await channel.queue_declare(
                        connection.names.dead_letters,
                        durable=True,
                        arguments=connection.settings.dead_letter_arguments(),
                    )
                    await channel.queue_bind(connection.names.dead_letters, connection.names.dead_letters)
                    async for delivery in channel.consume(connection.names.dead_letters, prefetch=50):
                        try:
                            await self._handle(delivery)
                            delivery.ack()
                        except errors.AcknowledgeOrphans:
                            pass  # another layer gets the letter
            except errors.HarebellError as error:
                if connection.closed:
                    return
                logger.warning("listening to dead letters: %s", error)
                await asyncio.sleep(0.5)

    async def _handle(self, delivery: Delivery) -> None:
        headers, names = delivery.headers, self._connection.names
        queue, reason = headers.get("x-first-death-queue"), headers.get("x-first-death-reason")
        if not isinstance(queue, str) or not isinstance(reason, str):
            return  # not a dead letter: a program published it to this queue
        self.counted[reason] += 1
        if reason != "expired":
            return
        marked = names.marked(queue)
        if marked is not None:
            group, channel = marked
            if not await self._has_marker(queue):
                await self._groups.discard(group, channel)
            return
        channel = names.channel_of("queue", queue) or ""
        if not channel or await self._has_reader(queue, channel):
            return
        if is_local(channel):
            local = headers.get(CHANNEL_HEADER)
            if not isinstance(local, str):
                return
            channel += local
        await self._groups.leave_all(channel)

    async def _has_marker(self, marker: str) -> bool:
        """Whether the marker's queue holds a marker now."""
        connection = self._connection
        arguments = connection.settings.marker_arguments(connection.names)
        info = await connection.declaring.queue_declare(marker, durable=True, arguments=arguments)
        if not info.message_count:
            await connection.declaring.queue_delete(marker, if_empty=True)
        return info.message_count > 0

    async def _has_reader(self, queue: str, channel: str) -> bool:
        connection = self._connection
        arguments = connection.settings.queue_arguments(connection.names, channel, connection.on_harebell)
        info = await connection.declaring.queue_declare(queue, durable=True, arguments=arguments)
        return info.consumer_count > 0
