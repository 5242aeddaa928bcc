"""Reads the queues of this process's own process-local channels. In the I/O thread.

Each queue has one consumer as long as the layer is open. Deliveries are acknowledged on receipt and put into mailboxes
of bounded size: a channel without a reader fills its own mailbox and delays no other. A delivery is
- for one channel, which its header names (sent to that channel),
- for the members of a group (through the groups' exchange; `members` knows them),
- for one channel that another process has added to a group: the broker dead-lettered it from the member queue of that
  channel, which it names (x-first-death-queue), or
- a control message of another layer: the end of a membership, or a question (`presence`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, cast

from harebell import errors
from harebell.channels.connection import LayerConnection
from harebell.channels.local_members import LocalMembers
from harebell.channels.mailbox import MailboxEntry
from harebell.channels.mailboxes import Mailboxes
from harebell.channels.publishing import CHANNEL_HEADER, CONTROL_HEADER, GROUP_HEADER, ID_HEADER
from harebell.client.channel import Channel
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery
from harebell.protocol.v091 import Table

__all__ = ["LocalQueueReader"]

logger = logging.getLogger("harebell.channels")

# Handles a control message of another layer: the process queue it came to, its headers, body and reply_to.
Control = Callable[[str, Table, bytes, str], None]

ACK_EVERY: Final = 500  # messages
ACK_SECONDS: Final = 0.02  # at most so late: no caller waits for it, and one ack for several deliveries costs less
ABANDONED: Final = 10  # expiries without a reader after which a channel whose messages expire leaves its groups


class LocalQueueReader:
    """The consumers of the process's queues; puts their deliveries into mailboxes.

    on_missed  called with a channel whose message was dropped
    """

    def __init__(self, connection: LayerConnection, boxes: Mailboxes, members: LocalMembers) -> None:
        self._connection = connection
        self._boxes = boxes
        self._members = members
        self._reading: dict[str, asyncio.Task[None]] = {}
        self.on_missed: Callable[[str], None] | None = None
        self.on_control: dict[str, Control] = {"discard": self._discard}
        self.received = 0

    async def ensure(self, process: str) -> None:
        """Read the queue of all channels whose names begin with `process`, which ends with "!"."""
        task = self._reading.get(process)
        if task is None:
            task = self._reading[process] = self._connection.thread.loop.create_task(self._begin(process))
        try:
            await asyncio.shield(task)
        except Exception:
            if self._reading.get(process) is task:
                del self._reading[process]
            raise

    def reads(self, process: str) -> bool:
        """Whether the process queue has its consumer; for any thread."""
        task = self._reading.get(process)
        return task is not None and task.done() and not task.cancelled() and task.exception() is None

    async def _begin(self, process: str) -> None:
        connection = self._connection
        await connection.ready()
        await connection.declare(process)
        channel = await connection.client.channel()
        consumer = channel.consume(connection.names.queue(process))
        await consumer.start()
        connection.thread.start(self._read(process, channel, consumer))

    async def _read(self, process: str, channel: Channel, deliveries: Consumer) -> None:
        acks = _Acks(self._connection, channel)
        while not self._connection.closed:
            try:
                async for delivery in deliveries:
                    try:
                        self._take(process, delivery)
                    except Exception:
                        logger.exception("a message of %s cannot be understood", process)
                    acks.took(delivery.delivery_tag)
            except errors.ConsumerCancelled:
                pass  # the queue was deleted
            except errors.HarebellError as error:
                if self._connection.closed:
                    return
                logger.warning("reading %s: %s", process, error)
                await asyncio.sleep(0.1)
            if self._connection.closed:
                return
            try:
                self._connection.undeclared(process)
                await self._connection.declare(process)
                deliveries = channel.consume(self._connection.names.queue(process))
                await deliveries.start()
            except errors.HarebellError as error:
                logger.warning("reading %s: %s", process, error)
                await asyncio.sleep(0.5)

    def _take(self, process: str, delivery: Delivery) -> None:
        self.received += 1
        connection, headers = self._connection, delivery.headers
        sent, word = headers.get(ID_HEADER), headers.get(CONTROL_HEADER)
        if isinstance(word, str):
            control = self.on_control.get(word)
            if control is not None:
                control(process, headers, delivery.body, delivery.properties.reply_to or "")
            return
        if delivery.exchange == connection.names.groups:
            if connection.is_new(sent, process):
                self._fan_out(process, delivery)
            return
        hopped = headers.get("x-first-death-queue")
        if isinstance(hopped, str):
            channel = connection.names.channel_of("member", hopped)
            group = _first_routing_key(headers)
            if channel is None or (group is not None and self._members.contains(group, channel)):
                return  # the channel got the message by its own membership
            if connection.is_new(sent, hopped):
                self._put(channel, delivery.body)
            return
        local = headers.get(CHANNEL_HEADER)
        if not isinstance(local, str):
            logger.warning("a message to %s names no channel: it was dropped", process)
        elif connection.is_new(sent, process):
            self._put(process + local, delivery.body)

    def _discard(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        """Remove a channel of this process from a group on behalf of another process."""
        self._members.discard(str(headers.get(GROUP_HEADER)), process + str(headers.get(CHANNEL_HEADER)), process)

    def _fan_out(self, process: str, delivery: Delivery) -> None:
        members, body = self._members.of(delivery.routing_key), delivery.body
        expires = time.monotonic() + self._connection.settings.expiry
        boxes = self._boxes
        for channel in members:
            if channel.startswith(process) and not boxes.of(channel).put(MailboxEntry(channel, body, expires)):
                self._missed(channel)

    def _put(self, channel: str, body: bytes) -> None:
        entry = MailboxEntry(channel, body, time.monotonic() + self._connection.settings.expiry)
        if not self._boxes.of(channel).put(entry):
            self._missed(channel)

    def _missed(self, channel: str) -> None:
        self._boxes.dropped += 1
        if self.on_missed is not None:
            self.on_missed(channel)

    def sweep(self, now: float) -> list[tuple[str, str]]:
        """Drop expired entries and mailboxes without a reader; returns memberships that end, as (group, channel)."""
        over = self._members.expired(now)
        patience = ABANDONED * self._connection.settings.expiry
        for channel, box in self._boxes.items():
            expired = box.drop_expired(now)
            if expired:
                self._boxes.dropped += expired
                if self.on_missed is not None:
                    self.on_missed(channel)
            if box.awaited or len(box) or now - box.last_read < patience:
                continue
            groups = self._members.groups_of(channel)
            if expired:
                over += [(group, channel) for group in groups]
                groups = []
            if not groups:
                self._boxes.forget(channel, now - patience)
        return over


class _Acks:
    """Acknowledges the deliveries of one consumer, many at a time."""

    __slots__ = ("_channel", "_connection", "_count", "_due", "_tag")

    def __init__(self, connection: LayerConnection, channel: Channel) -> None:
        self._connection = connection
        self._channel = channel
        self._tag = self._count = 0
        self._due = False

    def took(self, delivery_tag: int) -> None:
        """Acknowledge this delivery, and all before it, soon."""
        self._tag = delivery_tag
        self._count += 1
        if self._count == ACK_EVERY:
            self._write()
        elif not self._due:
            self._due = True
            self._connection.thread.loop.call_later(ACK_SECONDS, self._late)

    def _late(self) -> None:
        self._due = False
        if self._count:
            self._write()

    def _write(self) -> None:
        self._count = 0
        try:
            self._channel.ack(self._tag, multiple=True)
        except (errors.AcknowledgeOrphans, errors.ChannelClosed):
            pass  # the message is delivered again and recognised, or the reader ends


def _first_routing_key(headers: object) -> str | None:
    """The first routing key of a dead-lettered message, which is its group."""
    deaths = cast(dict[str, object], headers).get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        keys = deaths[0].get("routing-keys")
        if isinstance(keys, list) and keys and isinstance(keys[0], str):
            return keys[0]
    return None
