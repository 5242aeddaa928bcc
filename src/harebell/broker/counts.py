"""Counters with RabbitMQ's names: plain integers that queues, channels and the node increment.

Counting must cost almost nothing, so hardly anything is counted per message. A publication adds one to its `Target`; a
consumer adds the size of each share delivered to it, and of each acknowledgement. `flush_counts` (of publishers and
consumers) moves these to the counts here, when the target or the consumer goes and when statistics are asked for.
`operations.statistics` makes the report.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, Protocol

__all__ = [
    "AMQP091",
    "AMQP010",
    "ChannelCounts",
    "Churn",
    "ExchangeCounts",
    "Histogram",
    "Lasting",
    "QueueCounts",
    "Traffic",
]

AMQP091: Final = "amqp091"  # RabbitMQ's words for protocols
AMQP010: Final = "amqp010"


class ExchangeCounts:
    """The counts of an exchange: `publish_in` messages arrived and went to `publish_out` queues, each queue counted."""

    __slots__ = ("publish_in", "publish_out")

    def __init__(self) -> None:
        self.publish_in = self.publish_out = 0

    def report(self) -> dict[str, int]:
        return {"publish_in": self.publish_in, "publish_out": self.publish_out}


class QueueCounts:
    """The messages that entered and left one queue. `redeliver`: the deliveries and gets that were redeliveries."""

    __slots__ = ("ack", "deliver", "deliver_no_ack", "get", "get_empty", "get_no_ack", "publish", "redeliver")

    def __init__(self) -> None:
        self.publish = self.ack = self.redeliver = 0
        self.deliver = self.deliver_no_ack = 0
        self.get = self.get_no_ack = self.get_empty = 0

    def add(self, other: QueueCounts) -> None:
        """Written out: thousands are added up every few seconds."""
        self.publish += other.publish
        self.ack += other.ack
        self.redeliver += other.redeliver
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty

    def subtract(self, other: QueueCounts) -> None:
        for name in QueueCounts.__slots__:
            setattr(self, name, getattr(self, name) - getattr(other, name))

    def report(self) -> dict[str, int]:
        return {
            "publish": self.publish,
            "ack": self.ack,
            "deliver": self.deliver,
            "deliver_no_ack": self.deliver_no_ack,
            "get": self.get,
            "get_no_ack": self.get_no_ack,
            "get_empty": self.get_empty,
            "deliver_get": self.deliver + self.deliver_no_ack + self.get + self.get_no_ack,
            "redeliver": self.redeliver,
        }


class ChannelCounts(QueueCounts):
    """The counts of one channel or of many, with those of its publications."""

    __slots__ = ("confirm", "drop_unroutable", "return_unroutable")

    def __init__(self) -> None:
        super().__init__()
        self.confirm = self.return_unroutable = self.drop_unroutable = 0

    def add(self, other: QueueCounts) -> None:
        super().add(other)
        if isinstance(other, ChannelCounts):
            self.confirm += other.confirm
            self.return_unroutable += other.return_unroutable
            self.drop_unroutable += other.drop_unroutable

    def report(self) -> dict[str, int]:
        return {
            **super().report(),
            "confirm": self.confirm,
            "return_unroutable": self.return_unroutable,
            "drop_unroutable": self.drop_unroutable,
        }


class Traffic(Protocol):
    """The counts of a connection: bytes, and reads and writes."""

    recv_oct: int
    send_oct: int
    recv_cnt: int
    send_cnt: int


class Lasting:
    """The counts of a node that outlast its channels, queues and virtual hosts, so that they never become smaller.

    publications  the counts of closed channels, by protocol
    confirmable   the publications of closed channels that had confirms, by protocol
    gone          those of deleted queues, by type. A deleted queue counts there what comes of it later
    amqp010       what subscriptions of AMQP 0-10 did to queues, deleted ones or not, by type of queue. The rest of a
                  queue's counts is 0-9-1's, which so costs nothing
    dead          messages that died, by type of queue, what becomes of its dead letters, and why
    recv_oct, send_oct, recv_cnt, send_cnt   bytes, and reads and writes, of closed connections
    """

    def __init__(self) -> None:
        self.publications: defaultdict[str, ChannelCounts] = defaultdict(ChannelCounts)
        self.confirmable: Counter[str] = Counter()
        self.gone: defaultdict[str, QueueCounts] = defaultdict(QueueCounts)
        self.amqp010: defaultdict[str, QueueCounts] = defaultdict(QueueCounts)
        self.dead: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.recv_oct = self.send_oct = self.recv_cnt = self.send_cnt = 0

    def closed(self, protocol: str, counts: ChannelCounts, *, confirming: bool) -> None:
        """Keep the counts of a channel that is closed."""
        self.publications[protocol].add(counts)
        if confirming:
            self.confirmable[protocol] += counts.publish

    def disconnected(self, connection: Traffic) -> None:
        """Keep the counts of a connection that is closed."""
        self.recv_oct += connection.recv_oct
        self.send_oct += connection.send_oct
        self.recv_cnt += connection.recv_cnt
        self.send_cnt += connection.send_cnt


class Histogram:
    """How many values were at most each of `bounds`, which grow, and how many above; `total` is their sum.

    For what happens a few hundred times in a second, at most: a sync, not a message.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Churn:
    """The numbers of objects made and removed on the node since it started."""

    __slots__ = (
        "channel_closed", "channel_created", "connection_closed", "connection_created", "queue_created",
        "queue_declared", "queue_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connection_created = self.connection_closed = 0
        self.channel_created = self.channel_closed = 0
        self.queue_declared = self.queue_created = self.queue_deleted = 0

    def report(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}
