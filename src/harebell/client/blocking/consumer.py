"""A subscription as an iterator, for any number of threads.

    for delivery in channel.consume("work", prefetch=500):
        delivery.ack()

The deliveries are the asyncio consumer's: this takes them from its subscription, many at a time, with the turn in hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Final, Self

from harebell import errors
from harebell.client import consumer as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.thread import IoThread, Waiter
from harebell.client.callbacks import check_plain
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery
from harebell.client.recovery.subscription import Subscription
from harebell.client.seconds import seconds_of

__all__ = ["Consumer"]

AHEAD: Final = 256  # deliveries taken from the loop at a time


@documented_by(asyncio_api.Consumer)
class Consumer:
    """An iterator of Delivery, made by `channel.consume`; it subscribes when it is entered or first asked.

    Several threads may iterate over one consumer; each delivery goes to one of them. Leaving the `with` block, or
    dropping the iterator, cancels the subscription and gives back what was not taken.
    """

    def __init__(self, owner: object, io: IoThread, inner: asyncio_api.Consumer) -> None:
        self._owner = owner  # keeps the connection
        self._io = io
        self._inner = inner
        self._ahead = inner.subscription.ahead

    @property
    def tag(self) -> str:
        return self._inner.tag

    @property
    def buffered(self) -> int:
        return self._inner.buffered

    def start(self) -> None:
        self._io.run(self._inner.start)

    def cancel(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        self._io.run(self._inner.cancel, requeue=requeue, timeout=timeout)

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
            try:
                return self._ahead.popleft()
            except IndexError:
                pass
            self._started()
            if self._wait(None):
                self._fetch()
            else:
                raise StopIteration

    def each(self, callback: Callable[[Delivery], object]) -> None:
        """Hand every delivery to a function, until the subscription ends; then return or raise as the iteration does.

        callback  called by the thread that calls this. What it raises ends the subscription, and is raised here. What
                  was not handed out goes back to the queue.
        """
        check_plain("the callback", callback, "delivery")
        with self:
            for delivery in self:
                callback(delivery)

    def receive(
        self, max_messages: int = 20_000, timeout: float | None = None, *, within: float = 0.0
    ) -> list[Delivery]:
        if max_messages < 1:
            raise errors.InvalidArgument(f"max_messages is {max_messages}: at least 1 is needed")
        seconds = seconds_of(timeout, self._inner.subscription.transport.timeout)
        within = seconds_of(within, 0.0)
        deadline = time.monotonic() + seconds
        self._started()
        batch: list[Delivery] = []
        try:
            while not self._take(batch, max_messages) and self._wait(deadline):
                pass
            last = time.monotonic() + within
            while within and batch and len(batch) < max_messages and not self._inner.subscription.finished:
                try:
                    if not self._wait(last):
                        break
                except errors.HarebellError:
                    break  # the next call raises it: this batch comes first
                self._take(batch, max_messages)
        except BaseException:  # raised by a signal handler
            self._ahead.extendleft(reversed(batch))
            raise
        return batch

    def _take(self, batch: list[Delivery], most: int) -> bool:
        """Add what is there, until the batch has so many. Whether it has any."""
        io, ahead = self._io, self._ahead
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            self._inner.subscription.move(max(most - len(batch) - len(ahead), 0), ahead)
            try:
                batch.extend(islice(iter(ahead.popleft, None), most - len(batch)))  # one operation of C
            except IndexError:
                pass  # there are no more; those that there were are in the batch
        return bool(batch)

    def _started(self) -> None:
        if not self._inner.started:
            self.start()
        # A start makes another subscription when one before it was interrupted; it may have been interrupted itself,
        # when it was done.
        self._ahead = self._inner.subscription.ahead

    def _fetch(self) -> None:
        """Take some deliveries from the subscription, to be given out later without the turn."""
        io = self._io
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            subscription = self._inner.subscription
            subscription.move(AHEAD, subscription.ahead)

    def _wait(self, deadline: float | None) -> bool:
        """Wait for a delivery. False when the subscription has ended, or the deadline has passed."""
        io, subscription = self._io, self._inner.subscription
        while not subscription.buffer and not subscription.ahead:
            if subscription.finished:  # nothing changes it any more; there may be no turn to take: the interpreter ends
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
