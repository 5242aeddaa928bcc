"""Reads the queues of this process's own process-local channels. In the I/O thread.

Each queue has one consumer as long as the layer is open. Deliveries are acknowledged on receipt and put into mailboxes
of bounded size: a channel without a reader fills its own mailbox and delays no other. A delivery is
- for one channel, which its header names (sent to that channel),
- for the members of a group (through the groups' exchange; `members` knows them), or
- a control message of another layer (`controls`).

On each new link the queues are read again, after the control messages that waited: those may end memberships, and end
them before any later message is looked at. A queue that the broker has deleted meanwhile is declared again, and bound
to the groups that have members now; so is one that the sender of a message has declared in its place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from harebell import errors
from harebell.channels.links.batch import Part, Publish
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link, bind
from harebell.channels.local_members import LocalMembers
from harebell.channels.messages.controls import CONTROL_HEADER, Controls
from harebell.channels.messages.mailbox import MailboxEntry
from harebell.channels.messages.mailboxes import Mailboxes
from harebell.channels.messages.publishing import CHANNEL_HEADER, ID_HEADER
from harebell.channels.settings import explained
from harebell.client.callbacks import call_contained
from harebell.client.channel import Channel
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery, Message

__all__ = ["ABANDONED", "LocalQueueReader"]

logger = logging.getLogger("harebell.channels")

ACK_EVERY: Final = 500  # messages
ACK_SECONDS: Final = 0.02  # at most so late: no caller waits for it, and one ack for several deliveries costs less
ABANDONED: Final = 10  # expiries without a reader after which a channel whose messages expire leaves its groups
BOUND_AT_ONCE: Final = 200  # groups in one batch
STRAY_SECONDS: Final = 10.0  # between two attempts to end the messages of a group without members


class LocalQueueReader:
    """The consumers of the process's queues; puts their deliveries into mailboxes.

    on_missed    called with a channel whose message was dropped
    on_full      called with a channel that is full, and the id of a message that it was sent
    on_own       called with a channel that has got a message of this process
    bindings     the requests that bind a queue to groups
    on_stray     called with a group and a process queue that gets its messages, and has no member in it
    on_abandoned called with a channel that no reader has read for long, and the groups that it leaves
    """

    def __init__(
        self, connection: LayerConnection, boxes: Mailboxes, members: LocalMembers, controls: Controls
    ) -> None:
        self._connection = connection
        self._boxes = boxes
        self._members = members
        self._controls = controls
        self._queues: dict[str, asyncio.Task[None] | None] = {}  # of reading it first; None: it is read
        self._complained = False
        self._strays: dict[tuple[str, str], float] = {}
        self.on_missed: Callable[[str], None] | None = None
        self.on_full: Callable[[str, object], None] = lambda channel, sent: None
        self.on_own: Callable[[str], None] = lambda channel: None
        self.bindings: Callable[[str, Sequence[str]], list[Part]]
        self.on_bound: Callable[[str, Sequence[str]], None]
        self.on_stray: Callable[[str, str], None]
        self.on_abandoned: Callable[[str, list[str]], None]
        self.received = 0
        connection.on_link.append(self._restore)

    # -- the consumers -----------------------------------------------------------------------------------------------

    async def ensure(self, process: str) -> None:
        """Read the queue of all channels whose names begin with `process`, which ends with "!"."""
        if self.reads(process):
            return
        task = self._queues.get(process)
        if task is None:
            task = self._queues[process] = self._connection.thread.share(self._begin(process))
        await asyncio.shield(task)

    @property
    def processes(self) -> list[str]:
        """The names of the queues that are read."""
        return [process for process in list(self._queues) if self.reads(process)]

    def reads(self, process: str) -> bool:
        """Whether the process queue is read, or will be once there is a connection; for any thread."""
        return self._queues.get(process, False) is None

    async def _begin(self, process: str) -> None:
        try:
            await self._controls.ensure()
            await self._connection.over_links(lambda link: self._consume(link, process))
        except BaseException as error:
            if self._queues.get(process) is asyncio.current_task():  # the next caller begins anew
                del self._queues[process]
            if isinstance(error, errors.PreconditionFailed):
                raise explained(error) from error
            raise
        self._queues[process] = None

    async def _restore(self, link: Link) -> None:
        for process, task in list(self._queues.items()):
            if task is None:
                await self._consume(link, process)

    async def _consume(self, link: Link, process: str) -> None:
        """Read the queue on this link; bind it first when it is new."""
        connection, names, queue = self._connection, self._connection.names, self._connection.names.queue(process)
        # The queue that this process has declared has a binding that no other process makes.
        mark = f":{process}"
        probe = Message(b"", headers={CONTROL_HEADER: "probe"})
        found = self._queues.get(process) is None and await link.ask(
            [Publish(probe, names.groups, mark, mandatory=True)]
        )
        if not found or not found[0]:
            await link.ask([*connection.queue_declaration(link, process), bind(queue, names.groups, mark)])
            groups = self._members.unbound(process)
            for first in range(0, len(groups), BOUND_AT_ONCE):
                some = groups[first : first + BOUND_AT_ONCE]
                await link.ask(self.bindings(process, some))
                self.on_bound(process, some)
        connection.declared(process)
        channel = await link.channel()
        consumer = channel.consume(queue)
        await consumer.start()
        connection.thread.start(self._read(link, process, channel, consumer))

    async def _read(self, link: Link, process: str, channel: Channel, deliveries: Consumer) -> None:
        acks, connection = _Acks(self._connection, channel), self._connection
        try:
            async for delivery in deliveries:
                try:
                    self._take(process, delivery)
                except Exception:
                    logger.exception("a message of %s cannot be understood", process)
                acks.took(delivery.delivery_tag)
        except errors.HarebellError:
            pass  # the link is lost, or the queue was deleted
        connection.undeclared(process)
        while link.is_open and not connection.closed:
            try:
                await self._consume(link, process)
                return
            except errors.HarebellError as error:
                if link.is_open and not connection.closed:
                    told = explained(error) if isinstance(error, errors.PreconditionFailed) else error
                    logger.warning("reading %s: %s", process, told)
                    await asyncio.sleep(0.5)

    # -- deliveries --------------------------------------------------------------------------------------------------

    def _take(self, process: str, delivery: Delivery) -> None:
        self.received += 1
        connection, headers = self._connection, delivery.headers
        if CONTROL_HEADER in headers:
            self._controls.hear(process, delivery)
            return
        sent = headers.get(ID_HEADER)
        if delivery.exchange == connection.names.groups:
            if connection.is_new(sent, process):
                self._fan_out(process, delivery)
            return
        local = headers.get(CHANNEL_HEADER)
        if not isinstance(local, str):
            logger.warning("a message to %s names no channel: it was dropped", process)
        elif connection.is_new(sent, process):
            channel, expires = process + local, time.monotonic() + connection.settings.expiry
            if not self._boxes.put(channel, MailboxEntry(channel, delivery.body, expires), surplus=True):
                self._missed(channel)
            if isinstance(sent, str) and sent.startswith(connection.client_id):
                self.on_own(channel)
            elif self._boxes.of(channel).full:
                self.on_full(channel, sent)

    def _fan_out(self, process: str, delivery: Delivery) -> None:
        now, group, body = time.monotonic(), delivery.routing_key, delivery.body
        expires = now + self._connection.settings.expiry
        put, found = self._boxes.put, False
        for channel in self._members.of(group, now):
            if channel.startswith(process):
                found = True
                if not put(channel, MailboxEntry(channel, body, expires)):
                    self._missed(channel)
        if not found and now - self._strays.get((group, process), -STRAY_SECONDS) >= STRAY_SECONDS:
            if len(self._strays) > 1000:
                self._strays.clear()
            self._strays[group, process] = now
            self.on_stray(group, process)

    def _missed(self, channel: str) -> None:
        if self.on_missed is None:
            return
        try:
            call_contained(self.on_missed, channel)
        except Exception:
            if not self._complained:  # of a program's own function: what it is told goes on
                self._complained = True
                logger.exception("on_missed failed for %s; this is logged once", channel)

    def sweep(self, now: float) -> None:
        """Drop expired entries and mailboxes without a reader; abandoned channels leave their groups."""
        self._boxes.sweep(now, self._expired)

    def _expired(self, channel: str, dropped: int, abandoned: bool) -> None:
        if dropped:
            self._missed(channel)
        if abandoned:
            groups = self._members.groups_of(channel)
            if groups and dropped:
                self.on_abandoned(channel, groups)
            elif not groups:
                self._boxes.forget(channel, time.monotonic())


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
