"""One subscription, over every wire channel that carries it, and its deliveries that were not taken yet.

The core puts deliveries in, the iterator (`consumer`) takes them out; they wait in one deque, and no task or future is
made for one. A thread that iterates takes many at once, into `ahead`, and hands them out from there without a lock.
When the wire channel is lost and another will come, the subscription stays: deliveries that the program has not got are
dropped, for the broker delivers them again, unless they were sent with no_ack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Protocol

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.consumer import ConsumerCore
from harebell.client.messages import Delivery
from harebell.client.recovery.stream_position import OFFSET, Position, Resume
from harebell.client.transport.protocol import MAX_BUFFERED_BYTES, MAX_BUFFERED_MESSAGES, AsyncCore, FutureSlot
from harebell.protocol.v091 import TableLike, methods as m

__all__ = ["Subscription"]


class Waiting(Protocol):
    """Something that waits for a delivery: a future, or a thread."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...


class Subscription:
    """A consumer as the program asked for it, and its deliveries.

    queue     as the program names it
    deliver   takes each delivery as it comes, in place of `append`, which it comes to in the end
    ahead     taken from the buffer by a thread, and not handed out yet; the thread needs no lock for these
    channel   the wire channel that its deliveries came on; None before the first
    core      its wire consumer; None while there is none
    seen      called with the tag of each delivery that is handed out, unless it needs no acknowledgement
    arrived   called instead with the tag of each that comes, where middlewares see it at once and may settle it
    on_end    called once when it has ended for good
    on_gap    called with the number of the message that was to come next in a stream, and of the later one that came
    resubscribing  another one takes its place when it ends by an error
    position  where it continues in a stream queue; None for any other, and for one that is not known to be one yet
    resume    what it continues behind there
    finished  no more deliveries will come; `reason` is why, None after a cancel by the program
    """

    __slots__ = (
        "ahead", "arguments", "arrived", "buffer", "bytes", "channel", "core", "deliver", "exclusive", "finished",
        "no_ack", "on_end", "on_gap", "position", "queue", "reason", "resubscribing", "resume", "seen", "tag",
        "transport", "waiters",
    )  # fmt: skip

    def __init__(
        self, transport: AsyncCore, queue: str, no_ack: bool, exclusive: bool, arguments: TableLike | None, tag: str
    ) -> None:
        self.transport = transport
        self.queue = queue
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.arguments = arguments
        self.tag = tag
        self.deliver: Callable[[Delivery], None] | None = None
        self.channel: ChannelCore | None = None
        self.core: ConsumerCore | None = None
        self.seen: Callable[[int], None] | None = None
        self.arrived: Callable[[int], None] | None = None
        self.on_end: Callable[[Subscription], None] | None = None
        self.on_gap: Callable[[Subscription, int, int], None] | None = None
        self.resubscribing = False
        self.position: Position | None = None
        self.resume: Resume = "handed_out"
        self.buffer: deque[Delivery] = deque()
        self.bytes = 0
        self.ahead: deque[Delivery] = deque()
        self.waiters: deque[Waiting] = deque()
        self.finished = False
        self.reason: errors.HarebellError | None = None

    # -- deliveries --------------------------------------------------------------------------------------------------

    def append(self, delivery: Delivery) -> None:
        self.buffer.append(delivery)
        self.bytes += delivery.body_size
        if self.waiters:
            self.wake()
        if self.bytes > MAX_BUFFERED_BYTES or len(self.buffer) > MAX_BUFFERED_MESSAGES:
            self.transport.overfull.add(self)

    def take(self) -> Delivery:
        delivery = self.buffer.popleft()
        self.bytes -= delivery.body_size
        if self.seen is not None:
            self.seen(delivery.delivery_tag)
        elif self.position is not None:
            self._hand_out(self.position, delivery)
        if self.transport.overfull:
            self._taken()
        return delivery

    def take_many(self, most: int) -> list[Delivery]:
        """What is in the buffer, at most that many."""
        taken: list[Delivery] = []
        self.move(most, taken)
        return taken

    def move(self, most: int, to: list[Delivery] | deque[Delivery]) -> None:
        """As `take_many`, behind what `to` has. Wherever a signal comes, each delivery is in one of the two."""
        buffer = self.buffer
        taken = list(islice(buffer, most))
        if self.seen is not None:
            for delivery in taken:
                self.seen(delivery.delivery_tag)
        to.extend(islice(iter(buffer.popleft, None), len(taken)))  # one operation of C
        self.bytes = self.bytes - sum([delivery.body_size for delivery in taken]) if buffer else 0
        if self.position is not None and self.seen is None:
            for delivery in taken:
                self._hand_out(self.position, delivery)
        if self.transport.overfull:
            self._taken()

    def _hand_out(self, position: Position, delivery: Delivery) -> None:
        assert self.channel is not None  # the delivery came on it
        if self.no_ack:
            position.handed_out(delivery, None)
            return
        if self.arrived is None:
            self.channel.deliveries.unacked.add(delivery.delivery_tag)
        position.handed_out(delivery, self.channel.deliveries)

    def _taken(self) -> None:
        if (
            self in self.transport.overfull
            and self.bytes <= MAX_BUFFERED_BYTES // 2
            and len(self.buffer) <= MAX_BUFFERED_MESSAGES // 2
        ):
            self.relieve()

    def relieve(self) -> None:
        """No longer a reason to stop reading."""
        self.transport.overfull.discard(self)
        if not self.transport.overfull:
            self.transport.resume_reading()

    def wake(self) -> None:
        """Wake the first that waits for a delivery."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # -- its wire consumer -------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        channel: ChannelCore,
        transport: AsyncCore,
        request: m.Method,
        qos: m.BasicQos | None,
        seconds: float,
        deadline: float,
    ) -> None:
        """Begin it on this wire channel; `request` is its basic.consume, and `qos` goes before it when given.

        Both are sent together: another task's qos must not come between them.
        """
        if transport is not self.transport:
            self.relieve()
            self.transport = transport
        if self.position is None and self.arguments is not None and OFFSET in self.arguments:
            self.position = Position(self.resume, self.arguments)
        self.channel = channel
        self.core = consumer = ConsumerCore(
            self.tag, self.queue, self.no_ack, self._first, self.ended, self.forget, self.interrupted, self.unseen,
        )  # fmt: skip
        self._count(channel)
        qos_slot = FutureSlot(qos, transport.loop.create_future()) if qos is not None else None
        if qos_slot is not None:
            channel.request(qos_slot)
        slot = FutureSlot(request, transport.loop.create_future())
        try:
            channel.consume(slot, consumer)
        except errors.HarebellError:
            if qos_slot is not None:
                qos_slot.abandoned = True
            raise
        if qos_slot is not None:
            try:
                await transport.reply(qos_slot, seconds, channel.abandon, deadline)
            except BaseException:
                channel.abandon(slot)
                raise
        await transport.reply(slot, seconds, channel.abandon, deadline)

    def _count(self, channel: ChannelCore) -> None:
        """Say how it is noted what the program has got."""
        self.seen = self.arrived = None
        if not self.no_ack and self.deliver is not None:
            self.arrived = channel.deliveries.unacked.add
        elif not self.no_ack and self.position is None:
            self.seen = channel.deliveries.unacked.add

    def _first(self, delivery: Delivery) -> None:
        """Take the first delivery on a wire channel, which shows whether the queue is a stream."""
        core, channel = self.core, self.channel
        assert core is not None  # it brings the delivery
        assert channel is not None
        core.append = append = self.deliver or self.append
        offset, position = delivery.stream_offset, self.position
        if (offset is None) != (position is None):
            self.position = None if offset is None else Position(self.resume, self.arguments)
            self._count(channel)
        elif offset is not None and position is not None and position.expected is not None:
            if offset > position.expected and self.on_gap is not None:
                self.on_gap(self, position.expected, offset)
        append(delivery)

    def unseen(self) -> Iterator[Delivery]:
        """The deliveries that the program has not got, the earliest first."""
        # A thread may take from `ahead` meanwhile: copying it is one call of C.
        return chain(self.ahead.copy(), self.buffer)

    def forget(self) -> list[int]:
        """The broker takes back what it delivered: drop what the program has not got, and give the tags of it."""
        if self.position is not None and self.channel is not None:
            waiting = self.buffer or self.ahead
            self.position.lost(self.channel.deliveries, waiting[-1] if self.no_ack and waiting else None)
        if self.no_ack:
            return []
        tags = [delivery.delivery_tag for delivery in (*_emptied(self.ahead), *self.buffer)]
        self.buffer.clear()
        self.bytes = 0
        self.relieve()
        return tags

    def interrupted(self) -> None:
        """The wire channel is lost; another one will come."""
        self.core = None
        self.relieve()

    def ended(self, reason: errors.HarebellError | None) -> None:
        """No more deliveries come."""
        if self.finished:
            return
        self.reason = reason  # first: another thread may look
        self.finished = True
        if self.on_end is not None:
            self.on_end(self)
        while self.waiters:
            self.wake()

    def give_back(self) -> None:
        """Put the deliveries that the program has not got back into the queue."""
        channel = self.channel
        buffered, self.buffer = [*_emptied(self.ahead), *self.buffer], deque()
        self.bytes = 0
        self.relieve()
        if not self.no_ack and channel is not None and channel.reason is None:
            for delivery in buffered:
                channel.settlement.give_back(delivery)


def _emptied(ahead: deque[Delivery]) -> Iterator[Delivery]:
    """Its deliveries, taken out one by one: a thread may take from the other end meanwhile."""
    while ahead:
        try:
            yield ahead.popleft()
        except IndexError:
            return
