"""What became of publications: a stream of confirmations, and the outcome of one `publish_bulk`."""

from __future__ import annotations

from typing import Self

from harebell import errors
from harebell.client import confirms as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread
from harebell.client.messages import Confirmation, Returned

__all__ = ["Bulk", "Confirmations"]


class Confirmations:
    """What became of the publications of `channel.send`, as an iterator. Made by `channel.confirmations`.

    It ends when the channel is closed: without an error after our own close, else with the reason.
    """

    def __init__(self, owner: object, io: IoThread, inner: asyncio_api.Confirmations) -> None:
        self._owner = owner  # keeps the connection
        self._io = io
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Confirmation:
        try:
            return self._inner.waiting.popleft()
        except IndexError:
            pass
        try:
            return self._io.run_or_undo(self._inner.waiting.appendleft, self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


@documented_by(asyncio_api.Bulk)
class Bulk:
    """What becomes of the publications of one `channel.publish_bulk`, each known by its place in it.

    count  how many they are
    """

    def __init__(self, io: IoThread, inner: asyncio_api.Bulk) -> None:
        self._io = io
        self._inner = inner
        self.count = inner.count

    @property
    def settled(self) -> int:
        """How many have an answer, or will never have one."""
        return self._inner.settled

    @property
    def returns(self) -> dict[int, Returned]:
        """What came back of mandatory ones that reached no queue, by place; the broker confirms these too."""
        return self._inner.returns

    @property
    def refusals(self) -> dict[int, errors.HarebellError]:
        """The broker's error for one because of which it closed the channel, by place."""
        return self._inner.refusals

    @property
    def acked(self) -> int:
        with self._io.turn:
            return self._inner.acked

    @property
    def nacked(self) -> list[int]:
        with self._io.turn:
            return self._inner.nacked

    @property
    def unanswered(self) -> list[int]:
        with self._io.turn:
            return self._inner.unanswered

    def wait(self, *, timeout: float | None = None) -> None:
        inner = self._inner
        if inner.failure is None and inner.settled == inner.count:
            return
        self._io.run(inner.wait, timeout=timeout)
