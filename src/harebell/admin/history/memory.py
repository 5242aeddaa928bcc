"""The memory of the process by part, with RabbitMQ's names of the parts that have a counterpart here.

    binary              bodies of messages in memory
    queue_procs         what queues and messages take beside the bodies
    connection_other    connections and channels
    connection_writers  output that clients have not taken yet
    mgmt_db             the history of figures
    other_system        the rest: the interpreter, code, libraries

The parts are estimates by the numbers of objects; their sum is what the kernel counts.
"""

from __future__ import annotations

from typing import Final

from harebell.admin.history.machine import Gauges
from harebell.admin.history.marks import SAMPLE
from harebell.admin.history.sampler import Sampler
from harebell.admin.history.series import LARGEST
from harebell.admin.history.sizes import sizes
from harebell.broker.node import Node
from harebell.routing.steps import Steps

__all__ = ["memory_by_part"]

CONNECTION: Final = 12 << 10  # bytes that a connection takes, without channels
CHANNEL: Final = 5 << 10
STEP: Final = 64


def memory_by_part(
    node: Node, gauges: Gauges, sampler: Sampler, queues: tuple[int, int] | None = None
) -> Steps[dict[str, int]]:
    """Bytes of memory by part. `queues`: the bytes of the bodies in all queues, and of the rest, if they are known."""
    connections = unsent = 0
    bodies, overhead = queues or (yield from _queues(node))
    for number, connection in enumerate(tuple(node.connections)):
        connections += CONNECTION + len(connection.channels) * CHANNEL
        unsent += connection.unsent
        if not number % STEP:
            yield
    parts = {
        "binary": bodies,
        "queue_procs": overhead,
        "connection_other": connections,
        "connection_writers": unsent,
        "mgmt_db": sampler.records * LARGEST + sampler.ages.samples * SAMPLE,
    }
    parts["other_system"] = max(0, gauges.memory_used - sum(parts.values()))
    return parts


def _queues(node: Node) -> Steps[tuple[int, int]]:
    bodies = overhead = 0
    for vhost in tuple(node.vhosts.values()):
        for number, queue in enumerate(tuple(vhost.queues.values())):
            size = sizes(queue, 0)
            bodies += size.in_memory
            overhead += size.memory - size.in_memory
            if not number % STEP:
                yield
    return bodies, overhead
