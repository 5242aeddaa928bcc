"""A delivery of the blocking API of sessions, and what settles it: the calling thread, with the turn in hand.

Nothing here knows the connection, because a delivery that is kept must not keep its connection open.
"""

from __future__ import annotations

from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread
from harebell.client.sessions import Delivery as AsyncDelivery
from harebell.client.sessions.core.deliveries import Deliveries
from harebell.client.sessions.messages import BaseDelivery

__all__ = ["Delivery", "Settler"]


@documented_by(AsyncDelivery)
class Delivery(BaseDelivery):
    """A message that came to a consumer, or as the answer to `get`."""

    __slots__ = ()

    def acquire(self, *, timeout: float | None = None) -> bool:
        return bool(self.settler.acquire(self, timeout))


class Settler:
    """Settles the deliveries of one session with the turn in hand."""

    def __init__(self, io: IoThread, deliveries: Deliveries) -> None:
        self._io = io
        self._deliveries = deliveries

    def accept(self, delivery: BaseDelivery) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._deliveries.accept(delivery)

    def release(self, delivery: BaseDelivery, *, set_redelivered: bool) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._deliveries.release(delivery, set_redelivered=set_redelivered)

    def reject(self, delivery: BaseDelivery, text: str | None) -> None:
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._deliveries.reject(delivery, text)

    def acquire(self, delivery: BaseDelivery, timeout: float | None) -> bool:
        return self._io.run(self._deliveries.acquire, delivery, timeout)
