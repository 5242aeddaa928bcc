"""Input of a connection that was received but not yet processed.

There are two reasons: during an alarm, a publication and everything after it on its channel wait; and all input waits
while the client does not take its output. Other channels are processed during an alarm, so that a client can
acknowledge deliveries while it may not publish; RabbitMQ does not read a connection that has published. The order of a
channel is preserved: an acknowledgement never overtakes an earlier publication, nor does a close of the channel or the
connection.

Each dialect says by which types it knows publications and the close of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

__all__ = ["METHOD_BYTES", "DeferredInput"]

METHOD_BYTES: Final = 64  # the size of a method in this count; others have sizes of their own

T = TypeVar("T")


class DeferredInput(Generic[T]):
    """Events that wait; `size` is their approximate number of bytes.

    publications  the types of what a client publishes, each with what gives its bytes
    close         the type that ends the connection
    many          the types that stand for many methods, each with what gives its bytes
    """

    __slots__ = ("_channels", "_close", "_events", "_publications", "_sizes", "size")

    def __init__(
        self,
        publications: Mapping[type[Any], Callable[[Any], int]],
        close: type[object],
        many: Mapping[type[Any], Callable[[Any], int]] = MappingProxyType({}),
    ) -> None:
        self.size = 0
        self._publications, self._close = publications, close
        self._sizes = {**publications, **many}
        self._events: list[tuple[int, T]] = []
        self._channels: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._events)

    def sift(self, events: Iterable[tuple[int, T]]) -> list[tuple[int, T]]:
        """The events that may be processed during an alarm; the others are deferred."""
        channels, free = self._channels, []
        for each in events:
            number, event = each
            if number in channels or (channels and isinstance(event, self._close)):
                self._defer(each)
            elif type(event) in self._publications:
                channels.add(number)
                self._defer(each)
            else:
                free.append(each)
        return free

    def add(self, events: Iterable[tuple[int, T]]) -> None:
        """Defer all of these events."""
        for each in events:
            self._defer(each)

    def take(self) -> list[tuple[int, T]]:
        """Take out all deferred events, in the order in which they arrived."""
        events = self._events
        self.clear()
        return events

    def clear(self) -> None:
        self.size, self._events = 0, []
        self._channels.clear()

    def _defer(self, each: tuple[int, T]) -> None:
        size_of = self._sizes.get(type(each[1]))
        self._events.append(each)
        self.size += METHOD_BYTES if size_of is None else size_of(each[1])
