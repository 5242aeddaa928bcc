"""What happens to a connection: `for event in connection.events()`."""

from __future__ import annotations

from typing import Self

from harebell.client import events as e
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread

__all__ = ["Events"]


@documented_by(e.Events)
class Events:
    """The events of one connection from now on, as an iterator; Closed is the last one.

    Made by `connection.events()`. Waiting can be interrupted and taken up again without losing an event.
    """

    def __init__(self, owner: object, io: IoThread, inner: e.Events) -> None:
        self._owner = owner  # keeps the connection
        self._io = io
        self._inner = inner

    def close(self) -> None:
        with self._io.turn:
            self._inner.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> e.Event:
        try:
            return self._inner.waiting.popleft()
        except IndexError:
            pass
        try:
            return self._io.run_or_undo(self._inner.waiting.appendleft, self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
