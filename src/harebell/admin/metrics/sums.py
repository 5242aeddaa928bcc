"""The sums of all counts of a node since its start, which never become smaller: closed and deleted objects count too.

The counts are taken in one step, and those of channels added up in several: a channel that closes in between counts
once. Those of queues are added up in one step, some 5 ms for 10,000 queues: what 0-9-1 did to them is what AMQP 0-10
did not, and that holds for one moment alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from harebell.broker.counts import AMQP010, AMQP091, ChannelCounts, QueueCounts, Traffic
from harebell.broker.node import Node
from harebell.routing.steps import Steps

__all__ = ["PROTOCOLS", "Sums", "summing"]

PROTOCOLS: Final = (AMQP091, AMQP010)
_DIALECTS: Final = {"{0,9,1}": AMQP091, "{0,10}": AMQP010}
STEP: Final = 512  # channels added up in one step
_FIGURES: Final = attrgetter(*QueueCounts.__slots__)


class Sums:
    """The sums, after `counts.Counts.refreshing`.

    channels     what channels and sessions did, by protocol
    confirmable  the publications of those that had confirms, by protocol
    publishers   open channels that have published, by protocol
    consumers    consumers, by protocol
    queues       what happened to queues, by their type, and by protocol
    recv_oct, send_oct, recv_cnt, send_cnt   of connections
    """

    def __init__(self) -> None:
        self.channels = {protocol: ChannelCounts() for protocol in PROTOCOLS}
        self.confirmable: Counter[str] = Counter()
        self.publishers: Counter[str] = Counter()
        self.consumers: Counter[str] = Counter()
        self.queues: dict[tuple[str, str], QueueCounts] = {}
        self.recv_oct = self.send_oct = self.recv_cnt = self.send_cnt = 0


def summing(node: Node) -> Steps[Sums]:
    """Add everything up."""
    sums, lasting = Sums(), node.lasting
    detached = [session for session in node.sessions if not session.attached]
    channels = [(_DIALECTS[each.protocol], it) for each in node.connections for it in each.channels.values()]
    channels += [(AMQP010, session) for session in detached]
    for protocol in PROTOCOLS:
        sums.channels[protocol].add(lasting.publications[protocol])
    sums.confirmable.update(lasting.confirmable)
    _add_queues(node, sums)
    clients: tuple[Traffic, ...] = (lasting, *node.connections)
    for connection in clients:
        sums.recv_oct += connection.recv_oct
        sums.send_oct += connection.send_oct
        sums.recv_cnt += connection.recv_cnt
        sums.send_cnt += connection.send_cnt
    yield
    for number, (protocol, channel) in enumerate(channels):
        sums.channels[protocol].add(channel.counts)
        if channel.confirming:
            sums.confirmable[protocol] += channel.counts.publish
        sums.publishers[protocol] += channel.counts.publish > 0
        sums.consumers[protocol] += len(channel.consumers)
        if not number % STEP:
            yield
    return sums


def _add_queues(node: Node, sums: Sums) -> None:
    by_kind: dict[str, list[QueueCounts]] = {kind: [counts] for kind, counts in node.lasting.gone.items()}
    for vhost in node.vhosts.values():
        for queue in vhost.queues.values():
            by_kind.setdefault(queue.type, []).append(queue.counts)
    for kind, each in by_kind.items():
        by_010 = sums.queues[AMQP010, kind] = _total([node.lasting.amqp010[kind]])
        sums.queues[AMQP091, kind] = rest = _total(each)
        rest.subtract(by_010)


def _total(each: Iterable[QueueCounts]) -> QueueCounts:
    found = QueueCounts()
    for name, values in zip(QueueCounts.__slots__, zip(*map(_FIGURES, each), strict=True), strict=True):
        setattr(found, name, sum(values))
    return found
