"""The part of a consumer that queues use: its room for messages, and methods that deliver. Each dialect implements it.

A queue checks `room`, and delivers at most that many messages by the method that fits their place: in memory, read
ahead from its journal, with positions of their own, or as records of a log. It knows no channels or sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from harebell.broker.message import Held, Message
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.stream_log.records import Record
from harebell.protocol.v091 import Table
from harebell.routing.selectors import Selector

__all__ = ["OUTPUT_BYTES", "Consumer", "Getter", "Starving"]

OUTPUT_BYTES: Final = 1 << 18  # a consumer's share of output, after which the socket is checked for space


class Consumer(Protocol):
    """A consumer of a queue's messages.

    no_ack     its deliveries need no acknowledgement
    exclusive  the queue may have no other consumer
    priority   higher goes first
    arguments  those of the subscription: a place in a stream, a filter
    selector   the messages that it takes; None: all
    announces  whether its queue is notified whenever it has room again (`Consumers.reopen`, or `Queue.schedule`)
    aside      whether it waits for that, see `Consumers`
    """

    no_ack: bool
    exclusive: bool
    priority: int
    arguments: Table
    selector: Selector | None
    announces: bool
    aside: bool

    def room(self) -> int:
        """The number of messages that may be delivered now: 0 when a window or the socket is full."""

    def feed(self, ready: deque[Message], position: int, count: int, journal: Journal | None) -> int:
        """Deliver the first `count` messages of `ready`, or as many as one share of output holds. Returns their number.

        `position` is that of the first one in its queue. The caller has checked `room()`. The deliveries are noted in
        the queue's `journal` before any of them can leave the process.
        """

    def feed_ahead(self, journal: Journal, count: int) -> int:
        """Deliver `count` messages that the journal has read ahead, or one share of output. Returns their number."""

    def feed_held(self, messages: Sequence[Held]) -> None:
        """Deliver these messages, which have positions of their own in the queue."""

    def feed_records(self, records: Sequence[Record]) -> None:
        """Deliver records of a stream, which takes none back."""

    def redeliver(self, held: Held) -> None:
        """Deliver a message that was delivered before, or that has a position of its own in its queue."""

    def takes(self, held: Held) -> bool:
        """Whether the message fits the client's frame size; one that does not is requeued when it is delivered."""

    def show(self, held: Held) -> None:
        """Deliver a copy of a message that stays in the queue."""

    def watch_acks(self) -> None:
        """Notify the queue of each acknowledgement from now on, with the message (`Queue.acked`)."""

    def cancelled_by_broker(self) -> None:
        """End the consumer, and notify its client: the queue is gone, or browsing has reached its end."""


class Starving(Protocol):
    """A consumer with credit in bytes: `starved` while the next message for it costs more than it has."""

    starved: bool


class Getter(Protocol):
    """A user of basic.get, which takes single messages and will acknowledge them."""

    def watch_acks(self) -> None:
        """Notify the queue of each acknowledgement, as `Consumer.watch_acks`."""
