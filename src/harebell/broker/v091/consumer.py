"""A consumer: its window of unacknowledged messages, and the loop that turns messages into frames.

`feed` is the hottest loop of the broker after the parser: per message it does one popleft, one tuple of four cached
byte strings onto the connection's output, and, with acknowledgements, one entry in the channel's unacked table.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol, TypeAlias

from harebell.broker.clients import Channel
from harebell.broker.message import STORED_CHANNEL, Address, Given, Held, Message, to_held
from harebell.broker.queues.base import Queue
from harebell.broker.queues.consumer import OUTPUT_BYTES
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.stream_log.records import Record
from harebell.broker.v091.link import Link
from harebell.broker.vhost import VirtualHost
from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import Table
from harebell.protocol.v091.codec import END
from harebell.protocol.v091.content import stored_content
from harebell.protocol.v091.deliver import DeliverPrefixes, pack_tag
from harebell.protocol.v091.fitting import fitting_frames
from harebell.protocol.v091.large_frames import Frames
from harebell.routing.selectors import Selector

__all__ = ["UNLIMITED", "Consumer", "ConsumerChannel", "Entry", "UnackedTable"]

Entry: TypeAlias = "tuple[Queue, Consumer | None, int, Given | None]"
"""Queue, consumer (None: basic.get), position in the queue, message (None: it was browsed and stays in the queue)."""

log = logging.getLogger("harebell.broker.connection")

UNLIMITED: Final = 1 << 62  # prefetch 0: an unlimited window


class UnackedTable(Protocol):
    """Deliveries by tag. `watched` once a queue asked to be notified of each acknowledgement."""

    entries: dict[int, Entry]
    watched: bool


class ConsumerChannel(Channel, Protocol):
    """The channel of a consumer: `tag` is the last delivery tag, `credit` the unused part of its window."""

    vhost: VirtualHost
    flowing: bool
    credit: int
    tag: int

    @property
    def connection(self) -> Link: ...
    @property
    def unacked(self) -> UnackedTable: ...
    def cancelled_by_broker(self, consumer: Consumer) -> None:
        """End the consumer: its queue is gone."""

    def refuse_delivery(self, queue: Queue, position: int, frames: bytes) -> None:
        """Close the channel later: a message with these frames does not fit the client's frame size."""


class Consumer:
    """One basic.consume. `credit` is the unused part of its window, in messages.

    `delivered`, `redelivered` (those of them that were redeliveries) and `acked` count since `flush_counts`.
    """

    __slots__ = (
        "acked", "announces", "arguments", "aside", "cancelled", "channel", "credit", "delivered", "exclusive",
        "no_ack", "prefetch", "prefixes", "priority", "queue", "redelivered", "selector", "tag",
    )  # fmt: skip

    def __init__(
        self,
        channel: ConsumerChannel,
        queue: Queue,
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: Table,
        selector: Selector | None = None,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.credit = UNLIMITED if no_ack or not prefetch else prefetch
        self.arguments = arguments
        self.selector = selector
        priority = arguments.get("x-priority", 0)
        self.priority = priority if isinstance(priority, int) else 0
        self.cancelled = self.aside = False
        self.announces = True
        self.delivered = self.redelivered = self.acked = 0
        self.prefixes = DeliverPrefixes(channel.number, tag)

    def room(self) -> int:
        """The number of messages that may be delivered now: 0 when a window or the socket is full."""
        channel = self.channel
        if not channel.connection.writable or not channel.flowing:
            return 0
        if self.no_ack:  # it takes nothing of the channel's window, and waits while that is full, as on RabbitMQ
            return self.credit if channel.credit > 0 else 0
        return min(self.credit, channel.credit)

    @property
    def outstanding(self) -> int:
        """The number of its deliveries that are not acknowledged."""
        return 0 if self.no_ack else (self.prefetch or UNLIMITED) - self.credit

    def set_prefetch(self, prefetch: int) -> None:
        """Change the window of an existing consumer (RabbitMQ applies basic.qos to later consumers only)."""
        if not self.no_ack:
            self.credit += (prefetch or UNLIMITED) - (self.prefetch or UNLIMITED)
            self.prefetch = prefetch
            self.queue.schedule()

    def feed(self, ready: deque[Message], position: int, count: int, journal: Journal | None) -> int:
        """Deliver the first `count` messages of `ready`, or as many as one share of output holds. Returns their number.

        `position` is that of the first one in its queue. The caller has checked `room()`. The deliveries are noted in
        the queue's `journal` before any of them can leave the process.
        """
        channel, prefixes, keep = self.channel, self.prefixes, not self.no_ack
        engine, number, unacked = channel.connection.engine, channel.number, channel.unacked.entries
        out, popleft, queue, tag, size = list[Frames](), ready.popleft, self.queue, channel.tag, 0
        first, start, frame_max = tag, position, engine.frame_max
        prefix = end = b""
        misfit: Message | None = None
        for _ in range(count):
            message = popleft()
            content = message.content
            frames: Frames = content.frames
            length = len(frames)
            if content.channel != number or length > frame_max:
                try:
                    frames = fitting_frames(content, number, frame_max)
                except LocalProtocolError:
                    misfit = message
                    break
                length = len(frames)
            if message.address.fresh is not end:  # nearly always the same as the previous message's
                end = message.address.fresh
                prefix = prefixes[len(end)]
            tag += 1
            out += (prefix, pack_tag(tag), end, frames)
            if keep:
                unacked[tag] = (queue, self, position, message)
                position += 1
            size += length
            if size > OUTPUT_BYTES:
                break
        engine.send_deliveries(out)
        channel.tag = tag
        delivered = tag - first
        self.delivered += delivered
        if keep:
            self.credit -= delivered
            channel.credit -= delivered
        if journal is not None:
            journal.fed(start, delivered, self.no_ack)
        channel.connection.has_output(size)
        if misfit is None:
            return delivered
        if journal is not None:
            journal.fed(start + delivered, 1, False)
        self._refuse(Held(misfit, start + delivered))
        return delivered + 1

    def feed_ahead(self, journal: Journal, count: int) -> int:
        """Deliver `count` messages that the journal has read ahead, or one share of output. Returns their number.

        As `feed`, for a backlog on disk.
        """
        channel, prefixes, keep = self.channel, self.prefixes, not self.no_ack
        engine, number, unacked = channel.connection.engine, channel.number, channel.unacked.entries
        out, queue, tag, size = list[Frames](), self.queue, channel.tag, 0
        first, position, frame_max = tag, journal.page_at, engine.frame_max
        prefix = end = b""
        misfit: Given | None = None
        for given in islice(journal.ahead, count):
            address, stored = given
            frames: Frames = stored
            length = len(frames)
            if number != STORED_CHANNEL or length > frame_max:
                try:
                    frames = fitting_frames(stored_content(STORED_CHANNEL, stored), number, frame_max)
                except LocalProtocolError:
                    misfit = given
                    break
                length = len(frames)
            if address.fresh is not end:
                end = address.fresh
                prefix = prefixes[len(end)]
            tag += 1
            out += (prefix, pack_tag(tag), end, frames)
            if keep:
                unacked[tag] = (queue, self, position, given)
                position += 1
            size += length
            if size > OUTPUT_BYTES:
                break
        engine.send_deliveries(out)
        channel.tag = tag
        delivered = tag - first
        self.delivered += delivered
        if keep:
            self.credit -= delivered
            channel.credit -= delivered
        journal.fed_ahead(delivered, self.no_ack)
        channel.connection.has_output(size)
        if misfit is None:
            return delivered
        held = to_held(misfit, journal.page_at)
        journal.fed_ahead(1, False)
        self._refuse(held)
        return delivered + 1

    def feed_held(self, messages: Sequence[Held]) -> None:
        """Deliver these messages. As `feed`, for a queue whose messages have positions of their own."""
        channel, prefixes, keep, misfits = self.channel, self.prefixes, not self.no_ack, list[Held]()
        engine, number, unacked = channel.connection.engine, channel.number, channel.unacked.entries
        out, queue, tag, size, again = list[Frames](), self.queue, channel.tag, 0, 0
        frame_max = engine.frame_max
        for held in messages:
            message = held.message
            frames: Frames = message.content.frames
            end = message.address.fresh
            try:
                if held.count:
                    end = message.address.again
                    frames = held.frames_for(number, frame_max)
                    again += 1
                elif message.content.channel != number or len(frames) > frame_max:
                    frames = fitting_frames(message.content, number, frame_max)
            except LocalProtocolError:
                misfits.append(held)
                continue
            tag += 1
            out += (prefixes[len(end)], pack_tag(tag), end, frames)
            if keep:
                unacked[tag] = (queue, self, held.position, held)
            size += len(frames)
        engine.send_deliveries(out)
        channel.tag = tag
        for held in misfits:
            self._refuse(held)
        delivered = len(messages) - len(misfits)
        self.delivered += delivered
        self.redelivered += again
        if keep:
            self.credit -= delivered
            channel.credit -= delivered
        channel.connection.has_output(size)

    def feed_records(self, records: Sequence[Record]) -> None:
        """Deliver records of a stream, which takes none back. As `feed`."""
        channel, prefixes = self.channel, self.prefixes
        connection = channel.connection
        if channel.vhost.trace is not None:
            self._trace_records(records)
        engine, number, frame_max, unacked = (
            connection.engine, channel.number, connection.engine.frame_max, channel.unacked.entries
        )  # fmt: skip
        out, queue, tag, size = list[Frames](), self.queue, channel.tag, 0
        first = tag
        around: dict[bytes, tuple[bytes, bytes]] = {}  # bytes around the tag, by address: few different ones
        for offset, _, address, stored in records:
            frames: Frames = stored
            if number != STORED_CHANNEL or len(stored) > frame_max:
                try:
                    frames = fitting_frames(stored_content(STORED_CHANNEL, stored), number, frame_max)
                except LocalProtocolError as error:
                    log.warning("%s, offset %d is skipped for %s: %s", queue, offset, connection.peer, error)
                    continue
            known = around.get(address)
            if known is None:
                end = b"\0" + address + END
                known = around[address] = (prefixes[len(end)], end)
            tag += 1
            out += (known[0], pack_tag(tag), known[1], frames)
            unacked[tag] = (queue, self, offset, None)
            size += len(frames)
            if size > OUTPUT_BYTES:
                engine.send_deliveries(out)
                connection.has_output(size)
                out, size = [], 0
        engine.send_deliveries(out)
        channel.tag = tag
        delivered = tag - first
        self.delivered += delivered
        self.credit -= delivered
        channel.credit -= delivered
        connection.has_output(size)

    def _trace_records(self, records: Sequence[Record]) -> None:
        trace = self.channel.vhost.trace
        if trace is not None:
            for record in records:
                message = Message(Address.read(record.address), stored_content(STORED_CHANNEL, record.frames))
                trace.delivered(self.channel, self.queue, message, redelivered=False)

    def redeliver(self, held: Held) -> None:
        """Deliver a message that was delivered before, or that has a position of its own in its queue."""
        address = held.message.address
        try:
            frames = held.frames_for(self.channel.number, self.channel.connection.engine.frame_max)
        except LocalProtocolError:
            self._refuse(held)
            return
        if held.count:
            self.redelivered += 1
        trace = self.channel.vhost.trace
        if trace is not None:
            trace.delivered(self.channel, self.queue, held.message, held.count > 0)
        self.send(held.position, held, address.again if held.count else address.fresh, frames)

    def _refuse(self, held: Held) -> None:
        """Count a message that does not fit as delivered, even with no_ack, and have the channel closed.

        Then the message is requeued.
        """
        channel = self.channel
        channel.tag += 1
        channel.unacked.entries[channel.tag] = (self.queue, self, held.position, held)
        self.credit -= 1
        channel.credit -= 1
        channel.refuse_delivery(self.queue, held.position, held.message.content.frames)

    def takes(self, held: Held) -> bool:
        """Whether the message fits the client's frame size."""
        return held.fits(self.channel.connection.engine.frame_max)

    def send(self, position: int, message: Given | None, end: bytes, frames: Frames) -> None:
        """Deliver one message from its parts; `message` is None for a queue that takes none back (a stream)."""
        channel = self.channel
        channel.tag += 1
        self.delivered += 1
        channel.connection.engine.send_deliveries((self.prefixes[len(end)], pack_tag(channel.tag), end, frames))
        if not self.no_ack:
            channel.unacked.entries[channel.tag] = (self.queue, self, position, message)
            self.credit -= 1
            channel.credit -= 1
        channel.connection.has_output(len(frames))

    def show(self, held: Held) -> None:
        """Deliver a copy of a message that stays in its queue."""
        address = held.message.address
        try:
            frames = held.frames_for(self.channel.number, self.channel.connection.engine.frame_max)
        except LocalProtocolError as error:
            log.warning("%s, a message is not shown to %s: %s", self.queue, self.channel.connection.peer, error)
            return
        self.send(held.position, None, address.again if held.count else address.fresh, frames)

    def watch_acks(self) -> None:
        """Make the channel notify the queue of each acknowledgement."""
        self.channel.unacked.watched = True

    def cancelled_by_broker(self) -> None:
        """End the consumer: the queue is gone, or browsing has reached its end."""
        self.channel.cancelled_by_broker(self)

    def flush_counts(self) -> None:
        """Add the counts to those of the channel and the queue."""
        for counts in (self.channel.counts, self.queue.counts):
            if self.no_ack:
                counts.deliver_no_ack += self.delivered
            else:
                counts.deliver += self.delivered
            counts.redeliver += self.redelivered
            counts.ack += self.acked
        self.delivered = self.redelivered = self.acked = 0
