"""Takes messages from a queue on one connection: never more of them than are wanted, so that none has to be given back.

A consumer has up to `window` messages in flight, and an acknowledgement lets the broker send as many again. So the
window is at most what is still wanted, and before an acknowledgement that would let it send more than that, the
consumer ends; what it was sent until then is kept. It knows neither files nor rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from warren.errors import AccessRefused, InvalidArgument
from warren.spark.amqp import Link
from warren.spark.options import SourceOptions

if TYPE_CHECKING:
    from warren.client.records import Delivery

__all__ = ["Intake"]

LATE: Final = 0.05  # seconds: a broker may say "empty" just before what it has sent out arrives
KEEP_BYTES: Final = 32 << 20  # of what is kept when a consumer ends; the rest goes back
LOOK_AGAIN: Final = 0.2  # seconds between two looks at whether the other consumers are gone


class Intake:
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

    @property
    def consuming(self) -> bool:
        return self._window > 0

    def open(self, wanted: int) -> None:
        """Starts a consumer when there is none and more than what is kept is wanted."""
        window = min(self._options.drain_prefetch, wanted - len(self.kept))
        if self._window == 0 and window > 0:
            if self._options.ordered:
                self._consume_alone(window)
            else:
                self.link.consume(self._queue, window)
            self._window, self._unacked, self._since = window, 0, 0

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
        return self._received(most, seconds) if most > 0 else []

    def full(self) -> bool:
        """Whether nothing more comes before an acknowledgement."""
        return not self.kept and self._unacked >= self._window

    def close_if_beyond(self, left: int) -> None:
        """Ends the consumer when acknowledging now could bring more than `left` messages after those received."""
        if self._window and left < self._window:
            self.close()

    def close(self) -> None:
        """Ends the consumer, and keeps what is on its way for `kept`."""
        size = sum(delivery.body_size for delivery in self.kept)
        while self._unacked < self._window and size < KEEP_BYTES:
            got = self._received(self._window - self._unacked, LATE)
            if not got:
                break
            size += sum(delivery.body_size for delivery in got)
            self.kept += got
        self.link.cancel()
        self._window = 0

    def ack(self, delivery_tag: int) -> None:
        """Acknowledges everything up to and with this one."""
        self.link.ack(delivery_tag)
        if self._since and delivery_tag >= self._since:
            self._unacked -= delivery_tag - self._since + 1
            self._since = delivery_tag + 1

    def _received(self, most: int, seconds: float) -> list[Delivery]:
        got = self.link.receive(most, seconds)
        if got:
            self._unacked += len(got)
            self._since = self._since or got[0].delivery_tag
        return got

    def _consume_alone(self, window: int) -> None:
        """Consumes where no other consumer is. Raises InvalidArgument when others stay for read_timeout seconds."""
        deadline = time.monotonic() + self._options.read_timeout
        while (others := self.link.state(self._queue)[1]) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN)  # one of a task that was killed a moment ago may be among them
        if not others:
            try:
                self.link.consume(self._queue, window, exclusive=True)
            except AccessRefused as error:
                if "exclusive" not in error.detail:
                    raise
                # No consumer may be exclusive on a queue with a single active consumer: there the broker takes care.
                self.link.reset()
                self.link.consume(self._queue, window)
            # RabbitMQ's quorum queues let any number of exclusive consumers in.
            others = self.link.state(self._queue)[1] - 1
        if others > 0:
            raise InvalidArgument(
                f"queue '{self._queue}' has {others} other consumer{'s' * (others > 1)}, and with ordered=true it is "
                "read by one alone: stop the others, or leave 'ordered' out"
            )
