"""The firehose: a copy of every message that is published in a vhost or delivered there, for observers.

Copies go to the exchange `amq.rabbitmq.trace` with the routing key `publish.EXCHANGE` or `deliver.QUEUE`; their headers
describe the message, their body is its body. While the firehose is off no message is checked for it: switching it on
makes publishers route each message anew and queues deliver one by one, and these slower paths check for it.

Copies are not traced themselves, nor are requests to `amq.administer`: they hold hashes of passwords. Source:
RabbitMQ's firehose, headers and types as RabbitMQ 3.10 sends them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from harebell.broker.clients import Channel
from harebell.broker.message import Message
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.errors import NotFound
from harebell.protocol.v091 import FieldValue, Properties, Table
from harebell.routing import SYSTEM_EXCHANGE, cc_keys

__all__ = ["ADMINISTER", "TRACE_EXCHANGE", "Trace", "set_tracing"]

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
ADMINISTER: Final = "amq.administer"
"""The service of the system exchange whose requests the firehose leaves out."""


def set_tracing(node: Node, name: str, on: bool) -> None:
    """Switch the firehose of a virtual host on or off. NotFound for an unknown one.

    Its publishers drop their cached routes.
    """
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"no vhost '{name}'")
    if on != (vhost.trace is not None):
        node.events.act(name, "vhost", name, "tracing.on" if on else "tracing.off")
    vhost.trace = Trace(vhost, node.name) if on else None
    vhost.router.version += 1


class Trace:
    """The firehose of one vhost."""

    def __init__(self, vhost: VirtualHost, node_name: str) -> None:
        self._vhost, self._node_name = vhost, node_name

    def published(
        self, channel: Channel, message: Message, keys: tuple[str, ...], properties: Properties, queues: tuple[str, ...]
    ) -> None:
        """Copy a message that a client published with these keys, and that was routed to these queues.

        An address for direct replies is none, as in RabbitMQ.
        """
        if message.address.exchange == SYSTEM_EXCHANGE and message.address.routing_key == ADMINISTER:
            return
        headers = self._headers(channel, message, keys, properties)
        headers["routed_queues"] = [name for name in queues if name in self._vhost.queues]
        self._copy(f"publish.{message.address.exchange}", headers, message)

    def delivered(self, channel: Channel, queue: Queue, message: Message, redelivered: bool) -> None:
        """Copy a message of the queue that goes to a consumer or to basic.get on this channel."""
        if message.address.exchange == TRACE_EXCHANGE:
            return
        properties = message.content.decode_properties()
        keys = message.keys or (message.address.routing_key, *cc_keys(properties.headers or {}))
        headers = self._headers(channel, message, keys, properties)
        headers["redelivered"] = int(redelivered)
        self._copy(f"deliver.{queue.name}", headers, message)

    def _headers(
        self, channel: Channel, message: Message, keys: tuple[str, ...], properties: Properties
    ) -> dict[str, FieldValue]:
        return {
            "exchange_name": message.address.exchange,
            "routing_keys": list(keys),
            "properties": _table(properties),
            "node": self._node_name,
            "vhost": self._vhost.name,
            "connection": channel.connection.name,
            "channel": channel.number,
            "user": channel.connection.user,
        }

    def _copy(self, routing_key: str, headers: Table, message: Message) -> None:
        self._vhost.announce(TRACE_EXCHANGE, routing_key, Properties(headers=headers), message.content.body)


def _table(properties: Properties) -> Table:
    """The set properties of a message, by name; a timestamp in seconds."""
    table: dict[str, FieldValue] = {}
    for name in properties.__slots__:
        value = getattr(properties, name)
        if value is not None and name != "reserved":
            table[name] = int(value.timestamp()) if isinstance(value, datetime) else value
    return table
