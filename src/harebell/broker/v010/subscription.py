"""A subscription: its credit in messages and in bytes, and what turns messages into transfers.

Credit (specification of message.flow): each unit has its own balance, which begins at 0; both must cover a message. In
window mode the completion of a transfer gives its credit back, in credit mode nothing does. An unlimited balance stays
so until message.stop or message.flush, after which completions of earlier transfers give nothing back.

A subscription takes part in its queue as a `queues.consumer.Consumer`. While its session has no connection it has no
room. What it sends is kept by the session, to be sent again after a loss.

`feed` is the hottest loop of the dialect: per message it does one popleft, and puts the frames, as they came, into a
list. The command before them is the same for all, and what is kept of them is kept for all together (`delivered`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Protocol

from harebell.broker.clients import Channel
from harebell.broker.counts import ChannelCounts
from harebell.broker.message import Address, Given, Held, Message, to_held
from harebell.broker.queues.base import Queue
from harebell.broker.queues.consumer import OUTPUT_BYTES
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.stream_log.records import Record
from harebell.broker.timers import Timers
from harebell.broker.v010.delivered import Account, Origin
from harebell.broker.v010.deliveries import Deliveries
from harebell.broker.v010.messages import ForeignContent, Outgoing
from harebell.broker.v010.outbox import BROWSING, IN_WINDOW, UNSETTLED, Outbox, Sent, SentTransfer
from harebell.broker.vhost import VirtualHost
from harebell.errors import IllegalState, WrongArgument
from harebell.protocol.v010 import commands as c, structs as s
from harebell.protocol.v010.codec import decode_struct, encode_command
from harebell.protocol.v010.content import DELIVERY
from harebell.protocol.v010.domains import AcceptMode, AcquireMode, CreditUnit, FlowMode
from harebell.protocol.v010.frames import LARGEST_FRAME, payload_of
from harebell.protocol.v091 import Table
from harebell.protocol.v091.content import stored_content
from harebell.routing.selectors import Selector

__all__ = ["FULL", "UNLIMITED", "Subscription", "SubscriptionSession"]

FULL: Final = -1  # the room of a session whose client has too much to complete
UNLIMITED: Final = 1 << 62
_ENDLESS: Final = 1 << 61  # a balance above was unlimited, less what it has paid for
_INFINITE: Final = 0xFFFF_FFFF  # how a client says so


class SubscriptionSession(Channel, Protocol):
    """The session of a subscription."""

    vhost: VirtualHost
    outgoing: Outgoing
    counts: ChannelCounts
    deliveries: Deliveries
    outbox: Outbox

    @property
    def timers(self) -> Timers: ...
    @property
    def stopped(self) -> dict[Subscription, None]:
        """The subscriptions to be scheduled when the session is not full any more."""

    def room(self, pressed: bool) -> int:
        """The number of transfers that may be sent now, or FULL; `pressed`: even if the socket takes no more now."""

    def queue_deleted(self, subscription: Subscription) -> None:
        """End the subscription: its queue is gone."""


class Subscription:
    """One message.subscribe. `tag` is its destination; `prefetch` is none, for lists of consumers.

    While it is `flushing`, credit for a number of messages is used up though the socket takes no more output now: else
    the client would take the queue for an empty one. Its input waits while too much output does, which bounds that.
    `delivered`, `redelivered` and `acked` count since `flush_counts`.
    """

    __slots__ = (
        "account", "acked", "acquires", "again", "announces", "arguments", "aside", "bytes", "cancelled", "channel",
        "delivered", "epoch", "exclusive", "flushing", "kind", "messages", "mode", "no_ack", "origin", "payload",
        "prefetch", "priority", "queue", "redelivered", "selector", "starved", "tag",
    )  # fmt: skip

    def __init__(
        self,
        session: SubscriptionSession,
        queue: Queue,
        command: c.MessageSubscribe,
        arguments: Table,
        selector: Selector | None = None,
    ) -> None:
        self.channel = session
        self.queue = queue
        self.tag = command.destination or ""
        self.acquires = command.acquire_mode == AcquireMode.PRE_ACQUIRED
        self.no_ack = command.accept_mode == AcceptMode.NONE
        self.exclusive = command.exclusive
        self.arguments = arguments
        self.selector = selector
        priority = arguments.get("x-priority", 0)
        self.priority = priority if isinstance(priority, int) else 0
        self.prefetch = 0
        self.cancelled = self.flushing = self.aside = False
        self.announces = False  # a session's limits end for all of its subscriptions
        self.mode: int = FlowMode.WINDOW
        self.messages = self.bytes = 0  # the balances
        self.starved = False  # the next message costs more bytes than there are, see `Queue.starving`
        self.epoch = 0
        self.origin: Origin = (queue, self)
        self.account: Account = (self, 0)
        self.delivered = self.redelivered = self.acked = 0
        self.payload = encode_command(c.MessageTransfer(self.tag, command.accept_mode, command.acquire_mode))
        payload = self.payload
        self.again: Callable[[bytes], Sent] = lambda frames: SentTransfer(payload, frames)
        self.kind = IN_WINDOW | (BROWSING if not self.acquires else 0 if self.no_ack else UNSETTLED)

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
        self.account = (self, self.epoch)

    def set_mode(self, mode: int) -> None:
        """Change the flow mode. IllegalState while there is credit; WrongArgument for an unknown mode."""
        if mode not in (FlowMode.CREDIT, FlowMode.WINDOW):
            raise WrongArgument(f"message.set-flow-mode: there is no flow mode {mode}")
        if mode != self.mode and (self.messages > 0 or self.bytes > 0):
            raise IllegalState(f"the flow mode of '{self.tag}' cannot change while it has credit: stop or flush it")
        self.mode = mode
        self.kind = self.kind | IN_WINDOW if mode == FlowMode.WINDOW else self.kind & ~IN_WINDOW

    def completed(self, count: int, size: int, epoch: int) -> None:
        """Give the credit of complete transfers back."""
        if epoch == self.epoch and not self.cancelled:
            if self.messages < _ENDLESS:
                self.messages += count
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
        room = self.channel.room(self.flushing and self.messages < _ENDLESS)
        if room > self.messages:
            room = self.messages
        elif room < 0:  # FULL
            self.channel.stopped[self] = None
            return 0
        return room if self.bytes > _ENDLESS else min(room, 1)

    def _affords(self, frames: bytes) -> bool:
        if self.bytes > _ENDLESS or cost(frames) <= self.bytes:
            return True
        self.starved = True
        queue = self.queue
        if self not in queue.starving:
            queue.starving = (*queue.starving, self)
        return False

    # -- transfers -----------------------------------------------------------------------------------------------

    def feed(self, ready: deque[Message], position: int, count: int, journal: Journal | None) -> int:
        outgoing, popleft, size = self.channel.outgoing, ready.popleft, 0
        if count == 1 and self.bytes > _ENDLESS:  # its turn among others
            message = popleft()
            self.delivered += 1
            self.messages -= 1
            self.channel.outbox.add_one(self, outgoing.frames(message), position, message)
            if journal is not None:
                journal.fed(position, 1, self.no_ack)
            return 1
        number, largest, frames_of = outgoing.channel, outgoing.largest, outgoing.frames
        messages, out, counted = list[Given | None](), list[bytes](), self.bytes < _ENDLESS
        for _ in range(count):
            message = popleft()
            content = message.content
            if type(content) is ForeignContent and content.native_channel == number:
                frames = content.native_frames
                length = len(frames)
                if length > largest:
                    frames = frames_of(message)
            else:
                frames = frames_of(message)
                length = len(frames)
            if counted and not self._affords(frames):
                ready.appendleft(message)
                break
            messages.append(message)
            out.append(frames)
            size += length
            if size > OUTPUT_BYTES:
                break
        fed = len(out)
        if fed:
            self._send(out, size, range(position, position + fed), messages)
        if journal is not None:
            journal.fed(position, fed, self.no_ack)
        return fed

    def feed_ahead(self, journal: Journal, count: int) -> int:
        stored, position, size = self.channel.outgoing.stored, journal.page_at, 0
        messages, out, misfit = list[Given | None](), list[bytes](), None
        for given in islice(journal.ahead, count):
            frames = stored(*given)
            if not self._affords(frames):
                misfit = given
                break
            messages.append(given)
            out.append(frames)
            size += len(frames)
            if size > OUTPUT_BYTES:
                break
        fed = len(out)
        if fed:
            self._send(out, size, range(position, position + fed), messages)
        journal.fed_ahead(fed, self.no_ack)
        if misfit is not None:
            held = to_held(misfit, journal.page_at)
            journal.fed_ahead(1, False)
            self._put_back(held)
            fed += 1
        return fed

    def feed_held(self, messages: Sequence[Held]) -> None:
        sent, positions, out = list[Given | None](), list[int](), list[bytes]()
        for held in messages:
            frames = self._frames(held)
            if not self._affords(frames):
                self._put_back(held)
                continue
            if held.count:
                self.redelivered += 1
            sent.append(held)
            positions.append(held.position)
            out.append(frames)
        if out:
            self._send(out, sum(map(len, out)), positions, sent)

    def feed_records(self, records: Sequence[Record]) -> None:
        """Deliver records of a stream. Where bytes count, the last one may cost more than there are."""
        outgoing, trace = self.channel.outgoing, self.channel.vhost.trace
        addresses: dict[bytes, Address] = {}
        out: list[bytes] = []
        for _, _, wire, frames in records:
            address = addresses.get(wire)
            if address is None:
                address = addresses[wire] = Address.read(wire)
            if trace is not None:
                trace.delivered(self.channel, self.queue, Message(address, stored_content(1, frames)), False)
            out.append(outgoing.stored(address, frames))
        if out:
            positions = [record.offset for record in records]
            self._send(out, sum(map(len, out)), positions, [None] * len(out))

    def redeliver(self, held: Held) -> None:
        frames = self._frames(held)
        if not self._affords(frames):
            self._put_back(held)
            return
        if held.count:
            self.redelivered += 1
        self._send([frames], len(frames), (held.position,), [held])
        trace = self.channel.vhost.trace
        if trace is not None:
            trace.delivered(self.channel, self.queue, held.message, held.count > 0)

    def show(self, held: Held) -> None:
        """Deliver a copy of a message that stays in the queue. As from a stream, it may cost more than there is."""
        frames = self._frames(held)
        self._send([frames], len(frames), (held.position,), [None])

    def takes(self, held: Held) -> bool:
        return self.bytes > _ENDLESS or cost(self._frames(held)) <= self.bytes

    def watch_acks(self) -> None:
        self.channel.deliveries.watched = True

    def cancelled_by_broker(self) -> None:
        self.channel.queue_deleted(self)

    def _send(self, frames: list[bytes], size: int, positions: Sequence[int], messages: list[Given | None]) -> None:
        """Send messages in their frames, of `size` bytes, and note what they cost and what is to be settled."""
        count = len(frames)
        self.delivered += count
        self.messages -= count
        costs: list[int] | None = None
        if self.bytes < _ENDLESS:
            costs = list(map(cost, frames))
            self.bytes -= sum(costs)
        self.channel.outbox.add(self, frames, size, positions, messages, costs)

    def _put_back(self, held: Held) -> None:
        """Return a message that costs more than there is credit for; it does not count as delivered."""
        queue = self.queue
        starving, queue.starving = queue.starving, ()  # it was there before: they need not look at it again
        queue.requeue([(held.position, held)], failed=False, counted=False)
        queue.starving = starving

    def _frames(self, held: Held) -> bytes:
        """The message as it goes out: marked as redelivered if it is, with the rest of its time to live."""
        outgoing, expires = self.channel.outgoing, held.message.ttl is not None and held.deadline
        if not held.count and not expires:
            return outgoing.frames(held.message)
        content = outgoing.native(held.message)
        delivery = decode_struct(s.DeliveryProperties, content.raw(DELIVERY) or b"\0\0")
        delivery.redelivered = held.count > 0
        if expires:
            delivery.ttl = max(0, held.deadline - self.channel.timers.now())
        return content.with_delivery(delivery.encode(), LARGEST_FRAME).frames_for(outgoing.channel, outgoing.largest)

    def flush_counts(self) -> None:
        """Add the counts to those of the session and the queue."""
        for counts in (self.channel.counts, self.queue.counts, self.queue.counts_010):
            if self.no_ack:
                counts.deliver_no_ack += self.delivered
            else:
                counts.deliver += self.delivered
            counts.redeliver += self.redelivered
            counts.ack += self.acked
        self.delivered = self.redelivered = self.acked = 0


def cost(frames: bytes) -> int:
    """The byte credit that a message costs: its header and its body, without their frames."""
    return len(payload_of(frames)) if frames else 0
