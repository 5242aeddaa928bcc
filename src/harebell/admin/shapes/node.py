"""The node, and the overview of it, in RabbitMQ's form.

Facts of Erlang's machine have no meaning here; those that have a counterpart are that one: threads are the processes,
works that wait for their turn the run queue.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from harebell.admin.about import PRODUCT, PYTHON, PYTHON_FULL, VERSION, rabbitmq_version
from harebell.admin.context import Context, Listener
from harebell.admin.history.ranges import Ranges
from harebell.admin.history.sampler import CHURN, GAUGES
from harebell.admin.shapes.stats import channel_stats, lengths, summed_stats, with_details
from harebell.broker.auth.sasl import MECHANISMS
from harebell.broker.vhost import VirtualHost

__all__ = ["exchange_types", "node", "overview"]

RATES_MODE: Final = "basic"
RETENTION: Final = {"global": [600, 3600], "basic": [600, 3600], "detailed": [600]}
DESCRIPTIONS: Final = {
    "direct": "Routes messages whose routing key is that of a binding",
    "fanout": "Routes messages to all bindings",
    "topic": "Routes messages whose routing key matches the pattern of a binding",
    "headers": "Routes messages whose headers match the arguments of a binding",
}


def node(context: Context, ranges: Ranges) -> dict[str, Any]:
    """The one node."""
    broker, gauges = context.node, context.gauges
    group, span = context.sampler.node, ranges.node_stats
    limits, syncs = broker.limits, broker.batch.commit.durations
    values = dict(zip(GAUGES, gauges.figures(), strict=True))
    return {
        "applications": [
            {"name": "harebell", "description": PRODUCT, "version": VERSION},
            {"name": "python", "description": PYTHON_FULL, "version": PYTHON},
        ],
        "auth_mechanisms": [
            {"name": name, "description": f"SASL {name}", "enabled": name in broker.logins.mechanisms}
            for name in MECHANISMS
        ],
        "being_drained": broker.draining,
        "cluster_links": [],
        "config_files": [],
        "contexts": contexts(context),
        "db_dir": str(gauges.data),
        "disk_free_alarm": "disk" in broker.alarms,
        "disk_free_limit": limits.disk_free_limit,
        "enabled_plugins": ["harebell_admin", *sorted(f"harebell_{each}" for each in broker.parameters.components)],
        "exchange_types": exchange_types(context),
        "fd_total": gauges.descriptors_total,
        "io_sync_avg_time": syncs.total / max(1, syncs.count) * 1000,
        "log_files": ["-"],
        "mem_alarm": "memory" in broker.alarms,
        "mem_calculation_strategy": "rss",
        "mem_limit": gauges.memory_limit,
        "name": broker.name,
        "net_ticktime": 60,
        "os_pid": str(os.getpid()),
        "partitions": [],
        "proc_total": gauges.threads_total,
        "processors": os.cpu_count() or 1,
        "rates_mode": RATES_MODE,
        "run_queue": broker.batch.slices.waiting,
        "running": True,
        "sockets_total": gauges.descriptors_total,
        "type": "disc",
        "uptime": round((time.time() - context.started) * 1000),
        **with_details(context, group, broker.name, values, span),
        **churn(context, ranges),
    }


def churn(context: Context, ranges: Ranges) -> dict[str, Any]:
    counts = context.node.churn
    values = {name: getattr(counts, name) for name in CHURN}
    return with_details(context, context.sampler.node, context.node.name, values, ranges.node_stats)


def exchange_types(context: Context) -> list[dict[str, Any]]:
    return [
        {"name": name, "description": DESCRIPTIONS.get(name, name), "enabled": True}
        for name in context.node.exchange_types
    ]


def contexts(context: Context) -> list[dict[str, Any]]:
    """The listeners of HTTP, as RabbitMQ lists them."""
    return [
        {
            "description": each.protocol,
            "ip": each.host,
            "node": context.node.name,
            "path": "/",
            "port": str(each.port),
            "protocol": "https" if each.tls else "http",
            "ssl_opts": [],
        }
        for each in context.listeners
        if each.protocol.startswith("http")
    ]


def listener(context: Context, it: Listener) -> dict[str, Any]:
    return {
        "ip_address": it.host,
        "node": context.node.name,
        "port": it.port,
        "protocol": it.protocol,
        "socket_opts": {"nodelay": True},
    }


def overview(context: Context, vhosts: list[VirtualHost], ranges: Ranges, *, whole: bool) -> dict[str, Any]:
    """The overview of these virtual hosts; `whole`: they are all, so that facts of the node are in it."""
    broker = context.node
    version = rabbitmq_version(broker)
    name = broker.parameters.global_parameters.get("cluster_name")
    sums = context.counts.of(vhosts)
    found: dict[str, Any] = {
        "cluster_name": name.value if name is not None else broker.name,
        "cluster_tags": {},
        "default_queue_type": "classic",
        "disable_stats": False,
        "enable_queue_totals": False,
        "erlang_full_version": PYTHON_FULL,
        "erlang_version": PYTHON,
        "exchange_types": exchange_types(context),
        "is_op_policy_updating_enabled": True,
        "management_version": version,
        "node": broker.name,
        "node_tags": {},
        "object_totals": {
            "channels": sums.channels,
            "connections": sums.connections,
            "consumers": sums.consumers,
            "exchanges": sum(len(vhost.router.exchanges) for vhost in vhosts),
            "queues": sum(len(vhost.queues) for vhost in vhosts),
        },
        "product_name": PRODUCT,
        "product_version": VERSION,
        "rabbitmq_version": version,
        "rates_mode": RATES_MODE,
        "sample_retention_policies": RETENTION,
        "statistics_db_event_queue": 0,
    }
    if whole:
        group, key = context.sampler.node, broker.name
        stats = channel_stats(context, group, key, sums.counts, ranges)
        found["queue_totals"] = lengths(context, group, key, sums.ready, sums.unacked, ranges.lengths)
        found["churn_rates"] = churn(context, ranges)
        found["listeners"] = [listener(context, each) for each in context.listeners]
        found["contexts"] = contexts(context)
    else:
        of_vhosts = context.sampler.vhosts
        parts = [channel_stats(context, of_vhosts, each, context.counts.of((each,)).counts, ranges) for each in vhosts]
        stats = summed_stats([each for each in parts if each])
        rows = [context.counts.of((each,)) for each in vhosts]
        found["queue_totals"] = summed_stats(
            [
                lengths(context, of_vhosts, each, row.ready, row.unacked, ranges.lengths)
                for each, row in zip(vhosts, rows, strict=True)
            ]
        )
    found["message_stats"] = stats
    return found
