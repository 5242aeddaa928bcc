"""Publishing to channels and groups, each message once. In the I/O thread.

A message is on its way until the broker confirms it. Then:
- acked: it is in the queue; nacked: the queue is full, and that is exact, for the queue itself counts;
- returned: there is no such queue, so it is declared and the message is published again;
- orphaned (the connection was lost before the answer): published again where its readers know it when it comes twice
  (by its id; a Harebell broker's queues know it too, x-message-deduplication), else PublishOrphaned.
While there is no connection messages wait here, in their order, until their deadlines.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Final

from harebell import errors
from harebell.channels.connection import Core
from harebell.channels.io_thread import Answer
from harebell.channels.names import is_local, local_part
from harebell.client.messages import Message, Returned, encoded
from harebell.protocol.v091 import Table

__all__ = ["CHANNEL_HEADER", "CONTROL_HEADER", "GROUP_HEADER", "ID_HEADER", "Full", "Sender"]

CHANNEL_HEADER: Final = "asgi_channel"  # the part after the "!" of the channel that a message is for
CONTROL_HEADER: Final = "asgi_control"  # a word from layer to layer instead of a message
GROUP_HEADER: Final = "asgi_group"  # which that word is about
ID_HEADER: Final = "x-deduplication-header"
SWEEP_SECONDS: Final = 0.25
MOST_TRIES: Final = 20  # declarations of a queue that somebody else deletes again and again


class Full(Exception):
    """The channel's queue holds as much as it may."""


class Parcel:
    """One message on its way; the client tells it what becomes of it (`PublishWaiter`)."""

    __slots__ = ("answer", "body", "channel", "deadline", "exchange", "raw", "repeatable", "returns", "sender", "tries")

    def __init__(
        self,
        sender: Sender,
        channel: str,
        exchange: str,
        raw: bytes,
        body: bytes,
        repeatable: bool,
        answer: Answer[None],
    ) -> None:
        self.sender = sender
        self.channel = channel  # or group
        self.exchange = exchange
        self.raw = raw
        self.body = body
        self.repeatable = repeatable
        self.answer = answer
        self.deadline = time.monotonic() + sender.core.settings.timeout
        self.returns = False
        self.tries = 0

    def settle(self, publish_tag: int, acked: bool) -> None:
        if self.returns:
            self.returns = False
            self.sender.undeliverable(self)
        elif acked or self.exchange:  # a full member of a group loses its copy, the others have theirs
            self.sender.done(self, None)
        else:
            self.sender.done(self, Full(self.channel))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns = True

    def orphaned(self, publish_tag: int) -> None:
        self.returns = False
        if self.repeatable:
            self.sender.again(self)
        else:
            self.sender.done(
                self,
                errors.PublishOrphaned(
                    f"the connection was lost before the answer to a message to {self.channel!r}: it may or may not "
                    "have arrived",
                    (publish_tag,),
                ),
            )

    def fail(self, reason: errors.HarebellError) -> None:
        self.sender.done(self, reason)


class Sender:
    """Publishes; one a layer."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._numbers = itertools.count()
        self._waiting: deque[Parcel] = deque()  # for a connection, or their queue
        self._pumping = False
        self._out: dict[Parcel, None] = {}  # in the order of their deadlines
        self._sweeping = False

    def send(self, channel: str, body: bytes, answer: Answer[None], headers: Table | None = None) -> None:
        """A message to a channel. Full, PublishOrphaned, DeadlineExceeded, InvalidArgument."""
        headers = headers or {}
        local = is_local(channel)
        if local:
            headers[CHANNEL_HEADER] = local_part(channel)
        self._enqueue(
            Parcel(self, channel, "", self._properties(headers), body, local or self.core.on_harebell, answer)
        )

    def send_group(self, group: str, body: bytes, answer: Answer[None]) -> None:
        """A message to whoever is in the group. It is no error that nobody is, or that somebody's queue is full."""
        self._enqueue(Parcel(self, group, self.core.names.groups, self._properties({}), body, True, answer))

    def _properties(self, headers: Table) -> bytes:
        headers[ID_HEADER] = f"{self.core.client_id}{next(self._numbers):x}"
        return encoded(Message(b"", headers=headers))[0]

    def _enqueue(self, parcel: Parcel) -> None:
        self._out[parcel] = None
        if not self._sweeping:
            self._sweeping = True
            self.core.thread.loop.call_later(SWEEP_SECONDS, self._sweep)
        if self._waiting or not self._publish(parcel):
            self._wait(parcel)

    def _publish(self, parcel: Parcel) -> bool:
        """Publish it; False when it has to wait."""
        core = self.core
        if not core.is_open:
            return False
        publishing = core.publishing
        if not publishing.may_publish:
            return False
        if parcel.exchange:
            publishing.publish_nowait(
                parcel.body, parcel.exchange, parcel.channel, raw_properties=parcel.raw, waiter=parcel, at_once=True
            )
            return True
        if not core.is_declared(parcel.channel):
            return False
        publishing.publish_nowait(
            parcel.body,
            "",
            core.names.queue(parcel.channel),
            mandatory=True,
            raw_properties=parcel.raw,
            waiter=parcel,
            at_once=True,
        )
        return True

    def _wait(self, parcel: Parcel) -> None:
        self._waiting.append(parcel)
        if not self._pumping:
            self._pumping = True
            self.core.thread.start(self._pump())

    async def _pump(self) -> None:
        """Publish what waits, in its order."""
        core, waiting = self.core, self._waiting
        try:
            while waiting:
                parcel = waiting[0]
                if parcel not in self._out:
                    waiting.popleft()
                    continue
                try:
                    await core.ready()
                    await core.publishing.drain(timeout=max(parcel.deadline - time.monotonic(), 0.001))
                    if not parcel.exchange and not core.is_declared(parcel.channel):
                        await core.declare(parcel.channel)
                    if parcel in self._out and not self._publish(parcel):
                        continue
                except errors.HarebellError as error:
                    self.done(parcel, error)
                except ImportError as error:
                    self.done(parcel, error)
                waiting.popleft()
        finally:
            self._pumping = False
            if waiting:  # cancelled: the layer is closed
                for parcel in list(waiting):
                    self.done(parcel, errors.ChannelClosed("the channel layer was closed"))
                waiting.clear()

    def undeliverable(self, parcel: Parcel) -> None:
        """Its queue is gone."""
        self.core.undeclared(parcel.channel)
        parcel.tries += 1
        if parcel.tries > MOST_TRIES:
            why = f"the queue of {parcel.channel!r} vanishes as fast as it is made"
            self.done(parcel, errors.DeadlineExceeded(why))
        else:
            self.again(parcel)

    def again(self, parcel: Parcel) -> None:
        """Publish it once more."""
        if parcel in self._out:
            self._wait(parcel)

    def done(self, parcel: Parcel, error: BaseException | None) -> None:
        if self._out.pop(parcel, self) is self:
            return  # its deadline has passed
        if error is None:
            parcel.answer.give(None)
        else:
            parcel.answer.fail(error)

    def _sweep(self) -> None:
        """End what is too late."""
        now = time.monotonic()
        late: list[Parcel] = []
        for parcel in self._out:
            if parcel.deadline > now:
                break
            late.append(parcel)
        for parcel in late:
            self.done(
                parcel,
                errors.DeadlineExceeded(
                    f"a message to {parcel.channel!r} was not confirmed within {self.core.settings.timeout:g} s: "
                    "it may or may not arrive"
                ),
            )
        self._sweeping = bool(self._out)
        if self._sweeping:
            self.core.thread.loop.call_later(SWEEP_SECONDS, self._sweep)
