"""A simulation with consumers: the backlog of each queue, and the cluster that would carry the load.

Rules: the queues' own limits hold (max-length, max-length-bytes by the queue's mean message, message TTL). A stream
keeps what it gets, whether it is read or not: its part of the disk is what its retention leaves. Without consumers
given, they are taken to keep up. Pure: no Spark, no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harebell.errors import InvalidArgument
from harebell.routing.settings import QueueSettings
from harebell.routing.topology import Topology
from harebell.spark.jobs.simulate.capacity import Backlog, Cluster, Limits, Load, backlog, cluster, consumer_rate
from harebell.spark.jobs.simulate.simulation import QueueLoad, Simulation

__all__ = ["Consumers", "Plan", "QueuePlan", "plan"]


@dataclass(frozen=True, slots=True)
class Consumers:
    """How fast queues are consumed: `rates` in messages a second by queue or pattern (see `consumer_rate`); `keep_up`
    for the others: so many times what a queue gets on average. A queue with neither has no consumers."""

    rates: Mapping[str, float] = field(default_factory=dict)
    keep_up: float | None = None

    def __post_init__(self) -> None:
        if self.keep_up is not None and not self.keep_up >= 0:
            raise InvalidArgument(f"consumers keep up with 0 times the traffic or more, not {self.keep_up}")

    @property
    def given(self) -> bool:
        return bool(self.rates) or self.keep_up is not None

    def rate(self, queue: QueueLoad, seconds: float) -> float:
        """Messages a second that the queue's consumers take."""
        rate = consumer_rate(queue.name, self.rates)
        if rate is None:
            rate = 0.0 if self.keep_up is None else self.keep_up * sum(queue.arrivals) / seconds
        return rate


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What waits in one queue, and the bytes of it at its peak. `peak_rate` is the most that it gets in one window, a
    second; `stored` what a stream keeps at the end, in bytes."""

    name: str
    queue_type: str
    peak_rate: float
    backlog: Backlog
    peak_bytes: float
    stored: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Queues in the order of the simulation; `depth` is what waits in all queues together at the end of each window."""

    queues: tuple[QueuePlan, ...]
    depth: tuple[float, ...]
    cluster: Cluster


def plan(
    simulation: Simulation, topology: Topology, consumers: Consumers, limits: Limits, *, connections: int = 0
) -> Plan | None:
    """What the simulated traffic asks of consumers and nodes. None when the messages have no time: then there are no
    rates. `connections` are those that the cluster holds."""
    seconds = simulation.seconds
    if not seconds:
        return None
    window = simulation.window
    queues = tuple(
        _queue(queue, topology.queues[queue.name].settings, window, consumers, seconds) for queue in simulation.queues
    )
    count = len(simulation.published)
    depth = [0.0] * count
    copies = [0] * count  # into queues of one node, by window
    replicated = [0] * count
    for load, planned in zip(simulation.queues, queues, strict=True):
        into = copies if load.queue_type == "classic" else replicated
        for number, (arrived, waits) in enumerate(zip(load.arrivals, planned.backlog.depth, strict=True)):
            into[number] += arrived
            depth[number] += waits

    def cost(number: int) -> float:
        every = copies[number] + replicated[number] * limits.replicas
        return simulation.published[number] * limits.publish_us + every * limits.delivery_us

    busiest = max(range(count), key=cost)
    classic = [each for each in queues if each.queue_type == "classic"]
    transient = [each for each in classic if not topology.queues[each.name].durable]
    durable = [each for each in classic if topology.queues[each.name].durable]
    quorum = [each for each in queues if each.queue_type == "quorum"]
    streams = [each for each in queues if each.queue_type == "stream"]
    carried = Load(
        published=simulation.published[busiest] / window,
        copies=copies[busiest] / window,
        replicated_copies=replicated[busiest] / window,
        waiting=sum(each.backlog.peak for each in transient),
        disk_bytes=sum(each.peak_bytes for each in durable),
        replicated_bytes=sum(each.peak_bytes for each in quorum) + sum(each.stored for each in streams),
        connections=connections,
        queues=len(queues),
        busiest_queues=tuple((each.name, each.peak_rate) for each in queues),
    )
    return Plan(queues, tuple(depth), cluster(carried, limits))


def _queue(load: QueueLoad, settings: QueueSettings, window: float, consumers: Consumers, seconds: float) -> QueuePlan:
    size = load.bytes / load.messages if load.messages else 0.0
    stream = load.queue_type == "stream"
    lengths = [float(settings.max_length)] if settings.max_length is not None else []
    if settings.max_length_bytes is not None and size and not stream:
        lengths.append(settings.max_length_bytes / size)
    waits = backlog(
        load.arrivals,
        window,
        consumers.rate(load, seconds) if consumers.given else max(load.arrivals, default=0) / window,
        max_length=min(lengths, default=None),
        ttl=None if settings.message_ttl is None else settings.message_ttl / 1000,
    )
    stored = _kept(load, settings, window, size) if stream else 0.0
    peak_rate = max(load.arrivals, default=0) / window
    return QueuePlan(load.name, load.queue_type, peak_rate, waits, waits.peak * size, stored)


def _kept(load: QueueLoad, settings: QueueSettings, window: float, size: float) -> float:
    """The bytes that a stream's retention leaves at the end."""
    kept = float(load.bytes)
    if settings.max_age is not None:
        windows = settings.max_age / 1000 / window
        whole = int(windows)
        recent = sum(load.arrivals[-whole:]) if whole else 0
        if whole < len(load.arrivals):
            recent_part = load.arrivals[-whole - 1] * (windows - whole)
            kept = min(kept, (recent + recent_part) * size)
    if settings.max_length_bytes is not None:
        kept = min(kept, float(settings.max_length_bytes))
    return kept
