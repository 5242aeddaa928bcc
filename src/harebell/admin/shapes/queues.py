"""A queue in RabbitMQ's form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from harebell.admin.context import Context
from harebell.admin.history.ranges import NONE, Ranges
from harebell.admin.history.sampler import Group
from harebell.admin.history.series import TICK
from harebell.admin.history.sizes import head_timestamp, sizes
from harebell.admin.shapes.consumers import consumer
from harebell.admin.shapes.names import split_address
from harebell.admin.shapes.stats import lengths, queue_stats
from harebell.broker.clients import Connection
from harebell.broker.operations.definitions import json_table
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.routing.policies import merged

__all__ = ["idle_since", "queue", "queue_alone"]


def queue(context: Context, vhost: VirtualHost, queue: Queue, ranges: Ranges = NONE) -> dict[str, Any]:
    """A queue as lists have it."""
    unacked = context.counts.unacked[queue]
    size = sizes(queue, unacked)
    policy, operator_policy, definition = _policies(vhost, queue)
    consumers = queue.consumers
    active = consumers.active if consumers.single else None
    exclusive = next((each for each in consumers if each.exclusive), None) if len(consumers) == 1 else None
    persistent, total_bytes = size.persistent, size.ready + size.unacked
    free = _capacity(queue)
    found: dict[str, Any] = {
        "arguments": json_table(queue.arguments) if queue.arguments else {},
        "auto_delete": queue.auto_delete,
        "consumer_capacity": free,
        "consumer_utilisation": free,
        "consumers": len(consumers),
        "created_at": queue.created_at,
        "durable": queue.durable,
        "effective_policy_definition": definition,
        "exclusive": queue.exclusive,
        "exclusive_consumer_tag": getattr(exclusive, "tag", None),
        "head_message_timestamp": head_timestamp(queue),
        "memory": size.memory,
        "message_bytes": total_bytes,
        "message_bytes_paged_out": max(0, size.ready - size.in_memory),
        "message_bytes_persistent": round(total_bytes * persistent),
        "message_bytes_ram": size.in_memory + size.unacked,
        "message_bytes_ready": size.ready,
        "message_bytes_unacknowledged": size.unacked,
        **lengths(context, context.sampler.queues, queue, queue.message_count, unacked, ranges.lengths),
        "messages_delayed": queue.delayed_count,
        "messages_dlx": queue.dead_letter_count,
        "messages_paged_out": queue.message_count - size.in_memory_count,
        "messages_persistent": round((queue.message_count + unacked) * persistent),
        "messages_ram": size.in_memory_count + unacked,
        "messages_ready_ram": size.in_memory_count,
        "messages_unacknowledged_ram": unacked,
        "name": queue.name,
        "node": context.node.name,
        "operator_policy": operator_policy,
        "policy": policy,
        "single_active_consumer_tag": getattr(active, "tag", None),
        "state": "running",
        "type": queue.type,
        "vhost": vhost.name,
    }
    stats = queue_stats(context, queue, queue.counts, ranges)
    if stats:
        found["message_stats"] = stats
    since = idle_since(context, context.sampler.queues, queue, queue.created_at)
    if since is not None:
        found["idle_since"] = since
    return found


def queue_alone(context: Context, vhost: VirtualHost, it: Queue, ranges: Ranges) -> dict[str, Any]:
    """A queue as it is alone: with its consumers, and with its owner if it is exclusive."""
    found = queue(context, vhost, it, ranges)
    found["consumer_details"] = [consumer(context, each) for each in it.consumers]
    found["deliveries"] = found["incoming"] = []  # of RabbitMQ's rates mode "detailed"
    owner = it.owner
    if owner is not None:
        connection = next((each for each in context.node.connections if each.pid == owner.pid), None)
        if connection is not None:
            found["owner_pid_details"] = connection_details(connection)
    return found


def connection_details(connection: Connection) -> dict[str, Any]:
    host, port = split_address(connection.peer)
    return {"name": connection.name, "peer_host": host, "peer_port": port}


def idle_since(context: Context, group: Group[Any], key: object, created_at: int) -> str | None:
    """When the object changed last; None if that was in the last interval. `created_at`: it never did before."""
    sampler, record = context.sampler, group.records.get(key)
    if record is None:
        began = max(created_at / 1000, context.started)
        return _text(began) if sampler.at - began > 2 * TICK else None
    if record.tick >= sampler.tick:
        return None
    return _text(sampler.at - (sampler.tick - record.tick) * TICK)


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _capacity(queue: Queue) -> float:
    """The part of the time in which the queue can deliver at once: all of it, or none, as it is now."""
    if not len(queue.consumers):
        return 0.0
    return 1.0 if any(each.room() > 0 for each in queue.consumers) else 0.0


def _policies(vhost: VirtualHost, queue: Queue) -> tuple[str | None, str | None, Mapping[str, object]]:
    """The names of the policies in force, and what they set together."""
    policies = vhost.policies
    if not policies.policies and not policies.operator_policies:
        return None, None, {}
    policy, operator_policy = policies.in_force(queue.name, queue.settings.queue_type)
    definition = {key: setting.value for key, setting in merged(policy, operator_policy).items()}
    names = [None if each is None else each.name for each in (policy, operator_policy)]
    return names[0], names[1], definition
