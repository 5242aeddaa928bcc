"""A consumer as a queue knows it: room for messages, and ways to be given some. Each dialect has its own behind it.

A queue asks for `room`, and gives at most that many messages by the method that fits where they are: in memory, read
ahead from its journal, with places of their own, or as records of a log. It never looks at channels or sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from harebell.broker.message import Held, Message
from harebell.broker.store.journal import Journal
from harebell.broker.store.stream_records import Record
from harebell.protocol.v091 import Table

__all__ = ["OUTPUT_BYTES", "Consumer", "Getter"]

OUTPUT_BYTES: Final = 1 << 18  # a consumer's share before the socket is asked whether it takes more


class Consumer(Protocol):
    """What takes messages of a queue.

    no_ack     what it is given is done with
    exclusive  no other consumer may be beside it
    priority   higher goes first
    arguments  what it asked for when it came: a place in a stream, a filter
    """

    no_ack: bool
    exclusive: bool
    priority: int
    arguments: Table

    def room(self) -> int:
        """How many messages may be delivered now: 0 when a window is full or the socket is."""

    def feed(self, ready: deque[Message], position: int, count: int, journal: Journal | None) -> int:
        """Deliver the first `count` messages of `ready`, or as many as one share of output holds; how many.

        `position` is that of the first one in its queue. The caller has asked `room()`. The queue's `journal` is told
        before any of it can leave the process.
        """

    def feed_ahead(self, journal: Journal, count: int) -> int:
        """Deliver `count` of the messages that the journal has read ahead, or one share of output; how many."""

    def feed_held(self, messages: Sequence[Held]) -> None:
        """Deliver these messages, which have places of their own in the queue."""

    def feed_records(self, records: Sequence[Record]) -> None:
        """Deliver records of a stream, which needs none back."""

    def redeliver(self, held: Held) -> None:
        """Deliver a message that was delivered before, or that has a place of its own in its queue."""

    def takes(self, held: Held) -> bool:
        """Whether its client can be sent this message at all; one that cannot comes back when it is delivered."""

    def show(self, held: Held) -> None:
        """Deliver a copy of a message that stays in the queue."""

    def watch_acks(self) -> None:
        """From now on tell the queue of each acknowledgement, with the message (`Queue.acked`)."""

    def cancelled_by_broker(self) -> None:
        """The queue is gone, or has nothing more: end the consumer, and tell its client."""


class Getter(Protocol):
    """What takes single messages by asking for them (basic.get), and will acknowledge them."""

    def watch_acks(self) -> None:
        """As `Consumer.watch_acks`."""
