"""The messages between the two brokers: received from the source, and not yet confirmed by the destination.

Rules:

- A message is acknowledged at the source when the destination has confirmed it, and no sooner (ack-mode on-confirm).
  So the messages in a window when a connection ends are delivered again: nothing is lost, and at most a window of
  messages arrives twice.
- A message that the destination refuses (a nack: a full queue) or cannot route (a return) stays, and is published
  again after a while, first 0.1 s, then twice as long each time. While one is refused no other is published, so that
  nothing overtakes it; an unroutable one lets others pass, as long as the window is not full.
- After some nacks in a row the window asks for another channel: RabbitMQ 3.10 goes on nacking on a channel that
  published to a quorum queue while its leader died. It asks when nothing is without an answer, so nothing is doubled.
- Acknowledgements are collected during a turn of the loop, and sent as one where no older message is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from harebell.bridge.options import AckMode
from harebell.client.channel import Channel
from harebell.client.messages import Returned
from harebell.client.recovery.policy import Backoff
from harebell.errors import HarebellError

__all__ = ["InFlightMessage", "Acknowledgements", "Window"]

log = logging.getLogger("harebell.bridge")

FIRST_RETRY: Final = 0.1  # seconds
PATIENCE: Final = 6  # attempts on one channel until another one is asked for; 6 s, longer than an election


class InFlightMessage:
    """A message on its way: its content and destination; its delivery tag and stream offset at the source."""

    __slots__ = ("body", "delivery_tag", "exchange", "offset", "properties", "routing_key")

    def __init__(
        self, delivery_tag: int, offset: int | None, properties: bytes, body: bytes, exchange: str, routing_key: str
    ) -> None:
        self.delivery_tag = delivery_tag
        self.offset = offset
        self.properties = properties
        self.body = body
        self.exchange = exchange
        self.routing_key = routing_key


class Acknowledgements:
    """The acknowledgements to send to the source, unless it is consumed without them.

    open   messages received and not yet confirmed, with their stream offsets, in the order of the delivery tags
    """

    def __init__(self, channel: Channel, *, acknowledges: bool = True) -> None:
        self._channel = channel
        self._acknowledges = acknowledges
        self.open: dict[int, int | None] = {}
        self._done: list[int] = []
        self._last_offset: int | None = None

    def take(self, message: InFlightMessage) -> None:
        self.open[message.delivery_tag] = message.offset
        self._last_offset = message.offset

    def done(self, message: InFlightMessage) -> None:
        """Note that the destination has the message; `flush` acknowledges it."""
        tag = message.delivery_tag
        del self.open[tag]
        self._done.append(tag)

    def flush(self) -> None:
        done, self._done = self._done, []
        if not done or not self._acknowledges or not self._channel.is_open:
            return  # the channel has ended: the source delivers the messages again
        last = max(done)
        oldest = next(iter(self.open), last + 1)
        below = [tag for tag in done if tag < oldest]
        if below:
            self._channel.ack(max(below), multiple=True)
        for tag in done:
            if tag > oldest:
                self._channel.ack(tag)

    @property
    def next_offset(self) -> int | None:
        """The stream offset to continue at: that of the first message not done. None before the first message."""
        for offset in self.open.values():
            return offset
        return None if self._last_offset is None else self._last_offset + 1


class Window:
    """At most `size` messages on their way to the destination; as the client's PublishWaiter it gets their confirms.

    channel   the destination's, on which it publishes
    accepted  called with each message that the destination has confirmed
    name      what the log calls the shovel
    failed    a future, done with the reason when the destination's channel has ended
    stuck     set while it waits for another channel (`go_on`)
    refusal   why the destination refused the last message that it refused; None when none is refused now
    """

    def __init__(
        self,
        channel: Channel,
        size: int,
        accepted: Callable[[InFlightMessage], None],
        ack_mode: AckMode,
        longest_retry: float,
        name: str = "shovel",
    ) -> None:
        self._name = name
        self.channel = channel
        self._size = size
        self._accepted = accepted
        self._insists = ack_mode == "on-confirm"
        self._backoff = Backoff(FIRST_RETRY, max(longest_retry, FIRST_RETRY))
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[HarebellError] = self._loop.create_future()
        self.stuck = asyncio.Event()
        self.refusal: str | None = None
        self.sent: dict[int, InFlightMessage] = {}  # by publish tag
        self.held: list[InFlightMessage] = []
        self.lost = 0  # refused or returned, and acknowledged all the same (on-publish, no-ack)
        self._refused: set[InFlightMessage] = set()
        self._returned: dict[int, Returned] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._retries = 0  # since the last accepted message
        self._change: asyncio.Future[None] | None = None

    def send(self, message: InFlightMessage) -> None:
        """Publish the message. Check `room` first."""
        tag = self.channel.publish_nowait(
            message.body,
            message.exchange,
            message.routing_key,
            mandatory=self._insists,
            raw_properties=message.properties,
            waiter=self,
        )
        self.sent[tag] = message

    @property
    def pending(self) -> int:
        return len(self.sent) + len(self.held)

    def has_room(self) -> bool:
        return self.pending < self._size and not self._refused

    async def changed(self) -> None:
        """Wait for the next confirm, return, or end of the channel."""
        self._change = self._loop.create_future()
        await self._change

    def go_on(self, channel: Channel) -> None:
        """Publish on this channel from now on, first what the last one has refused."""
        self.channel = channel
        self.stuck.clear()
        self._send_held()
        self.wake()

    def close(self) -> None:
        """Publish no refused message again."""
        if self._retry is not None:
            self._retry.cancel()

    def settle(self, publish_tag: int, acked: bool) -> None:
        message = self.sent.pop(publish_tag)
        returned = self._returned.pop(publish_tag, None) if self._returned else None
        if acked and returned is None:
            self._take(message)
        elif not self._insists:
            self.lost += 1
        else:
            self._hold(message, returned)
        self.wake()

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned[publish_tag] = returned

    def refused(self, publish_tag: int, error: HarebellError) -> None:
        self.orphaned(publish_tag, error)

    def orphaned(self, publish_tag: int, reason: HarebellError) -> None:
        """The channel has ended: the source delivers the message again."""
        if not self.failed.done():
            self.failed.set_result(reason)
        self.wake()

    def _take(self, message: InFlightMessage) -> None:
        if self._refused:
            self._refused.discard(message)
        if self.refusal is not None and not self._refused and not self.held:
            self.refusal, self._retries = None, 0
        self._accepted(message)

    def _hold(self, message: InFlightMessage, returned: Returned | None) -> None:
        new = self.refusal is None
        where = f"exchange '{message.exchange}' with routing key '{message.routing_key}'"
        if returned is None:
            self._refused.add(message)
            self.refusal = f"the destination refused a message to {where}: is its queue full?"
        else:
            self.refusal = (
                f"a message to {where} reaches no queue ({returned.reply_code} {returned.reply_text}): bind one to it"
            )
        if new:
            log.warning("%s: %s", self._name, self.refusal)
        self.held.append(message)
        if self._retry is None:
            self._retries += 1
            self._retry = self._loop.call_later(self._backoff.longest(self._retries), self._send_again)

    def _send_again(self) -> None:
        self._retry = None
        if self._refused and not self.sent and self._retries % PATIENCE == 0:
            self.stuck.set()
        else:
            self._send_held()

    def _send_held(self) -> None:
        held, self.held = self.held, []
        if self.channel.is_open:
            for message in held:
                self.send(message)

    def wake(self) -> None:
        """Make `changed` return."""
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
