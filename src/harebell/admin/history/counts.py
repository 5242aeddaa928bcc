"""The counts of all channels brought up to date, with sums, no older than they need to be.

Counting per message would cost each message, so the broker counts per share of deliveries, and adds up when asked
(`broker.counts`). With thousands of channels that takes some milliseconds; then the result is used again for FACTOR
times as long, so that it never takes more than one part in FACTOR of the processor, however often it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from harebell.broker.counts import ChannelCounts
from harebell.broker.node import Node
from harebell.broker.operations.statistics import counting
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.routing.steps import Steps

__all__ = ["Counts", "Totals"]

FACTOR: Final = 50
STEP: Final = 256  # queues in one step
FEW: Final = 32  # connections in one step, unless one of them has many channels


class Totals:
    """The sums of one virtual host, or of all of them."""

    __slots__ = (
        "channels", "connections", "consumers", "counts", "queues", "ready", "recv_oct", "send_oct", "unacked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ready = self.unacked = self.queues = self.consumers = 0
        self.connections = self.channels = self.recv_oct = self.send_oct = 0
        self.counts = ChannelCounts()  # of closed channels too

    def add(self, other: Totals) -> None:
        for name in Totals.__slots__:
            if name != "counts":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counts.add(other.counts)


class Counts:
    """The counts of one node, after the first `refreshing`.

    unacked  the queues with unacknowledged messages, and how many
    totals   the sums of each virtual host
    factor   how many times as long as it took to count the result is used again
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopwatch = node.batch.slices.stopwatch
        self.unacked: Counter[Queue] = Counter()
        self.totals: dict[VirtualHost, Totals] = {}
        self.factor: float = FACTOR
        self._counted, self._took = 0.0, 0.0
        self._working = False

    def of(self, vhosts: Iterable[VirtualHost]) -> Totals:
        """The sums of these virtual hosts together."""
        found = Totals()
        for vhost in vhosts:
            if vhost in self.totals:
                found.add(self.totals[vhost])
        return found

    def refreshing(self, *, whatever: bool = False) -> Steps[None]:
        """Bring the counts up to date, unless they are so new that it would not be worth it; `whatever` they are."""
        stopwatch = self._stopwatch
        if self._working or (stopwatch() < self._counted + self._took * self.factor and not whatever):
            return
        self._working, spent = True, 0.0
        try:
            work, began = self._counting(), stopwatch()
            for _ in work:
                spent += stopwatch() - began
                yield
                began = stopwatch()
            self._counted = stopwatch()
            self._took = spent + self._counted - began
        finally:
            self._working = False

    def _counting(self) -> Steps[None]:
        unacked = yield from counting(self._node)
        totals: dict[VirtualHost, Totals] = {}
        by_name: dict[str, Totals] = {}
        for vhost in tuple(self._node.vhosts.values()):
            sums = totals[vhost] = by_name[vhost.name] = Totals()
            sums.counts.add(vhost.counts)
            sums.recv_oct, sums.send_oct = vhost.recv_oct, vhost.send_oct
            for number, queue in enumerate(tuple(vhost.queues.values())):
                if not queue.deleted:
                    sums.queues += 1
                    sums.ready += queue.message_count
                    sums.unacked += unacked[queue]
                if not number % STEP:
                    yield
        for number, connection in enumerate(tuple(self._node.connections)):
            sums_of = by_name.get(connection.vhost.name)
            if sums_of is not None and connection.user:
                sums_of.connections += 1
                sums_of.channels += len(connection.channels)
                sums_of.recv_oct += connection.recv_oct
                sums_of.send_oct += connection.send_oct
                for channel in connection.channels.values():
                    sums_of.consumers += len(channel.consumers)
                    sums_of.counts.add(channel.counts)
            if not number % FEW or len(connection.channels) > FEW:
                yield
        self.unacked, self.totals = unacked, totals
