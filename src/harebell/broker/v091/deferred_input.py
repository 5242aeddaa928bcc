"""Input of a connection that was received but not yet processed.

It waits for two things: for an alarm to end, where it is a publication or stands behind one on its channel; or, all of
it, for the client to take what it was sent. Other channels go on during an alarm, so that a client can acknowledge what
it consumes while it may not publish; RabbitMQ reads nothing of a connection that has published. The order of a channel
is kept: an acknowledgement never overtakes the publication before it, nor a close, of the channel or of the connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harebell.protocol.v091 import Content, methods as m
from harebell.protocol.v091.engine import Event

__all__ = ["DeferredInput"]

METHOD_BYTES: Final = 64  # what a method counts for; a publication counts its frames


class DeferredInput:
    """`size` is about how many bytes wait."""

    __slots__ = ("_channels", "_events", "size")

    def __init__(self) -> None:
        self.size = 0
        self._events: list[Event] = []
        self._channels: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._events)

    def sift(self, events: Iterable[Event]) -> list[Event]:
        """Those that may be processed during an alarm; the others wait."""
        channels, free = self._channels, []
        for each in events:
            number, event = each
            if number in channels or (channels and isinstance(event, m.ConnectionClose)):
                self._defer(each)
            elif type(event) is Content:
                channels.add(number)
                self._defer(each)
            else:
                free.append(each)
        return free

    def add(self, events: Iterable[Event]) -> None:
        """All of them wait."""
        for each in events:
            self._defer(each)

    def take(self) -> list[Event]:
        """What waited, in the order in which it came; nothing waits any more."""
        events = self._events
        self.clear()
        return events

    def clear(self) -> None:
        self.size, self._events = 0, []
        self._channels.clear()

    def _defer(self, each: Event) -> None:
        event = each[1]
        self._events.append(each)
        self.size += len(event.frames) if isinstance(event, Content) else METHOD_BYTES
