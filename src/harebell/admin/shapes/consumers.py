"""A consumer in RabbitMQ's form."""

from __future__ import annotations

from typing import Any, cast

from harebell.admin.context import Context
from harebell.admin.shapes.names import channel_name, split_address
from harebell.broker.clients import Subscription
from harebell.broker.operations.definitions import json_table

__all__ = ["consumer"]


def consumer(context: Context, it: object) -> dict[str, Any]:
    """A consumer of any dialect."""
    each = cast("Subscription", it)
    channel, queue = each.channel, each.queue
    connection = channel.connection
    host, port = split_address(connection.peer)
    consumers = queue.consumers
    waits = consumers.single and consumers.active is not it
    return {
        "ack_required": not each.no_ack,
        "active": not waits,
        "activity_status": "waiting" if waits else "single_active" if consumers.single else "up",
        "arguments": json_table(each.arguments) if each.arguments else {},
        "channel_details": {
            "connection_name": connection.name,
            "name": channel_name(connection.name, channel.number),
            "node": context.node.name,
            "number": channel.number,
            "peer_host": host,
            "peer_port": port,
            "user": connection.user,
        },
        "consumer_tag": each.tag,
        "consumer_timeout": queue.settings.consumer_timeout or context.node.consumer_timeout,
        "exclusive": each.exclusive,
        "prefetch_count": each.prefetch,
        "queue": {"name": queue.name, "vhost": channel.connection.vhost.name},
    }
