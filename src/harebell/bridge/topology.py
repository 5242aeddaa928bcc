"""Declares the topology of one virtual host of a definitions file on a broker, over AMQP.

AMQP can declare exchanges, queues and bindings only: to import users, permissions, policies and virtual hosts, use the
broker's own tools (`rabbitmqctl import_definitions`, `harebell serve --definitions`).
"""

from __future__ import annotations

from typing import cast

from harebell.client.connection import Connection
from harebell.errors import NotFound, PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.routing.definitions import Definitions, QueueDefinition
from harebell.routing.naming import RESERVED_PREFIX
from harebell.routing.table_values import Table as JsonTable

__all__ = ["declare_topology", "durable_queues"]


def durable_queues(definitions: Definitions, vhost: str) -> list[QueueDefinition]:
    """The queues of the virtual host that outlive a restart, in the order of the file."""
    return [
        each for each in definitions.queues
        if each.vhost == vhost and each.durable and not each.name.startswith(RESERVED_PREFIX)
    ]  # fmt: skip


async def declare_topology(connection: Connection, definitions: Definitions, vhost: str) -> list[str]:
    """Declare exchanges, queues and bindings of the file's `vhost` over the connection; returns remarks.

    An existing exchange or queue with other arguments stays as it is and gets a remark, as in a definitions import.
    Any other refusal of the broker is raised.
    """
    remarks: list[str] = []
    for exchange in definitions.exchanges:
        if exchange.vhost == vhost and exchange.name and not exchange.name.startswith(RESERVED_PREFIX):
            try:
                async with connection.channel() as channel:
                    await channel.exchange_declare(
                        exchange.name,
                        exchange.type,
                        durable=exchange.durable,
                        auto_delete=exchange.auto_delete,
                        internal=exchange.internal,
                        arguments=_arguments(exchange.arguments),
                    )
            except PreconditionFailed as error:
                remarks.append(f"exchange '{exchange.name}' stays as it is: {error.detail}")
    for queue in definitions.queues:
        if queue.vhost == vhost and not queue.name.startswith(RESERVED_PREFIX):
            try:
                async with connection.channel() as channel:
                    await channel.queue_declare(
                        queue.name,
                        durable=queue.durable,
                        auto_delete=queue.auto_delete,
                        arguments=_queue_arguments(queue),
                    )
            except PreconditionFailed as error:
                remarks.append(f"queue '{queue.name}' stays as it is: {error.detail}")
    await _bind(connection, definitions, vhost, remarks)
    return remarks


async def _bind(connection: Connection, definitions: Definitions, vhost: str, remarks: list[str]) -> None:
    for binding in definitions.bindings:
        if binding.vhost != vhost or not binding.source:
            continue  # the default exchange has implicit bindings
        arguments = _arguments(binding.arguments)
        try:
            async with connection.channel() as channel:
                bind = channel.queue_bind if binding.destination_type == "queue" else channel.exchange_bind
                await bind(binding.destination, binding.source, binding.routing_key, arguments=arguments)
        except NotFound as error:  # exports have bindings of exclusive queues without the queues
            remarks.append(f"binding from '{binding.source}' to '{binding.destination}' left out: {error.detail}")


def _queue_arguments(queue: QueueDefinition) -> Table | None:
    """The queue's arguments, with its type where the file has it beside them."""
    arguments = _arguments(queue.arguments) or {}
    if queue.type not in (None, "classic") and "x-queue-type" not in arguments:
        arguments = {**arguments, "x-queue-type": queue.type}
    return arguments or None


def _arguments(arguments: JsonTable) -> Table | None:
    """A file's arguments as a table of the protocol: every type that JSON has is a type there."""
    return cast(Table, dict(arguments)) or None
