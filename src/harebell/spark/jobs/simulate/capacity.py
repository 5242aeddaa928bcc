"""Estimates backlogs, with queues as reservoirs that consumers empty at a rate, and the nodes that carry the load.

Rules:

- A queue is a fluid: messages come at an even rate within a window of time and leave at the consumers' rate as long as
  there are any, so that what waits at the end of a window is max(0, what waited + what came - rate * seconds)
  (Lindley's recursion). The peak is at the end of some window: within one, depth goes one way only.
- A length limit cuts what waits, and so does a time to live: no more waits than what came within that time. Both count
  what they took. The dead letters that this makes are not routed.
- The nodes are those of a RabbitMQ cluster like the one that docs/explanation/performance.md measured: the costs and
  limits of `Limits` come from there. The most demanding of processor, memory, disk and replication decides. What waits
  in a durable queue is on disk, in another in memory. It is an estimate for a sketch of a deployment; `Limits` takes
  figures of your own.

Pure arithmetic: no Spark, no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from harebell.errors import InvalidArgument

__all__ = ["Backlog", "Cluster", "Limits", "Load", "backlog", "cluster", "consumer_rate", "parse_consumers"]

GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a queue. `depth` is at the end of each window; `peak` the largest depth, in window `peak_window`.

    `drain_seconds` is how long it takes after the last window until nothing waits, None for never. `dropped` are those
    over a length limit, `expired` those over a time to live. `utilisation` is what came over what consumers can take.
    """

    rate: float
    depth: tuple[float, ...]
    peak: float
    peak_window: int
    drain_seconds: float | None
    dropped: float
    expired: float
    utilisation: float | None


def backlog(
    arrivals: Sequence[int], seconds: float, rate: float, *, max_length: float | None = None, ttl: float | None = None
) -> Backlog:
    """The backlog, given the messages that arrive in each window of `seconds`, and the consumers' rate a second.

    `max_length` is in messages, `ttl` in seconds.
    """
    depth = dropped = expired = 0.0
    depths: list[float] = []
    came = 0.0
    total = [0.0]  # what has come by the beginning of each window
    for arrived in arrivals:
        depth = max(0.0, depth + arrived - rate * seconds)
        came += arrived
        total.append(came)
        if max_length is not None and depth > max_length:
            dropped, depth = dropped + depth - max_length, float(max_length)
        if ttl is not None:
            young = came - _at(total, (len(total) - 1) - ttl / seconds)
            if depth > young:
                expired, depth = expired + depth - young, young
        depths.append(depth)
    peak = max(depths, default=0.0)
    offered = rate * seconds * len(arrivals)
    return Backlog(
        rate=rate,
        depth=tuple(depths),
        peak=peak,
        peak_window=depths.index(peak) if depths else 0,
        drain_seconds=0.0 if not depth else depth / rate if rate else None,
        dropped=dropped,
        expired=expired,
        utilisation=came / offered if offered else None,
    )


def _at(total: Sequence[float], place: float) -> float:
    """The number of messages that had arrived by a moment, counted in windows from the beginning."""
    if place <= 0:
        return 0.0
    whole = int(place)
    return total[whole] + (total[whole + 1] - total[whole]) * (place - whole)


# Consumers


def parse_consumers(document: object) -> dict[str, float]:
    """Rates by queue from the object of a JSON file: {"orders.*": 200, "mail": {"consumers": 4, "rate": 50}}.

    Raises InvalidArgument.
    """
    if not isinstance(document, Mapping):
        raise InvalidArgument('consumers are an object: {"queue or pattern": messages a second}')
    rates: dict[str, float] = {}
    for name, value in document.items():
        parts = [value]
        if isinstance(value, Mapping):
            if set(value) != {"consumers", "rate"}:
                raise InvalidArgument(f"consumers of '{name}': an object has the keys consumers and rate")
            parts = [value["consumers"], value["rate"]]
        numbers = [float(n) for n in parts if isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n < 1e15]
        if len(numbers) != len(parts):
            raise InvalidArgument(f"consumers of '{name}': expected messages a second, 0 or more")
        rates[str(name)] = math.prod(numbers)
    return rates


def consumer_rate(queue: str, rates: Mapping[str, float]) -> float | None:
    """The rate that is given for the queue: by its name, else by the first pattern (`*`, `?`) that fits; else None."""
    exact = rates.get(queue)
    if exact is not None:
        return exact
    return next((rate for pattern, rate in rates.items() if fnmatchcase(queue, pattern)), None)


# Nodes


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node can do, and what things cost it. The defaults are RabbitMQ 3.10's figures in
    docs/explanation/performance.md, where microseconds are of processor time, all threads together.

    `publish_us` and `delivery_us` solve its two cases "acknowledged" (19.5 us: one publish, one delivery) and
    "fan-out, 1 to 10" (190.6 us: one publish, ten deliveries). `queue_rate` is its case "confirmed": a queue is one
    process and lives on one node. The three sizes are its table of memory. `watermark` is the share of the memory at
    which RabbitMQ stops publishers (its default); `utilisation` the share of the processors that one wants to plan
    with; `replicas` the nodes that do the work of a quorum queue or a stream (RabbitMQ's default).
    """

    cores: float = 2
    utilisation: float = 0.7
    publish_us: float = 0.5
    delivery_us: float = 19.0
    queue_rate: float = 52_793
    memory_gib: float = 4
    watermark: float = 0.4
    connection_bytes: int = 97_907
    queue_bytes: int = 13_713
    message_bytes: int = 4_744
    disk_gib: float | None = None
    replicas: int = 3

    def __post_init__(self) -> None:
        for name in ("cores", "utilisation", "queue_rate", "memory_gib", "watermark", "replicas"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"a node's {name} is above 0, not {getattr(self, name)}")
        for name in ("utilisation", "watermark"):
            if getattr(self, name) > 1:
                raise InvalidArgument(f"a node's {name} is a share, at most 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Load:
    """What a cluster has to carry, at its busiest: messages a second published, copies a second into queues that live
    on one node and into replicated ones; messages that wait in memory (those of queues that are not durable), and the
    bytes that wait on disk, on one node and in replicated queues (counted once); connections, queues."""

    published: float
    copies: float
    replicated_copies: float
    waiting: float
    disk_bytes: float
    replicated_bytes: float
    connections: int
    queues: int
    busiest_queues: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes that would carry a load, and what decides: `needs` has the number for each resource.

    `too_busy` are queues that no number of nodes carries, with their messages a second: they must be split.
    """

    nodes: int
    decided_by: str
    needs: Mapping[str, int]
    cores: float
    memory_bytes: float
    disk_bytes: float
    too_busy: tuple[tuple[str, float], ...]


def cluster(load: Load, limits: Limits) -> Cluster:
    """How many nodes carry the load at its busiest. Consumers take copies as fast as they come, but for the backlog."""
    copies = load.copies + load.replicated_copies * limits.replicas
    cores = (load.published * limits.publish_us + copies * limits.delivery_us) / 1e6
    memory = (
        load.connections * limits.connection_bytes
        + load.queues * limits.queue_bytes
        + load.waiting * limits.message_bytes
    )
    disk = load.disk_bytes + load.replicated_bytes * limits.replicas
    needs = {
        "processor": _nodes(cores, limits.cores * limits.utilisation),
        "memory": _nodes(memory, limits.memory_gib * GIB * limits.watermark),
    }
    if limits.disk_gib is not None:
        needs["disk"] = _nodes(disk, limits.disk_gib * GIB)
    if load.replicated_copies:
        needs["replicas"] = limits.replicas
    nodes = max(needs.values())
    return Cluster(
        nodes=nodes,
        decided_by=next(name for name, needed in needs.items() if needed == nodes),
        needs=needs,
        cores=cores,
        memory_bytes=memory,
        disk_bytes=disk,
        too_busy=tuple((queue, rate) for queue, rate in load.busiest_queues if rate > limits.queue_rate),
    )


def _nodes(needed: float, each: float) -> int:
    return max(1, math.ceil(needed / each))
