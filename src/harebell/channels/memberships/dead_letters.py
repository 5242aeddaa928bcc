"""Ends memberships by the broker's dead letters. In the I/O thread.

All layers consume one queue of dead letters; each letter goes to one of them, and names the queue where it died:
- a marker, expired: that membership was not added again within the group's expiry, so it ends; unless the marker's
  queue holds a marker again (a dead letter may be older than the present marker);
- a marker, replaced by the next one: nothing follows;
- a message in a channel's queue, expired: its reader is gone, so the channel leaves all its groups; unless the queue
  has a consumer, because then the reader is only slow, or the channel was added to a group after the message was sent.
  Process-local channels of a `ChannelLayer` are left to their owner: the process looks for abandoned ones itself.
A letter is acknowledged when all that is done; if the process dies before that, another layer handles the letter. A
letter that cannot be handled is logged and dropped, so that it does not stop the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime
from typing import cast

from harebell import errors
from harebell.channels.links.batch import Publish
from harebell.channels.links.connection import LOST, LayerConnection
from harebell.channels.links.link import Link
from harebell.channels.memberships.groups import Groups
from harebell.channels.messages.controls import CONTROL_HEADER
from harebell.channels.messages.publishing import CHANNEL_HEADER, ID_HEADER, sent_us_of
from harebell.channels.names import is_local, owner_of
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery, Message
from harebell.protocol.v091 import Table

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
        connection.on_link.append(self._start)

    async def _start(self, link: Link) -> None:
        channel = await link.channel()
        consumer = channel.consume(self._connection.names.dead_letters, prefetch=50)
        await consumer.start()
        self._connection.thread.start(self._listen(link, consumer))

    async def _listen(self, link: Link, consumer: Consumer) -> None:
        connection = self._connection
        try:
            async for delivery in consumer:
                try:
                    await self._handle(delivery)
                except LOST:
                    if not link.is_open:
                        return  # another layer gets the letter
                    logger.warning("a dead letter could not be handled in time, and is dropped")
                except Exception as error:
                    logger.warning("a dead letter could not be handled, and is dropped: %s", error)
                delivery.ack()
        except errors.HarebellError as error:
            if link.is_open and not connection.closed:
                logger.warning("listening to dead letters: %s", error)
                await asyncio.sleep(0.5)
                link.end()  # the queue was deleted: all is declared again on the next link

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
            if await self._groups.end(*marked):
                await self._note(delivery)
            return
        channel = names.channel_of("queue", queue) or names.channel_of("member", queue) or ""
        if not channel or CONTROL_HEADER in headers:
            return
        if is_local(channel):
            local = headers.get(CHANNEL_HEADER)
            if isinstance(local, str):
                channel += local
            elif channel.endswith("!"):
                return
            if owner_of(channel) is not None:
                return
        info = await self._connection.over_links(lambda link: link.queue(names.queue(channel)))
        if info is None or not info.consumer_count:
            await self._groups.leave_all(channel, self._sent_us(headers))

    def _sent_us(self, headers: Table) -> int:
        """When the message was sent, in microseconds since 1970."""
        sent = sent_us_of(headers.get(ID_HEADER))
        if sent is not None:
            return sent
        deaths = headers.get("x-death")  # it is another program's: it died one expiry later, to the second
        died = cast(Table, deaths[0]).get("time") if isinstance(deaths, list) and deaths else None
        seconds = died.timestamp() if isinstance(died, datetime) else 0.0
        return int((seconds - self._connection.settings.expiry) * 1e6)

    async def _note(self, delivery: Delivery) -> None:
        """Have the membership that has expired listed by `harebell channels dropped`."""
        message = Message(b"", headers=delivery.headers)
        names = self._connection.names
        await self._connection.over_links(lambda link: link.ask([Publish(message, "", names.dropped)]))
