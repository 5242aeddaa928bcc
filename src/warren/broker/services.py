"""The services of the system exchange: a message to `amq.system` names one by its routing key, and is answered.

    amq.ping     the body comes back
    amq.stats    counts of this virtual host, as JSON
    amq.routes   exchanges and bindings, as JSON
    amq.lease    more time for deliveries of the same channel (`leases`), answered with what was granted

The answer goes through the default exchange to the message's reply_to, with its correlation_id. A message without
reply_to is not answered; one to another service reaches nobody (returned when mandatory). Source: the draft's
section 2.2.3.5.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warren.broker.leases import lease_request
from warren.broker.message import Address, Message
from warren.protocol.v091 import Content, Properties, encode_content

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.broker.connection import Connection

__all__ = ["SERVICES", "Service"]


def _ping(connection: Connection, request: Content) -> bytes:
    return request.body


def _stats(connection: Connection, request: Content) -> bytes:
    vhost, node = connection.vhost, connection.node
    return _json(
        {
            "node": node.name,
            "vhost": vhost.name,
            "connections": len(node.connections),
            "queues": {
                name: {"type": queue.type, "messages": queue.message_count, "consumers": len(queue.consumers)}
                for name, queue in vhost.queues.items()
            },
        }
    )


def _routes(connection: Connection, request: Content) -> bytes:
    router = connection.vhost.router
    return _json(
        {
            "exchanges": {exchange.name: exchange.type for exchange in router.exchanges},
            "bindings": [
                {
                    "source": binding.source,
                    "destination": binding.destination.name,
                    "destination_type": binding.destination.kind,
                    "routing_key": binding.binding_key,
                    "arguments": binding.arguments,
                }
                for binding in router.bindings()
            ],
        }
    )


def _lease(connection: Connection, request: Content) -> bytes:
    asked = lease_request(request.decode_properties().headers or {})
    tags = connection.channels[request.channel].lease(asked)
    return _json({"delivery_tags": tags, "timeout": asked.timeout})


def _json(value: object) -> bytes:
    return json.dumps(value, default=str).encode("utf-8", "backslashreplace")


SERVICES: dict[str, Callable[[Connection, Content], bytes]] = {
    "amq.ping": _ping,
    "amq.stats": _stats,
    "amq.routes": _routes,
    "amq.lease": _lease,
}


class Service:
    """One service for one connection, as something that takes messages."""

    stored = False

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._answer = connection, SERVICES[name]

    def publish(self, message: Message) -> bool:
        request = message.content.decode_properties()
        body = self._answer(self._connection, message.content)
        if request.reply_to:
            properties = Properties(correlation_id=request.correlation_id, content_type="application/json")
            frames = encode_content(1, properties, body, 131_072)
            answer = Message(Address("", request.reply_to), Content(1, b"", frames, len(body)))
            queue = self._connection.vhost.reply_queue(request.reply_to)
            if queue is not None:
                queue.publish(answer)
        return True

    def can_deliver(self) -> bool:
        return True

    def enrich(self) -> None:
        """Nothing waits here."""
