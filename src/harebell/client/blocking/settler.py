"""What a channel and its deliveries settle through: the calling thread takes the turn, and does it itself.

It knows no connection, because a delivery that is kept must not keep its connection open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from harebell import errors
from harebell.client import channel as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread

__all__ = ["Settler"]

NONE: Final[frozenset[int]] = frozenset()


@documented_by(asyncio_api.Channel)
class Settler:
    """Settles with the turn in hand: a channel, and on its behalf each of its deliveries."""

    def __init__(self, io: IoThread, inner: asyncio_api.Channel) -> None:
        self.io = io
        self.inner = inner

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        io, settle = self.io, partial(self.inner.ack, delivery_tag, multiple=multiple)
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._whole(settle, delivery_tag, multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        io, settle = self.io, partial(self.inner.nack, delivery_tag, multiple=multiple, requeue=requeue)
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._whole(settle, delivery_tag, multiple)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        io, settle = self.io, partial(self.inner.reject, delivery_tag, requeue=requeue)
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._whole(settle, delivery_tag, False)

    def _whole(self, settle: Callable[[], None], delivery_tag: int, multiple: bool) -> None:
        """Settle; where a signal comes in the midst of that, nothing is settled, and the program may do it again."""
        channel = self.inner
        deliveries, engine = channel.core.deliveries, channel.transport.engine
        unacked, written = deliveries.unacked, engine.pending
        before = unacked.copy() if multiple else {delivery_tag} if delivery_tag in unacked else NONE
        try:
            settle()
        except errors.HarebellError:
            raise
        except BaseException:
            engine.take_back(written)
            deliveries.unsettle(before - unacked)
            raise
