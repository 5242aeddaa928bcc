"""An exchange, and a binding, in RabbitMQ's form."""

from __future__ import annotations

from typing import Any

from harebell.admin.context import Context
from harebell.admin.history.ranges import NONE, Ranges
from harebell.admin.shapes.names import properties_key
from harebell.admin.shapes.stats import exchange_stats
from harebell.broker.operations.definitions import json_table
from harebell.broker.vhost import VirtualHost
from harebell.routing import Binding, Exchange

__all__ = ["binding", "exchange"]


def exchange(context: Context, vhost: VirtualHost, it: Exchange, ranges: Ranges = NONE) -> dict[str, Any]:
    """An exchange as lists have it."""
    found: dict[str, Any] = {
        "arguments": json_table(it.arguments) if it.arguments else {},
        "auto_delete": it.auto_delete,
        "durable": it.durable,
        "internal": it.internal,
        "name": it.name,
        "type": it.type,
        "vhost": vhost.name,
    }
    if vhost.policies.policies and it.name:
        policy, _ = vhost.policies.in_force(it.name, "exchange")
        if policy is not None:
            found["policy"] = policy.name
    if it.alternate is not None:
        found["alternate_exchange"] = it.alternate
    delayed = len(vhost.delays.get(it.name, ()))
    if delayed:
        found["messages_delayed"] = delayed
    stats = exchange_stats(context, it, vhost.exchange_counts(it.name), ranges)
    if stats:
        found["message_stats"] = stats
    return found


def binding(vhost: str, it: Binding) -> dict[str, Any]:
    return {
        "source": it.source,
        "vhost": vhost,
        "destination": it.destination.name,
        "destination_type": it.destination.kind,
        "routing_key": it.binding_key,
        "arguments": json_table(it.arguments) if it.arguments else {},
        "properties_key": properties_key(it),
    }
