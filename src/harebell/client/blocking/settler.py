"""What a channel and its deliveries settle through: the calling thread takes the turn, and does it itself.

It knows no connection, because a delivery that is kept must not keep its connection open.
"""

from __future__ import annotations

from harebell.client import channel as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread

__all__ = ["Settler"]


@documented_by(asyncio_api.Channel)
class Settler:
    """Settles with the turn in hand: a channel, and on its behalf each of its deliveries."""

    def __init__(self, io: IoThread, inner: asyncio_api.Channel) -> None:
        self.io = io
        self.inner = inner

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        io = self.io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self.inner.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        io = self.io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self.inner.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        io = self.io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self.inner.reject(delivery_tag, requeue=requeue)
