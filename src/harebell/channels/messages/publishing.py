"""Publishes messages to channels and groups, each once. In the I/O thread.

A message is on its way until the broker confirms it. Then:
- acked: it is in the queue; nacked: the queue is full, which is exact, because the queue itself counts;
- returned: the queue does not exist, so it is declared and the message is published again, in the place that it had
  among the messages to that channel;
- orphaned (the connection was lost before the answer): published again where its readers recognise duplicates
  (by its id; a Harebell broker's queues do too, x-message-deduplication), else PublishOrphaned.
Without a connection messages wait here, in their order, until their deadlines.

The queue of a process's own channels is nearly always empty: the process reads it at once. So whether such a channel is
full is known to its process (`fullness`), and a sender has at most as many messages to one of them on their way as the
channel holds; the others wait here until it has answers.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from typing import Final, Protocol

from harebell import errors
from harebell.channels.links.connection import LOST, LayerConnection, is_final
from harebell.channels.links.io_thread import Answer
from harebell.channels.names import is_local, local_part
from harebell.client.core.outcomes import blames_publishing, cut_by
from harebell.client.messages import Message, Returned, encoded
from harebell.protocol.v091 import Table

__all__ = ["CHANNEL_HEADER", "ID_HEADER", "Publisher", "QueueFull", "sent_us_of", "sender_of"]

CHANNEL_HEADER: Final = "asgi_channel"  # the part after the "!" of the name of a message's channel
ID_HEADER: Final = "x-deduplication-header"  # the sender's id, and a number that grows with the time in microseconds
ID_LENGTH: Final = 12
SWEEP_SECONDS: Final = 0.25
MOST_TRIES: Final = 20  # declarations of a queue that another process deletes again and again


class QueueFull(Exception):
    """The channel's queue is full."""


class Fullness(Protocol):
    """Knows which process-local channels are full."""

    def is_full(self, channel: str, on_way: int) -> bool: ...
    def sending(self, channel: str) -> None: ...
    def arrived(self, channel: str) -> None: ...


class PendingPublish:
    """A message on its way; the client notifies it of the confirm or return (`PublishWaiter`)."""

    __slots__ = (
        "answer",
        "body",
        "channel",
        "counted",
        "deadline",
        "exchange",
        "number",
        "published",
        "raw",
        "repeatable",
        "returns",
        "publisher",
        "tries",
        "uncertain",
    )

    def __init__(
        self,
        publisher: Publisher,
        number: int,
        channel: str,
        exchange: str,
        raw: bytes,
        body: bytes,
        repeatable: bool,
        answer: Answer[None],
    ) -> None:
        self.publisher = publisher
        self.number = number  # of all messages of the publisher, in their order
        self.channel = channel  # or group
        self.exchange = exchange
        self.raw = raw
        self.body = body
        self.repeatable = repeatable
        self.answer = answer
        self.deadline = time.monotonic() + publisher.connection.settings.timeout
        self.published = False  # and the broker's answer is awaited
        self.counted = False  # among those on their way to a process-local channel
        self.returns = False
        self.tries = 0
        self.uncertain = False  # published on a connection that was lost before the answer

    def __lt__(self, other: PendingPublish) -> bool:
        return self.number < other.number

    def settle(self, publish_tag: int, acked: bool) -> None:
        if self.returns:
            self.returns = False
            self.publisher.undeliverable(self)
        elif acked or self.exchange:  # a full member of a group loses its copy, the other members have theirs
            self.publisher.done(self, None)
        else:
            self.publisher.done(self, QueueFull(self.channel))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns = True

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.returns = False
        # Not after the layer's own close, and not where the broker may have refused just this one.
        again = self.repeatable or self.publisher.connection.on_harebell
        if again and not self.publisher.connection.closed and not blames_publishing(reason):
            self.uncertain = True
            self.publisher.again(self)
        else:
            self.publisher.done(
                self,
                errors.PublishOrphaned(
                    f"{cut_by(reason)} before the answer to a message to {self.channel!r}: it may or may not have "
                    f"arrived ({reason})",
                    (publish_tag,),
                ),
            )

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.publisher.done(self, error)


def sent_us_of(sent: object) -> int | None:
    """When the message with that id was sent, in microseconds since 1970; None for an id of another program."""
    if not isinstance(sent, str) or len(sent) <= ID_LENGTH:
        return None
    try:
        return int(sent[ID_LENGTH:], 16)
    except ValueError:
        return None


def sender_of(sent: object) -> str | None:
    """The id of the layer that has sent the message with that id; None for an id of another program."""
    return sent[:ID_LENGTH] if isinstance(sent, str) and sent_us_of(sent) is not None else None


class Publisher:
    """Publishes the messages of one layer, each once."""

    def __init__(self, connection: LayerConnection, fullness: Fullness) -> None:
        self.connection = connection
        self.fullness = fullness
        self._last_number = 0
        self._to_local: dict[str, int] = {}  # messages on their way to each process-local channel
        self._held: dict[str, deque[PendingPublish]] = {}  # those that come after them
        self._waiting: list[PendingPublish] = []  # a heap of those that wait for a connection, or for their queue
        self._pumping = False
        self._awaited: set[PendingPublish] = set()  # published messages that come before those that wait
        self._answered = asyncio.Event()  # whether these have their answers
        self._out: dict[PendingPublish, None] = {}  # in the order of their deadlines
        self._sweeping = False

    def send(self, channel: str, body: bytes, answer: Answer[None]) -> None:
        """Send a message to a channel. QueueFull, PublishOrphaned, DeadlineExceeded, InvalidArgument."""
        number = self._next_number()
        if not is_local(channel):
            raw = self._properties(number, {})
            self._enqueue(PendingPublish(self, number, channel, "", raw, body, False, answer))
            return
        on_way = self._to_local.get(channel, 0)
        if self.fullness.is_full(channel, on_way):
            answer.fail(QueueFull(channel))
            return
        raw = self._properties(number, {CHANNEL_HEADER: local_part(channel)})
        pending = PendingPublish(self, number, channel, "", raw, body, True, answer)
        self.fullness.sending(channel)
        if on_way >= max(self.connection.settings.capacities.of(channel), 1):
            self._held.setdefault(channel, deque()).append(pending)
            self._limit(pending)
            return
        self._to_local[channel] = on_way + 1
        pending.counted = True
        self._enqueue(pending)

    def _next_number(self) -> int:
        """The number of the next message; it grows with the time, in microseconds."""
        self._last_number = number = max(self._last_number + 1, time.time_ns() // 1000)
        return number

    def _local_done(self, channel: str) -> None:
        """A message to a process-local channel has its answer: the next one that is held may go."""
        held = self._held.get(channel)
        while held:
            pending = held.popleft()
            if not held:
                del self._held[channel]
            if pending not in self._out:
                continue  # its deadline has passed
            if self.fullness.is_full(channel, self._to_local[channel] - 1):
                self.done(pending, QueueFull(channel))
                continue
            pending.counted = True
            if self._waiting or not self._publish(pending):
                self._wait(pending)
            return
        left = self._to_local[channel] = self._to_local[channel] - 1
        if not left:
            del self._to_local[channel]

    def send_group(self, group: str, body: bytes, answer: Answer[None]) -> None:
        """Send a message to the members of a group. No error without members, or when a member's queue is full."""
        number = self._next_number()
        raw = self._properties(number, {})
        self._enqueue(PendingPublish(self, number, group, self.connection.names.groups, raw, body, True, answer))

    def _properties(self, number: int, headers: Table) -> bytes:
        headers[ID_HEADER] = f"{self.connection.client_id}{number:x}"
        return encoded(Message(b"", headers=headers))[0]

    def _limit(self, pending: PendingPublish) -> None:
        """Have the message end at its deadline."""
        self._out[pending] = None
        if not self._sweeping:
            self._sweeping = True
            self.connection.thread.loop.call_later(SWEEP_SECONDS, self._sweep)

    def _enqueue(self, pending: PendingPublish) -> None:
        self._limit(pending)
        if self._waiting or not self._publish(pending):
            self._wait(pending)

    def _publish(self, pending: PendingPublish) -> bool:
        """Publish the message; False when it has to wait."""
        connection = self.connection
        link = connection.link
        if link is None:
            return False
        publishing = link.publishing
        if not publishing.may_publish:
            return False
        if not pending.exchange and not connection.is_declared(pending.channel):
            return False
        pending.published = True
        to_group = bool(pending.exchange)
        try:
            publishing.publish_nowait(
                pending.body,
                pending.exchange,
                pending.channel if to_group else connection.names.queue(pending.channel),
                mandatory=not to_group,
                raw_properties=pending.raw,
                waiter=pending,
                at_once=True,
            )
        except Exception as error:  # of this message, which does not fit: the others wait behind it
            self.done(pending, error)
        return True

    def _wait(self, pending: PendingPublish) -> None:
        pending.published = False
        heapq.heappush(self._waiting, pending)
        if not self._pumping:
            self._pumping = True
            self.connection.thread.start(self._pump())

    async def _pump(self) -> None:
        """Publish the waiting messages in their order."""
        connection, waiting = self.connection, self._waiting
        try:
            while waiting:
                pending = waiting[0]
                if pending not in self._out:
                    heapq.heappop(waiting)
                    continue
                try:
                    left = max(pending.deadline - time.monotonic(), 0.001)
                    link = await connection.ready(left)
                    await link.publishing.drain(timeout=left)
                    if not pending.exchange and not connection.is_declared(pending.channel):
                        await self._settled(pending.channel)
                        await connection.declare(pending.channel)
                except (errors.HarebellError, ImportError) as error:
                    in_time = not connection.closed and pending.deadline > time.monotonic()
                    if is_final(error) or not (in_time and isinstance(error, LOST)):
                        late = pending.uncertain and isinstance(error, errors.DeadlineExceeded)
                        self.done(pending, self._late(pending) if late else error)
                if waiting[0] is pending and pending in self._out and self._publish(pending):
                    heapq.heappop(waiting)
        finally:
            self._pumping = False
            if waiting:  # cancelled: the layer is closed
                for pending in list(waiting):
                    self.done(pending, errors.ChannelClosed("the channel layer was closed"))
                waiting.clear()

    async def _settled(self, channel: str) -> None:
        """Wait until the published messages to the channel have their answers.

        Those that return, too, come before younger ones that wait.
        """
        self._awaited = {pending for pending in self._out if pending.published and pending.channel == channel}
        if self._awaited:
            self._answered.clear()
            await self._answered.wait()

    def _has_answer(self, pending: PendingPublish) -> None:
        self._awaited.discard(pending)
        if not self._awaited:
            self._answered.set()

    def undeliverable(self, pending: PendingPublish) -> None:
        """Declare the missing queue of a returned message and publish it again."""
        self.connection.undeclared(pending.channel)
        pending.tries += 1
        if pending.tries > MOST_TRIES:
            why = f"the queue of {pending.channel!r} vanishes as fast as it is made"
            self.done(pending, errors.DeadlineExceeded(why))
        else:
            self.again(pending)

    def again(self, pending: PendingPublish) -> None:
        """Publish the message again."""
        if pending in self._out:
            self._wait(pending)
        if self._awaited:
            self._has_answer(pending)

    def done(self, pending: PendingPublish, error: BaseException | None) -> None:
        if self._out.pop(pending, self) is self:
            return  # its deadline has passed
        if self._awaited:
            self._has_answer(pending)
        if error is not None and pending.exchange == "" and is_local(pending.channel):
            self.fullness.arrived(pending.channel)
        if pending.counted:
            self._local_done(pending.channel)
        if error is None:
            pending.answer.give(None)
        else:
            pending.answer.fail(error)

    def _sweep(self) -> None:
        """End the messages whose deadline has passed."""
        now = time.monotonic()
        late: list[PendingPublish] = []
        for pending in self._out:
            if pending.deadline > now:
                break
            late.append(pending)
        for pending in late:
            self.done(pending, self._late(pending))
        self._sweeping = bool(self._out)
        if self._sweeping:
            self.connection.thread.loop.call_later(SWEEP_SECONDS, self._sweep)

    def _late(self, pending: PendingPublish) -> errors.DeadlineExceeded:
        connection = self.connection
        seconds, cause = connection.settings.timeout, connection.unavailable
        why = f" ({cause})" if cause is not None else ""
        message = f"a message to {pending.channel!r} was not"
        if pending.published or pending.uncertain:
            late = errors.DeadlineExceeded(f"{message} confirmed within {seconds:g} s: it may or may not arrive{why}")
        elif connection.link is None:
            late = connection.late()
        else:
            late = errors.DeadlineExceeded(f"{message} published within {seconds:g} s: it does not arrive{why}")
        late.__cause__ = cause
        return late
