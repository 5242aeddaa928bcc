"""The blocking API: what lies in a dead-letter queue, and why: `for letter in connection.dead_letters("work.dead")`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from harebell.client.blocking.settler import Settler
from harebell.client.channel import Channel
from harebell.client.messages import Delivery
from harebell.client.patterns.reader import QueueReader
from harebell.client.patterns.retry import DeadLetter, dead_letter_of

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["DeadLetters"]


class DeadLetters:
    """An iterator of DeadLetter, for any number of threads. Made by `connection.dead_letters`.

    It subscribes when it is entered or first asked. Leaving the `with` block gives back what was not acknowledged.
    """

    def __init__(self, connection: Connection, queue: str, prefetch: int, timeout: float | None) -> None:
        self._io = io = connection.io
        self._connection = connection  # keeps it open

        def prepare(channel: Channel) -> None:
            channel.core.settler = Settler(io, channel)

        with io.turn:
            self._reader = QueueReader(
                connection.inner, queue, prefetch=prefetch, resubscribe=False, exclusive=False, arguments=None,
                timeout=timeout, prepare=prepare,
            )  # fmt: skip

    def __enter__(self) -> Self:
        self._io.run(self._reader.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            with self._io.turn:
                self._reader.abandon()  # an interrupted program does not wait for the network
            return
        self._io.run(self._reader.__aexit__, kind, error, traceback)

    def close(self) -> None:
        """End it, and close its channel: what was not acknowledged goes back to the queue."""
        self._io.run(self._reader.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> DeadLetter:
        def give_back(delivery: Delivery) -> None:
            self._reader.channel.core.settlement.give_back(delivery)

        try:
            return dead_letter_of(self._io.run_or_undo(give_back, self._reader.__anext__))
        except StopAsyncIteration:
            raise StopIteration from None
