"""A subscription of a session as an iterator, for any number of threads.

    for delivery in session.consume("work", window=500):
        delivery.accept()

The deliveries are the asyncio consumer's: a thread takes them from its subscription without the turn, one call of C
each. Only those that there is nothing to settle of are reported, with the turn in hand.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, cast

from harebell import errors
from harebell.client import sessions as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.sessions.delivery import Delivery
from harebell.client.blocking.thread import IoThread, Waiter
from harebell.client.core.slots import copy_of
from harebell.client.seconds import seconds_of
from harebell.client.sessions.core.subscription import Subscription
from harebell.client.sessions.messages import BaseDelivery

__all__ = ["Consumer"]


@documented_by(asyncio_api.Consumer)
class Consumer:
    """An iterator of Delivery, made by `session.consume` or `session.browse`; it subscribes when it is first asked.

    Several threads may iterate over one consumer; each delivery goes to one of them. Leaving the `with` block, or
    dropping the iterator, cancels the subscription and releases what was not taken.
    """

    def __init__(self, owner: object, io: IoThread, inner: asyncio_api.Consumer) -> None:
        self._owner = owner  # keeps the connection
        self._io = io
        self._inner = inner

    @property
    def tag(self) -> str:
        return self._inner.tag

    @property
    def buffered(self) -> int:
        return self._inner.buffered

    def start(self) -> None:
        self._io.run(self._inner.start)

    def cancel(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.cancel, timeout=timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._io.run(self._inner.__aexit__, kind, error, traceback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        while True:
            buffer = self._inner.subscription.buffer
            if not buffer:
                self._started()
                if not self._wait(None):
                    raise StopIteration
                continue
            try:
                delivery = buffer.popleft()
            except IndexError:
                continue  # another thread was faster
            if delivery.settled or not delivery.acquired:
                self._took([delivery.number])
            return cast(Delivery, delivery)

    def receive(self, max_messages: int = 20_000, timeout: float | None = None) -> list[Delivery]:
        """What has arrived: waits for at least one delivery, gives at most `max_messages`.

        timeout  seconds; the connection's when left out

        [] when the timeout passed, or the subscription has ended by a cancel or close of our own. Otherwise it raises
        the reason of the end: what has ended the session, SessionStateLost.
        """
        if max_messages < 1:
            raise errors.InvalidArgument(f"max_messages is {max_messages}: at least 1 is needed")
        self._started()
        deadline = time.monotonic() + seconds_of(timeout, self._inner.core.timeout)
        while True:
            buffer = self._inner.subscription.buffer
            batch: list[BaseDelivery] = []
            try:
                while len(batch) < max_messages:
                    batch.append(buffer.popleft())
            except IndexError:
                pass
            if batch:
                if batch[0].settled or not batch[0].acquired:
                    self._took([delivery.number for delivery in batch])
                return cast("list[Delivery]", batch)
            if not self._wait(deadline):
                return []

    def _took(self, numbers: list[int]) -> None:
        """Report deliveries that there is nothing to settle of: the window counts them until then."""
        io, core = self._io, self._inner.core
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            core.flush()
            core.deliveries.settlements.taken.extend(numbers)

    def _started(self) -> None:
        starting = self._inner.starting
        if starting is None or not starting.done():
            self.start()

    def _wait(self, deadline: float | None) -> bool:
        """Wait for a delivery. False when the subscription has ended, or the deadline has passed."""
        io, subscription = self._io, self._inner.subscription
        while not subscription.buffer:
            if subscription.finished:  # there may be no turn to take: the interpreter ends
                if subscription.reason is not None:
                    raise copy_of(subscription.reason)
                return False
            io.check()
            waiter = Waiter(io)
            try:
                with io.turn:
                    if subscription.buffer or subscription.finished:
                        continue
                    subscription.waiters.append(waiter)
                in_time = waiter.wait(-1 if deadline is None else max(deadline - time.monotonic(), 0.0))
            except BaseException:  # raised by a signal handler
                with io.turn:
                    _stop_waiting(subscription, waiter)
                raise
            if not in_time:
                with io.turn:
                    _stop_waiting(subscription, waiter)
                return bool(subscription.buffer)
        return True


def _stop_waiting(subscription: Subscription, waiter: Waiter) -> None:
    if waiter in subscription.waiters:
        subscription.waiters.remove(waiter)
    elif subscription.buffer:
        subscription.wake()  # it was woken and leaves: the next waiter takes the delivery
