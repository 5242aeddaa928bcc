"""What handlers work with: the node, its figures, what happened on it, and where it listens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from harebell.admin.history.counts import Counts
from harebell.admin.history.lag import LoopLag
from harebell.admin.history.machine import Gauges
from harebell.admin.history.memory import memory_by_part
from harebell.admin.history.ranges import Rates
from harebell.admin.history.sampler import Sampler
from harebell.admin.live.feed import Feed
from harebell.admin.login.gate import Gate
from harebell.admin.login.sessions import Sessions
from harebell.broker.counts import QueueCounts
from harebell.broker.node import Node
from harebell.routing.steps import Steps

__all__ = ["Context", "Listener"]


class Listener(NamedTuple):
    """An address that the broker, or this API, listens on. `protocol` is RabbitMQ's name: amqp, amqp/ssl, http, ..."""

    protocol: str
    host: str
    port: int
    tls: bool


class Context:
    """The parts of one API.

    listeners    the addresses of the broker and of the API; they may be added to until it serves
    certificate  the file of the certificate of those with TLS
    started      when it started, in seconds since 1970
    """

    def __init__(
        self, node: Node, gauges: Gauges, listeners: list[Listener], certificate: str | Path | None = None
    ) -> None:
        self.node = node
        self.gauges = gauges
        self.listeners = listeners
        self.counts = Counts(node)
        self.sampler = Sampler(node, self.counts, gauges.figures)
        self.rates = Rates(self.sampler)
        self.lag = LoopLag(node.timers)
        self.feed = Feed(node, self.counts, gauges.shown)
        self.sessions = Sessions(node.users)
        self.gate = Gate(node, self.sessions)
        self.certificate = certificate
        self.started = time.time()
        self.told: dict[str, QueueCounts] = {}  # by `metrics.sums`

    def memory(self, queues: tuple[int, int] | None = None) -> Steps[dict[str, int]]:
        """Bytes of memory by part. `queues`: those of the bodies in all queues, and of the rest, if known."""
        return memory_by_part(self.node, self.gauges, self.sampler, queues)
