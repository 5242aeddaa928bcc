"""What died on the broker, and what follows from it: memberships end. In the I/O thread.

Every layer listens to one queue of dead letters; each letter goes to one of them. It says from which queue it came:
- a marker, expired: nobody has asked for that membership for the group's expiry, so it ends; unless somebody has asked
  meanwhile, which a look at the marker's queue tells (a letter may be older than the marker that stands there now);
- a marker, pushed out by the next one: nothing;
- a channel's queue, expired: its reader is gone, so the channel leaves all its groups; unless the queue has a consumer,
  for then its reader lives and was slow.
A letter is acknowledged when all that is done; if the layer dies on the way, another one does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from harebell import errors
from harebell.channels.connection import Core
from harebell.channels.groups import Groups
from harebell.channels.names import is_local
from harebell.channels.publishing import CHANNEL_HEADER
from harebell.client.messages import Delivery

__all__ = ["DeadLetters"]

logger = logging.getLogger("harebell.channels")


class DeadLetters:
    """The listener of one layer.

    counted  how many letters it took, by reason: "expired", "maxlen"...
    """

    def __init__(self, core: Core, groups: Groups) -> None:
        self._core = core
        self._groups = groups
        self.counted: Counter[str] = Counter()

    def start(self, core: Core) -> None:
        core.thread.start(self._listen())

    async def _listen(self) -> None:
        core = self._core
        while not core.closed:
            try:
                async with core.connection.channel() as channel:
                    await channel.queue_declare(
                        core.names.dead_letters, durable=True, arguments=core.settings.dead_letter_arguments()
                    )
                    await channel.queue_bind(core.names.dead_letters, core.names.dead_letters)
                    async for delivery in channel.consume(core.names.dead_letters, prefetch=50):
                        try:
                            await self._handle(delivery)
                            delivery.ack()
                        except errors.AcknowledgeOrphans:
                            pass  # another one gets it
            except errors.HarebellError as error:
                if core.closed:
                    return
                logger.warning("listening to dead letters: %s", error)
                await asyncio.sleep(0.5)

    async def _handle(self, delivery: Delivery) -> None:
        headers, names = delivery.headers, self._core.names
        queue, reason = headers.get("x-first-death-queue"), headers.get("x-first-death-reason")
        if not isinstance(queue, str) or not isinstance(reason, str):
            return  # somebody's own message
        self.counted[reason] += 1
        if reason != "expired":
            return
        marked = names.marked(queue)
        if marked is not None:
            group, channel = marked
            if not await self._stands(queue):
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

    async def _stands(self, marker: str) -> bool:
        """Whether a marker is there again."""
        core = self._core
        arguments = core.settings.marker_arguments(core.names)
        info = await core.declaring.queue_declare(marker, durable=True, arguments=arguments)
        if not info.message_count:
            await core.declaring.queue_delete(marker, if_empty=True)
        return info.message_count > 0

    async def _has_reader(self, queue: str, channel: str) -> bool:
        core = self._core
        arguments = core.settings.queue_arguments(core.names, channel, core.on_harebell)
        info = await core.declaring.queue_declare(queue, durable=True, arguments=arguments)
        return info.consumer_count > 0
