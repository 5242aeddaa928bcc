"""The sums of all counts of a node since its start, which never become smaller: closed and deleted objects count too.

What there is, and what is left of objects that are gone, is taken in one step, and added up in several: an object that
goes in between counts once. What 0-9-1 did to queues is what AMQP 0-10 did not. Messages of 0-10 that come in between
count for 0-9-1 until the next time, when its counts wait until they are due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from harebell.broker.clients import Channel
from harebell.broker.counts import AMQP010, AMQP091, ChannelCounts, QueueCounts, Traffic
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.routing.steps import Steps

__all__ = ["PROTOCOLS", "Sums", "summing"]

PROTOCOLS: Final = (AMQP091, AMQP010)
_DIALECTS: Final = {"{0,9,1}": AMQP091, "{0,10}": AMQP010}
STEP: Final = 128  # objects added up in one step
MANY: Final = 16  # channels of a connection, which is a step then
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


def summing(node: Node, told: dict[str, QueueCounts]) -> Steps[Sums]:
    """Add everything up. `told`: what the last sums say of queues and 0-9-1, by type; it is brought up to date."""
    sums, lasting = Sums(), node.lasting
    connections = [(each, tuple(each.channels.values())) for each in node.connections]
    detached = [session for session in node.sessions if not session.attached]
    queues = [queue for vhost in node.vhosts.values() for queue in vhost.queues.values()]
    counts = [queue.counts for queue in queues]  # as they are now: a queue that goes gets others
    gone = {kind: _total([each]) for kind, each in lasting.gone.items()}
    by_010 = {kind: _total([each]) for kind, each in lasting.amqp010.items()}
    for protocol in PROTOCOLS:
        sums.channels[protocol].add(lasting.publications[protocol])
    sums.confirmable.update(lasting.confirmable)
    _add_traffic(sums, lasting)
    yield
    for number, (connection, channels) in enumerate(connections):
        _add_traffic(sums, connection)
        for channel in channels:
            _add_channel(sums, _DIALECTS[connection.protocol], channel)
        if not number % STEP or len(channels) > MANY:
            yield
    for session in detached:
        _add_channel(sums, AMQP010, session)
    totals = yield from _by_type(queues, counts, gone)
    for kind, total in totals.items():
        of_010 = sums.queues[AMQP010, kind] = by_010.get(kind) or QueueCounts()
        sums.queues[AMQP091, kind] = told[kind] = _rest(total, of_010, told.get(kind))
    return sums


def _by_type(
    queues: Sequence[Queue], counts: Sequence[QueueCounts], gone: Mapping[str, QueueCounts]
) -> Steps[dict[str, QueueCounts]]:
    """The sums of the counts of these queues and of those that are gone, by type."""
    totals = dict(gone)
    for start in range(0, len(queues), STEP):
        part: dict[str, list[QueueCounts]] = {}
        for queue, its in zip(queues[start : start + STEP], counts[start : start + STEP], strict=True):
            part.setdefault(queue.type, []).append(its)
        for kind, each in part.items():
            totals.setdefault(kind, QueueCounts()).add(_total(each))
        yield
    return totals


def _add_traffic(sums: Sums, traffic: Traffic) -> None:
    sums.recv_oct += traffic.recv_oct
    sums.send_oct += traffic.send_oct
    sums.recv_cnt += traffic.recv_cnt
    sums.send_cnt += traffic.send_cnt


def _add_channel(sums: Sums, protocol: str, channel: Channel) -> None:
    counts = channel.counts
    sums.channels[protocol].add(counts)
    if channel.confirming:
        sums.confirmable[protocol] += counts.publish
    sums.publishers[protocol] += counts.publish > 0
    sums.consumers[protocol] += len(channel.consumers)


def _rest(total: QueueCounts, by_010: QueueCounts, told: QueueCounts | None) -> QueueCounts:
    """What 0-9-1 did: all that AMQP 0-10 did not, and no less than was told before."""
    total.subtract(by_010)
    for name in QueueCounts.__slots__ if told is not None else ():
        setattr(total, name, max(getattr(total, name), getattr(told, name)))
    return total


def _total(each: Iterable[QueueCounts]) -> QueueCounts:
    found = QueueCounts()
    for name, values in zip(QueueCounts.__slots__, zip(*map(_FIGURES, each), strict=True), strict=True):
        setattr(found, name, sum(values))
    return found
