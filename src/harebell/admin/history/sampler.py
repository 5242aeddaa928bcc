"""The samples of a node: every few seconds the figures of each object go into its record (`series`).

Rules: a sample is a work in steps, so that no client waits for it. An object has a record from its first change on; one
that never changed costs nothing, and one that is gone is forgotten at the next sample. The counts themselves are the
broker's own plain integers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from harebell.admin.history.ack_ages import AckAges
from harebell.admin.history.counts import Counts, Totals
from harebell.admin.history.series import TICK, Form, Record
from harebell.broker.clients import Channel, Connection
from harebell.broker.counts import ChannelCounts
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.timers import Timer
from harebell.broker.vhost import VirtualHost
from harebell.routing import Exchange
from harebell.routing.steps import Steps

__all__ = [
    "CHANNEL", "CONNECTION", "EXCHANGE", "NODE", "QUEUE", "VHOST", "Group", "Sampler",
]  # fmt: skip

K = TypeVar("K")

QUEUE_LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
QUEUE_COUNTS: Final = ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack", "redeliver")
CHANNEL: Final = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack",
)  # fmt: skip
OCTETS: Final = ("recv_oct", "send_oct")
CHURN: Final = (
    "connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared", "queue_created",
    "queue_deleted",
)  # fmt: skip
GAUGES: Final = (
    "mem_used", "fd_used", "sockets_used", "proc_used", "disk_free", "context_switches", "gc_num", "io_read_bytes",
    "io_read_count", "io_write_bytes", "io_write_count", "io_sync_count",
)  # fmt: skip
QUEUE: Final = (*QUEUE_LENGTHS, *QUEUE_COUNTS)
EXCHANGE: Final = ("publish_in", "publish_out")
CONNECTION: Final = OCTETS
VHOST: Final = (*QUEUE_LENGTHS, *CHANNEL, *OCTETS)
NODE: Final = (*QUEUE_LENGTHS, *CHANNEL, *CHURN, *GAUGES)

STEP: Final = 64  # objects in one step


class Group(Generic[K]):
    """The records of all objects of one kind. `figures` are their names, in the order of the values."""

    def __init__(self, figures: Sequence[str], *, many: bool = True) -> None:
        self.figures = {name: number for number, name in enumerate(figures)}
        self.records: dict[K, Record] = {}
        self._form = Form(len(figures), many=many)
        self._nothing = (0,) * len(figures)

    def note(self, key: K, values: tuple[int, ...], tick: int, *, old: bool = False) -> None:
        """Note the figures of an object. `old`: it may have had them before the first sample."""
        record, mark = self.records.get(key), hash(values)
        if record is None:
            if not any(values):
                return
            record = self.records[key] = Record(self._form, tick - 1, values if old else self._nothing)
            if old:
                record.mark = mark
        record.seen = tick
        if record.mark != mark:
            record.mark = mark
            record.add(tick, values)

    def forget_gone(self, tick: int) -> None:
        """Forget the objects that were not noted in this tick."""
        self.records = {key: record for key, record in self.records.items() if record.seen == tick}


class Sampler:
    """The samples of one node. `tick` is the number of the last one that is complete, `seconds` how long it covers.

    gauges  gives the figures GAUGES of the process
    clock   milliseconds since 1970
    """

    def __init__(
        self,
        node: Node,
        counts: Counts,
        gauges: Callable[[], tuple[int, ...]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._counts, self._gauges, self._clock = node, counts, gauges, clock
        self.queues: Group[Queue] = Group(QUEUE)
        self.exchanges: Group[Exchange] = Group(EXCHANGE)
        self.connections: Group[Connection] = Group(CONNECTION)
        self.channels: Group[Channel] = Group(CHANNEL)
        self.vhosts: Group[VirtualHost] = Group(VHOST, many=False)
        self.node: Group[str] = Group(NODE, many=False)
        self._groups: tuple[Group[Any], ...] = (
            self.queues, self.exchanges, self.connections, self.channels, self.vhosts, self.node,
        )  # fmt: skip
        self.ages = AckAges(node.timers.now)
        self.tick = 0
        self.at = clock()  # when it ended
        self.seconds = float(TICK)
        self._began = node.timers.now()
        self._last = self._began
        self._timer: Timer | None = None
        self._working = False

    def start(self) -> None:
        """Take the first sample now, and the others from then on."""
        self._ring()

    def sample_now(self) -> None:
        """Take a sample at once, in place of the next one."""
        if not self._working:
            self._working = True
            self._node.batch.slices.run(self._sample(self.tick + 1, float(TICK)))
            self._node.batch.end()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def records(self) -> int:
        """The number of objects that have a record."""
        return sum(len(group.records) for group in self._groups)

    def forget(self) -> None:
        """Forget all history."""
        for group in self._groups:
            group.records.clear()
        self.ages.clear()

    def rate(self, group: Group[K], key: K, figure: str) -> float:
        """How much the figure changed in a second, in the last complete interval."""
        record = group.records.get(key)
        return 0.0 if record is None else record.change(group.figures[figure], self.tick) / self.seconds

    def _ring(self) -> None:
        now = self._node.timers.now()
        tick = round((now - self._began) / (TICK * 1000)) + 1
        self._timer = self._node.timers.at(self._began + tick * TICK * 1000, self._ring)
        if not self._working and tick > self.tick:
            self._working = True
            self._node.batch.slices.run(self._sample(tick, (now - self._last) / 1000))

    def _sample(self, tick: int, seconds: float) -> Steps[None]:
        try:
            began = self._clock()
            yield from self._counts.refreshing(whatever=True)
            yield from self._note(tick, old=not self.tick)
            if self.tick:
                self.seconds = max(seconds, 1.0)
            self._last = self._node.timers.now()
            self.tick, self.at = tick, began
        finally:
            self._working = False

    def _note(self, tick: int, *, old: bool) -> Steps[None]:
        node, unacked = self._node, self._counts.unacked
        for vhost in tuple(node.vhosts.values()):
            for number, queue in enumerate(tuple(vhost.queues.values())):
                if not queue.deleted:
                    c = queue.counts
                    figures = (
                        queue.message_count, unacked[queue], c.publish, c.deliver, c.deliver_no_ack, c.get,
                        c.get_no_ack, c.get_empty, c.ack, c.redeliver,
                    )  # fmt: skip
                    self.queues.note(queue, figures, tick, old=old)
                if not number % STEP:
                    yield
            for number, exchange in enumerate(tuple(vhost.router.exchanges)):
                counts = vhost.exchange_counts(exchange.name)
                self.exchanges.note(exchange, (counts.publish_in, counts.publish_out), tick, old=old)
                if not number % STEP:
                    yield
        for number, connection in enumerate(tuple(node.connections)):
            self.connections.note(connection, (connection.recv_oct, connection.send_oct), tick, old=old)
            for channel in tuple(connection.channels.values()):
                self.channels.note(channel, _figures(channel.counts), tick, old=old)
                self.ages.note(channel, tick)
            if not number % STEP:
                yield
        totals = self._counts.totals
        for vhost, sums in totals.items():
            self.vhosts.note(vhost, (*_sums(sums), sums.recv_oct, sums.send_oct), tick, old=old)
        churn = (getattr(node.churn, name) for name in CHURN)
        self.node.note(node.name, (*_sums(self._counts.of(totals)), *churn, *self._gauges()), tick, old=old)
        yield
        for group in self._groups:
            group.forget_gone(tick)
            yield
        self.ages.forget_gone(tick)


def _figures(counts: ChannelCounts) -> tuple[int, ...]:
    return (
        counts.publish, counts.confirm, counts.return_unroutable, counts.drop_unroutable, counts.deliver,
        counts.deliver_no_ack, counts.get, counts.get_no_ack, counts.get_empty, counts.redeliver, counts.ack,
    )  # fmt: skip


def _sums(sums: Totals) -> tuple[int, ...]:
    return (sums.ready, sums.unacked, *_figures(sums.counts))
