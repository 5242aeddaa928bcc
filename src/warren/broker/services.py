"""The services of the system exchange: a message to `amq.system` names one by its routing key, and is answered.

    amq.ping     the body comes back
    amq.stats    counts of this virtual host, as JSON: what `Broker.statistics` says of it
    amq.routes   exchanges and bindings, as JSON

The answer goes through the default exchange to the message's reply_to, with its correlation_id. A message without
reply_to is not answered; one to another service reaches nobody (returned when mandatory). Source: the draft's
section 2.2.3.5.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warren.broker.message import Address, Message
from warren.broker.statistics import vhost_statistics
from warren.protocol.v091 import Content, Properties, encode_content

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.broker.vhost import VirtualHost

__all__ = ["SERVICES", "Service"]


def _ping(vhost: VirtualHost, request: Content) -> bytes:
    return request.body


def _stats(vhost: VirtualHost, request: Content) -> bytes:
    return _json({"node": vhost.node.name, "vhost": vhost.name, **vhost_statistics(vhost)})


def _routes(vhost: VirtualHost, request: Content) -> bytes:
    router = vhost.router
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


def _json(value: object) -> bytes:
    return json.dumps(value, default=str).encode("utf-8", "backslashreplace")


SERVICES: dict[str, Callable[[VirtualHost, Content], bytes]] = {
    "amq.ping": _ping,
    "amq.stats": _stats,
    "amq.routes": _routes,
}


class Service:
    """One service of one vhost, as something that takes messages."""

    stored = False

    def __init__(self, vhost: VirtualHost, name: str) -> None:
        self._vhost, self._answer = vhost, SERVICES[name]

    def publish(self, message: Message) -> bool:
        request = message.content.decode_properties()
        if request.reply_to:
            body = self._answer(self._vhost, message.content)
            properties = Properties(correlation_id=request.correlation_id, content_type="application/json")
            frames = encode_content(1, properties, body, 131_072)
            answer = Message(Address("", request.reply_to), Content(1, b"", frames, len(body)))
            queue = self._vhost.reply_queue(request.reply_to)
            if queue is not None:
                queue.publish(answer)
        return True

    def can_deliver(self) -> bool:
        return True

    def enrich(self) -> None:
        """Nothing waits here."""
