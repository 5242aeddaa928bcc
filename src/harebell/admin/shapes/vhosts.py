"""A virtual host in RabbitMQ's form."""

from __future__ import annotations

from typing import Any

from harebell.admin.context import Context
from harebell.admin.history.ranges import NONE, Ranges
from harebell.admin.shapes.stats import channel_stats, lengths, with_details
from harebell.broker.vhost import VirtualHost

__all__ = ["vhost"]


def vhost(context: Context, it: VirtualHost, ranges: Ranges = NONE) -> dict[str, Any]:
    definition, group = it.definition, context.sampler.vhosts
    tags, description = list(definition.tags or ()), definition.description or ""
    kind = definition.default_queue_type or "classic"
    sums = context.counts.of((it,))
    octets = {"recv_oct": sums.recv_oct, "send_oct": sums.send_oct}
    found: dict[str, Any] = {
        "cluster_state": {context.node.name: "running"},
        "default_queue_type": kind,
        "description": description,
        "metadata": {"description": description, "tags": tags, "default_queue_type": kind},
        "name": it.name,
        "tags": tags,
        "tracing": it.trace is not None,
        **lengths(context, group, it, sums.ready, sums.unacked, ranges.lengths),
        **with_details(context, group, it, octets, ranges.data_rates),
    }
    stats = channel_stats(context, group, it, sums.counts, ranges)
    if stats:
        found["message_stats"] = stats
    return found
