"""Publishes messages to channels and groups, each once. In the I/O thread.

A message is on its way until the broker confirms it. Then:
- acked: it is in the queue; nacked: the queue is full, which is exact, because the queue itself counts;
- returned: the queue does not exist, so it is declared and the message is published again, in the place that it had
  among the messages to that channel;
- orphaned (the connection was lost before the answer): published again where its readers recognise duplicates
  (by its id; a Harebell broker's queues do too, x-message-deduplication), else PublishOrphaned.
Without a connection messages wait here, in their order, until their deadlines.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Final

from harebell import errors
from harebell.channels.connection import LayerConnection
from harebell.channels.io_thread import Answer
from harebell.channels.names import is_local, local_part
from harebell.client.messages import Message, Returned, encoded
from harebell.protocol.v091 import Table

__all__ = ["CHANNEL_HEADER", "CONTROL_HEADER", "GROUP_HEADER", "ID_HEADER", "Publisher", "QueueFull"]

CHANNEL_HEADER: Final = "asgi_channel"  # the part after the "!" of the name of a message's channel
CONTROL_HEADER: Final = "asgi_control"  # names a control message from layer to layer
GROUP_HEADER: Final = "asgi_group"  # the group that a control message is about
ID_HEADER: Final = "x-deduplication-header"
SWEEP_SECONDS: Final = 0.25
MOST_TRIES: Final = 20  # declarations of a queue that another process deletes again and again


class QueueFull(Exception):
    """The channel's queue is full."""


class PendingPublish:
    """A message on its way; the client notifies it of the confirm or return (`PublishWaiter`)."""

    __slots__ = (
        "answer",
        "body",
        "channel",
        "deadline",
        "exchange",
        "number",
        "published",
        "raw",
        "repeatable",
        "returns",
        "publisher",
        "tries",
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
        self.returns = False
        self.tries = 0

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

    def orphaned(self, publish_tag: int) -> None:
        self.returns = False
        if self.repeatable:
            self.publisher.again(self)
        else:
            self.publisher.done(
                self,
                errors.PublishOrphaned(
                    f"the connection was lost before the answer to a message to {self.channel!r}: it may or may not "
                    "have arrived",
                    (publish_tag,),
                ),
            )

    def fail(self, reason: errors.HarebellError) -> None:
        self.publisher.done(self, reason)


class Publisher:
    """Publishes the messages of one layer, each once."""

    def __init__(self, connection: LayerConnection) -> None:
        self.connection = connection
        self._numbers = itertools.count()
        self._waiting: list[PendingPublish] = []  # a heap of those that wait for a connection, or for their queue
        self._pumping = False
        self._awaited: set[PendingPublish] = set()  # published messages that come before those that wait
        self._answered = asyncio.Event()  # whether these have their answers
        self._out: dict[PendingPublish, None] = {}  # in the order of their deadlines
        self._sweeping = False

    def send(self, channel: str, body: bytes, answer: Answer[None], headers: Table | None = None) -> None:
        """Send a message to a channel. QueueFull, PublishOrphaned, DeadlineExceeded, InvalidArgument."""
        headers = headers or {}
        local = is_local(channel)
        if local:
            headers[CHANNEL_HEADER] = local_part(channel)
        repeatable = local or self.connection.on_harebell
        number = next(self._numbers)
        raw = self._properties(number, headers)
        self._enqueue(PendingPublish(self, number, channel, "", raw, body, repeatable, answer))

    def send_group(self, group: str, body: bytes, answer: Answer[None]) -> None:
        """Send a message to the members of a group. No error without members, or when a member's queue is full."""
        number = next(self._numbers)
        raw = self._properties(number, {})
        self._enqueue(PendingPublish(self, number, group, self.connection.names.groups, raw, body, True, answer))

    def _properties(self, number: int, headers: Table) -> bytes:
        headers[ID_HEADER] = f"{self.connection.client_id}{number:x}"
        return encoded(Message(b"", headers=headers))[0]

    def _enqueue(self, pending: PendingPublish) -> None:
        self._out[pending] = None
        if not self._sweeping:
            self._sweeping = True
            self.connection.thread.loop.call_later(SWEEP_SECONDS, self._sweep)
        if self._waiting or not self._publish(pending):
            self._wait(pending)

    def _publish(self, pending: PendingPublish) -> bool:
        """Publish the message; False when it has to wait."""
        connection = self.connection
        if not connection.is_open:
            return False
        publishing = connection.publishing
        if not publishing.may_publish:
            return False
        if not pending.exchange and not connection.is_declared(pending.channel):
            return False
        pending.published = True
        if pending.exchange:
            publishing.publish_nowait(
                pending.body,
                pending.exchange,
                pending.channel,
                raw_properties=pending.raw,
                waiter=pending,
                at_once=True,
            )
            return True
        publishing.publish_nowait(
            pending.body,
            "",
            connection.names.queue(pending.channel),
            mandatory=True,
            raw_properties=pending.raw,
            waiter=pending,
            at_once=True,
        )
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
                    await connection.ready()
                    await connection.publishing.drain(timeout=max(pending.deadline - time.monotonic(), 0.001))
                    if not pending.exchange and not connection.is_declared(pending.channel):
                        await self._settled(pending.channel)
                        await connection.declare(pending.channel)
                except (errors.HarebellError, ImportError) as error:
                    self.done(pending, error)
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
            self.done(
                pending,
                errors.DeadlineExceeded(
                    f"a message to {pending.channel!r} was not confirmed within "
                    f"{self.connection.settings.timeout:g} s: it may or may not arrive"
                ),
            )
        self._sweeping = bool(self._out)
        if self._sweeping:
            self.connection.thread.loop.call_later(SWEEP_SECONDS, self._sweep)
