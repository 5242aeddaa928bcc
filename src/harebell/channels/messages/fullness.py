"""Which process-local channels are full, so that their senders get ChannelFull. In the I/O thread.

A message to a process-local channel leaves the broker at once and waits in its process's mailbox. The process knows
when that is full. Its own senders ask it before they send. The sender of another process is told when its message has
filled the mailbox ("full"), or came after that, and again when a reader has taken one ("room"); in between, its sends
are refused. What was on its way meanwhile waits beyond the capacity, as many as the capacity says again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from harebell.channels.links.connection import LayerConnection
from harebell.channels.messages.controls import Controls
from harebell.channels.messages.mailboxes import Mailboxes
from harebell.channels.messages.publishing import sender_of
from harebell.channels.names import owner_of
from harebell.protocol.v091 import Table

__all__ = ["Fullness"]

LASTS: Final = 5.0  # seconds after which a channel is tried again: its process may have ended, or "room" was lost
NOTICE_MS: Final = 5000  # after which a notice says nothing any more
KNOWN: Final = 10_000  # full channels, and channels sent to, that are remembered


class Fullness:
    """The process-local channels that are full, of this process and of those it sends to."""

    def __init__(self, connection: LayerConnection, boxes: Mailboxes, controls: Controls) -> None:
        self._connection = connection
        self._boxes = boxes
        self._controls = controls
        self._full: OrderedDict[str, float] = OrderedDict()  # of other processes: when they are tried again
        self._told: dict[str, set[str]] = {}  # by own channel: the layers that think it is full
        self._own: dict[str, tuple[int, float]] = {}  # messages that this process sends itself, and since when
        self._listening = False
        controls.other["full"] = self._hear_full
        controls.other["room"] = self._hear_room

    def is_full(self, channel: str, on_way: int) -> bool:
        """Whether a message to a channel must be refused.

        on_way  messages of this process to it that have no answer yet
        """
        owner = owner_of(channel)
        if owner is None:
            return False  # its queue counts
        if owner == self._connection.client_id:
            box = self._boxes.get(channel)
            return box is not None and len(box) + max(on_way, self._coming(channel)) >= box.capacity
        if not self._listening:
            self._listening = True
            self._connection.thread.start(self._listen())
        until = self._full.get(channel)
        if until is None:
            return False
        if time.monotonic() < until:
            return True
        del self._full[channel]
        return False

    # A message to a channel of this process may be confirmed before it comes back and is in the mailbox.

    def sending(self, channel: str) -> None:
        """Note that this process sends a message to the channel."""
        if owner_of(channel) == self._connection.client_id:
            self._own[channel] = self._coming(channel) + 1, time.monotonic()

    def arrived(self, channel: str) -> None:
        """Note that such a message has come, or will not come."""
        count, at = self._own.get(channel, (0, 0.0))
        if count > 1:
            self._own[channel] = count - 1, at
        else:
            self._own.pop(channel, None)

    def _coming(self, channel: str) -> int:
        count, at = self._own.get(channel, (0, 0.0))
        return count if time.monotonic() - at < LASTS else 0

    async def _listen(self) -> None:
        try:
            await self._controls.ensure()
        except Exception:
            self._listening = False  # the message that is being sent has the same error

    def filled(self, channel: str, sent: object) -> None:
        """Note that the mailbox of an own channel is full; the message that was put last, or dropped, has that id."""
        sender, box = sender_of(sent), self._boxes.get(channel)
        if sender is None or box is None or sender == self._connection.client_id:
            return
        if len(self._told) >= KNOWN:
            self._told.clear()
        self._told.setdefault(channel, set()).add(sender)
        self._tell("full", channel, sender)
        thread = self._connection.thread
        box.told = lambda: thread.post(lambda: self._has_room(channel))
        if not box.full:  # a reader has taken one meanwhile
            self._has_room(channel)

    def _has_room(self, channel: str) -> None:
        for sender in self._told.pop(channel, ()):
            self._tell("room", channel, sender)

    def _tell(self, word: str, channel: str, layer: str) -> None:
        names = self._connection.names
        self._controls.say_later(word, channel.encode(), names.control(layer), ms=NOTICE_MS)

    def _hear_full(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        channel = body.decode()
        self._full[channel] = time.monotonic() + LASTS
        self._full.move_to_end(channel)
        if len(self._full) > KNOWN:
            self._full.popitem(last=False)

    def _hear_room(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        self._full.pop(body.decode(), None)
