"""A subscription: its credit in messages and in bytes, and what turns messages into transfers.

Credit (specification of message.flow): each unit has its own balance, which begins at 0; both must cover a message. In
window mode the completion of a transfer gives its credit back, in credit mode nothing does. An unlimited balance stays
so until message.stop or message.flush, after which completions of earlier transfers give nothing back.

A subscription takes part in its queue as a `queues.consumer.Consumer`. While its session has no connection it has no
room. What it sends is kept by the session, to be sent again after a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol, TypeAlias

from harebell.broker.clients import Channel
from harebell.broker.counts import ChannelCounts
from harebell.broker.message import Address, Given, Held, Message, to_held
from harebell.broker.queues.base import Queue
from harebell.broker.queues.consumer import OUTPUT_BYTES
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.stream_log.records import Record
from harebell.broker.timers import Timers
from harebell.broker.v010.messages import Outgoing
from harebell.broker.vhost import VirtualHost
from harebell.errors import IllegalState, WrongArgument
from harebell.protocol.v010 import Content, commands as c, structs as s
from harebell.protocol.v010.codec import decode_struct, encode_command
from harebell.protocol.v010.content import DELIVERY
from harebell.protocol.v010.domains import AcceptMode, AcquireMode, CreditUnit, FlowMode
from harebell.protocol.v010.frames import LARGEST_FRAME, payload_of
from harebell.protocol.v091 import Table
from harebell.protocol.v091.content import stored_content

__all__ = ["UNLIMITED", "Entry", "SentTransfer", "Subscription", "SubscriptionSession", "Window"]

UNLIMITED: Final = 1 << 62
_ENDLESS: Final = 1 << 61  # a balance above was unlimited, less what it has paid for
_INFINITE: Final = 0xFFFF_FFFF  # how a client says so

Entry: TypeAlias = "tuple[Queue, Subscription, int, Given | None]"
"""Queue, subscription, position in the queue, message (None: it stays in its queue)."""
Window: TypeAlias = "tuple[Subscription, int, int]"
"""Subscription, bytes, and its `epoch` then: what gets credit back when the transfer is complete."""


class SentTransfer:
    """A transfer as its session keeps it: the command's payload, and the message."""

    __slots__ = ("content", "payload")

    def __init__(self, payload: bytes, content: Content) -> None:
        self.payload = payload
        self.content = content


class SubscriptionSession(Channel, Protocol):
    """The session of a subscription."""

    vhost: VirtualHost
    outgoing: Outgoing
    counts: ChannelCounts
    watched: bool

    @property
    def entries(self) -> dict[int, Entry]:
        """The deliveries that are acquired and not settled, by number."""

    @property
    def windows(self) -> dict[int, Window]:
        """The transfers whose completion gives credit back."""

    @property
    def browsed(self) -> dict[int, Entry]:
        """The copies of messages that stayed in their queues."""

    @property
    def timers(self) -> Timers: ...
    def room(self, *, pressed: bool = False) -> int:
        """The number of transfers that may be sent now; `pressed`: even if the socket takes no more output now."""

    def transfer(self, sent: SentTransfer) -> int:
        """Send a transfer. Returns its number."""

    def flush_transfers(self) -> None:
        """Note that transfers were sent: they go out with the batch."""

    def queue_deleted(self, subscription: Subscription) -> None:
        """End the subscription: its queue is gone."""


class Subscription:
    """One message.subscribe. `tag` is its destination; `prefetch` is none, for lists of consumers.

    While it is `flushing`, credit for a number of messages is used up though the socket takes no more output now: else
    the client would take the queue for an empty one. Its input waits while too much output does, which bounds that.
    `delivered`, `redelivered` and `acked` count since `flush_counts`.
    """

    __slots__ = (
        "acked", "acquires", "arguments", "bytes", "cancelled", "channel", "delivered", "epoch", "exclusive",
        "flushing", "messages", "mode", "no_ack", "payload", "prefetch", "priority", "queue", "redelivered", "starved",
        "tag",
    )  # fmt: skip

    def __init__(
        self, session: SubscriptionSession, queue: Queue, command: c.MessageSubscribe, arguments: Table
    ) -> None:
        self.channel = session
        self.queue = queue
        self.tag = command.destination or ""
        self.acquires = command.acquire_mode == AcquireMode.PRE_ACQUIRED
        self.no_ack = command.accept_mode == AcceptMode.NONE
        self.exclusive = command.exclusive
        self.arguments = arguments
        priority = arguments.get("x-priority", 0)
        self.priority = priority if isinstance(priority, int) else 0
        self.prefetch = 0
        self.cancelled = self.flushing = False
        self.mode: int = FlowMode.WINDOW
        self.messages = self.bytes = 0  # the balances
        self.starved = False  # the next message costs more bytes than there are
        self.epoch = 0
        self.delivered = self.redelivered = self.acked = 0
        self.payload = encode_command(c.MessageTransfer(self.tag, command.accept_mode, command.acquire_mode))

    # -- credit --------------------------------------------------------------------------------------------------

    def flow(self, unit: int, value: int | None) -> None:
        """Add credit. None or 2**32-1 is unlimited. WrongArgument for an unknown unit."""
        endless = value is None or value == _INFINITE
        if unit == CreditUnit.MESSAGE:
            self.messages = UNLIMITED if endless or self.messages > _ENDLESS else self.messages + (value or 0)
        elif unit == CreditUnit.BYTE:
            self.bytes = UNLIMITED if endless or self.bytes > _ENDLESS else self.bytes + (value or 0)
        else:
            raise WrongArgument(f"message.flow: there is no credit unit {unit}")
        self.starved = False
        self.queue.schedule()

    def stop(self) -> None:
        """Take all credit away."""
        self.messages = self.bytes = 0
        self.starved = False
        self.epoch += 1

    def set_mode(self, mode: int) -> None:
        """Change the flow mode. IllegalState while there is credit; WrongArgument for an unknown mode."""
        if mode not in (FlowMode.CREDIT, FlowMode.WINDOW):
            raise WrongArgument(f"message.set-flow-mode: there is no flow mode {mode}")
        if mode != self.mode and (self.messages > 0 or self.bytes > 0):
            raise IllegalState(f"the flow mode of '{self.tag}' cannot change while it has credit: stop or flush it")
        self.mode = mode

    def completed(self, size: int, epoch: int) -> None:
        """Give the credit of a complete transfer back."""
        if epoch == self.epoch and not self.cancelled:
            if self.messages < _ENDLESS:
                self.messages += 1
            if self.bytes < _ENDLESS:
                self.bytes += size
            self.starved = False
            if not self.queue.scheduled:
                self.queue.schedule()

    @property
    def waits(self) -> bool:
        """Whether it asks for messages: it has credit, or gets it back with what it completes."""
        return self.mode == FlowMode.WINDOW or (self.messages > 0 and self.bytes > 0)

    def room(self) -> int:
        """The number of messages that may be delivered now; one at a time where bytes count."""
        if self.messages <= 0 or self.bytes <= 0 or self.starved:
            return 0
        room = min(self.messages, self.channel.room(pressed=self.flushing and self.messages < _ENDLESS))
        return room if self.bytes > _ENDLESS else min(room, 1)

    def _affords(self, content: Content) -> bool:
        if self.bytes > _ENDLESS or cost(content) <= self.bytes:
            return True
        self.starved = True
        return False

    # -- transfers -----------------------------------------------------------------------------------------------

    def feed(self, ready: deque[Message], position: int, count: int, journal: Journal | None) -> int:
        native, start, size = self.channel.outgoing.native, position, 0
        for _ in range(count):
            content = native(ready[0])
            if not self._affords(content):
                break
            message = ready.popleft()
            self._send(content, self.queue, position, message)
            position += 1
            size += len(content.frames)
            if size > OUTPUT_BYTES:
                break
        fed = position - start
        if journal is not None:
            journal.fed(start, fed, self.no_ack)
        self.channel.flush_transfers()
        return fed

    def feed_ahead(self, journal: Journal, count: int) -> int:
        stored, position, fed, size = self.channel.outgoing.stored, journal.page_at, 0, 0
        misfit: Given | None = None
        for given in islice(journal.ahead, count):
            content = stored(*given)
            if not self._affords(content):
                misfit = given
                break
            self._send(content, self.queue, position, given)
            position += 1
            fed += 1
            size += len(content.frames)
            if size > OUTPUT_BYTES:
                break
        journal.fed_ahead(fed, self.no_ack)
        if misfit is not None:
            held = to_held(misfit, journal.page_at)
            journal.fed_ahead(1, False)
            self._put_back(held)
            fed += 1
        self.channel.flush_transfers()
        return fed

    def feed_held(self, messages: Sequence[Held]) -> None:
        for held in messages:
            self._send_held(held)
        self.channel.flush_transfers()

    def feed_records(self, records: Sequence[Record]) -> None:
        """Deliver records of a stream. Where bytes count, the last one may cost more than there are."""
        outgoing, trace = self.channel.outgoing, self.channel.vhost.trace
        addresses: dict[bytes, Address] = {}
        for offset, _, wire, frames in records:
            address = addresses.get(wire)
            if address is None:
                address = addresses[wire] = Address.read(wire)
            if trace is not None:
                trace.delivered(self.channel, self.queue, Message(address, stored_content(1, frames)), False)
            self._send(outgoing.stored(address, frames), self.queue, offset, None)
        self.channel.flush_transfers()

    def redeliver(self, held: Held) -> None:
        if self._send_held(held):
            trace = self.channel.vhost.trace
            if trace is not None:
                trace.delivered(self.channel, self.queue, held.message, held.count > 0)
        self.channel.flush_transfers()

    def show(self, held: Held) -> None:
        """Deliver a copy of a message that stays in the queue. As from a stream, it may cost more than there is."""
        self._send(self._content(held), self.queue, held.position, None)
        self.channel.flush_transfers()

    def takes(self, held: Held) -> bool:
        return self.bytes > _ENDLESS or cost(self._content(held)) <= self.bytes

    def watch_acks(self) -> None:
        self.channel.watched = True

    def cancelled_by_broker(self) -> None:
        self.channel.queue_deleted(self)

    def _send_held(self, held: Held) -> bool:
        content = self._content(held)
        if not self._affords(content):
            self._put_back(held)
            return False
        if held.count:
            self.redelivered += 1
        self._send(content, self.queue, held.position, held)
        return True

    def _send(self, content: Content, queue: Queue, position: int, given: Given | None) -> None:
        session = self.channel
        number = session.transfer(SentTransfer(self.payload, content))
        self.delivered += 1
        self.messages -= 1
        size = 0
        if self.bytes < _ENDLESS:
            size = cost(content)
            self.bytes -= size
        if not self.acquires:
            session.browsed[number] = (queue, self, position, None)
        elif not self.no_ack:
            session.entries[number] = (queue, self, position, given)
        if self.mode == FlowMode.WINDOW:
            session.windows[number] = (self, size, self.epoch)

    def _put_back(self, held: Held) -> None:
        """Return a message that costs more than there is credit for; it does not count as delivered."""
        self.queue.requeue([(held.position, held)], failed=False, counted=False)

    def _content(self, held: Held) -> Content:
        """The message as it goes out: marked as redelivered if it is, with the rest of its time to live."""
        content = self.channel.outgoing.native(held.message)
        expires = held.message.ttl is not None and held.deadline
        if not held.count and not expires:
            return content
        delivery = decode_struct(s.DeliveryProperties, content.raw(DELIVERY) or b"\0\0")
        delivery.redelivered = held.count > 0
        if expires:
            delivery.ttl = max(0, held.deadline - self.channel.timers.now())
        return content.with_delivery(delivery.encode(), LARGEST_FRAME)

    def flush_counts(self) -> None:
        """Add the counts to those of the session and the queue."""
        for counts in (self.channel.counts, self.queue.counts):
            if self.no_ack:
                counts.deliver_no_ack += self.delivered
            else:
                counts.deliver += self.delivered
            counts.redeliver += self.redelivered
            counts.ack += self.acked
        self.delivered = self.redelivered = self.acked = 0


def cost(content: Content) -> int:
    """The byte credit that a message costs: its header and its body, without their frames."""
    frames = content.frames
    return len(payload_of(frames)) if frames else 0
