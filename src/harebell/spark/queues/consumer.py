"""Consumes from a queue on one connection: never more messages than are wanted, so that none has to be requeued.

A consumer has up to `window` messages in flight, and an acknowledgement lets the broker send as many again. So the
window is at most what is still wanted, and before an acknowledgement that would let it send more than that, the
consumer ends; what it was sent until then is kept. The first window is small, and tells how large messages are: answers
of the broker come behind the messages that it has sent, so what is in flight has to stay small in bytes too.

It knows neither files nor rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harebell.errors import AccessRefused, InvalidArgument
from harebell.spark.connection import Link
from harebell.spark.options import SourceOptions

if TYPE_CHECKING:
    from harebell.client.messages import Delivery

__all__ = ["QueueConsumer"]

FIRST_WINDOW: Final = 10  # messages
WINDOW_BYTES: Final = 64 << 20  # of bodies in flight, as far as the sizes until now tell
CHECK_SECONDS: Final = 0.2  # between two checks whether the other consumers are gone


class QueueConsumer:
    """The consumer of a drain on one connection; there may be several consumers after each other.

    `kept` are messages that were received and belong to the next segment.
    """

    def __init__(self, link: Link, options: SourceOptions, queue: str) -> None:
        self.link = link
        self.kept: list[Delivery] = []
        self._options = options
        self._queue = queue
        self._window = 0  # of the consumer; 0 when there is none
        self._unacked = 0  # of its messages, received and not acknowledged
        self._since = 0  # the first delivery tag that is this consumer's
        self._exclusive: bool | None = None  # how the first consumer was alone
        self._received = self._size = 0  # messages on this connection, bytes of their bodies

    @property
    def consuming(self) -> bool:
        return self._window > 0

    def open(self, wanted: int) -> None:
        """Starts a consumer when there is none and more than what is kept is wanted."""
        window = min(self._fitting(), wanted - len(self.kept))
        if self._window == 0 and window > 0:
            if self._options.ordered:
                self._consume_alone(window)
            else:
                self.link.consume(self._queue, window)
            self._window, self._unacked, self._since = window, 0, 0

    def widen(self, wanted: int) -> bool:
        """When all of a small window is there: whether a larger one takes its place, for so many more messages."""
        if not self._window or self._unacked < self._window or min(self._fitting(), wanted) < 2 * self._window:
            return False
        self.close()
        self.open(wanted)
        return True

    def renew(self) -> None:
        """Consumes anew. A classic queue of RabbitMQ gives its next single active consumer nothing before that."""
        window = self._window
        self.close()
        self.open(window + len(self.kept))

    def receive(self, most: int, seconds: float) -> Sequence[Delivery]:
        """At most so many messages, the kept ones first; empty after that time, or when no more are wanted."""
        if self.kept:
            taken, self.kept = self.kept[:most], self.kept[most:]
            return taken
        most = min(most, self._window - self._unacked)
        return self._take(most, seconds) if most > 0 else []

    def full(self) -> bool:
        """Whether nothing more comes before an acknowledgement, or at all."""
        return not self.kept and self._unacked >= self._window

    def close_if_beyond(self, left: int) -> None:
        """Ends the consumer when acknowledging now could bring more than `left` messages after those received."""
        if self._window and left < self._window:
            self.close()

    def close(self) -> None:
        """Ends the consumer, and keeps what it was sent for `kept`.

        Given back, these would come behind later ones: the queue may have its next single active consumer by then.
        """
        if self._window:
            self.kept += self.on_its_way(self._window)
            self.kept += self._noted(self.link.cancel())
            self._window = 0

    def on_its_way(self, most: int) -> list[Delivery]:
        """The messages that the broker had sent to the consumer before this call, at most so many.

        The answer to a first question may overtake messages that were on their way inside the broker. They are out
        before it hears of a second one.
        """
        most = min(most, self._window - self._unacked)
        if most <= 0:
            return []
        for _ in range(2):
            self.link.state(self._queue)
        return self._take(most, 0)

    def ack(self, delivery_tag: int) -> None:
        """Acknowledges everything up to and with this one."""
        self.link.ack(delivery_tag)
        if self._since and delivery_tag >= self._since:
            self._unacked -= delivery_tag - self._since + 1
            self._since = delivery_tag + 1

    def _take(self, most: int, seconds: float) -> list[Delivery]:
        return self._noted(self.link.receive(most, seconds))

    def _noted(self, got: list[Delivery]) -> list[Delivery]:
        if got:
            self._unacked += len(got)
            self._since = self._since or got[0].delivery_tag
            self._received += len(got)
            self._size += sum([delivery.body_size for delivery in got])
        return got

    def _fitting(self) -> int:
        prefetch = self._options.drain_prefetch
        if not self._received:
            return min(prefetch, FIRST_WINDOW)
        return min(prefetch, max(2, WINDOW_BYTES * self._received // max(self._size, 1)))

    def _consume_alone(self, window: int) -> None:
        """Consumes where no other consumer is. Raises InvalidArgument when others stay for read_timeout seconds."""
        if self._exclusive is not None:
            # Once again, as before: a refusal would close the channel, and give back what is not acknowledged.
            try:
                self.link.consume(self._queue, window, exclusive=self._exclusive)
            except AccessRefused as error:
                raise self._not_alone(1) from error
            return
        deadline = time.monotonic() + self._options.read_timeout
        while (others := self.link.state(self._queue)[1]) and time.monotonic() < deadline:
            time.sleep(CHECK_SECONDS)  # one of a task that was killed a moment ago may be among them
        if others:
            raise self._not_alone(others)
        try:
            self.link.consume(self._queue, window, exclusive=True)
            self._exclusive = True
        except AccessRefused as error:
            if "exclusive" not in error.detail:
                raise
            # No consumer may be exclusive on a queue with a single active consumer: there the broker takes care.
            self.link.reset()
            self.link.consume(self._queue, window)
            self._exclusive = False
        # RabbitMQ's quorum queues let any number of exclusive consumers in.
        others = self.link.state(self._queue)[1] - 1
        if others > 0:
            raise self._not_alone(others)

    def _not_alone(self, others: int) -> InvalidArgument:
        return InvalidArgument(
            f"queue '{self._queue}' has {others} other consumer{'s' * (others > 1)}, and with ordered=true it is read "
            "by one alone: stop the others, or leave 'ordered' out"
        )
