"""The services of the system exchange: the routing key of a message to `amq.system` names one, and it is answered.

    amq.ping           returns the body
    amq.stats          counts of this virtual host, as JSON: its part of `Broker.statistics`
    amq.routes         exchanges and bindings, as JSON
    amq.change-queue   {"queue": name, "arguments": {...}} changes a queue's optional arguments (`changes`)
    amq.revoke         {"exchange": name, "id": id} drops delayed messages; {"revoked": number of them}
    amq.administer     {"do": ..., ...} of an administrator: users, vhosts, permissions, policies (`administration`)
    amq.lease          more time for deliveries of the same channel (`leases`), answered with the granted lease

The answer goes through the default exchange to the message's reply_to, with its correlation_id. A message without
reply_to is processed but not answered; one to an unknown service reaches no queue (it is returned when mandatory). A
refusal is answered by {"error": ..., "reason": ...}, the name and the text of AMQP's reply; without reply_to it closes
the channel, as any refusal does. Source: the draft's section 2.2.3.5.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Protocol

from harebell.broker.auth import Access
from harebell.broker.message import Address, Message
from harebell.broker.node import Node
from harebell.broker.operations.administration import COMMANDS, administer
from harebell.broker.operations.firehose import ADMINISTER
from harebell.broker.operations.leases import LeaseRequest, lease_request
from harebell.broker.operations.statistics import vhost_statistics
from harebell.broker.queues.base import Owner
from harebell.broker.vhost import VirtualHost
from harebell.defaults import FRAME_MAX
from harebell.errors import AccessRefused, AmqpError, PreconditionFailed
from harebell.protocol.v091 import Content, Properties, encode_content

__all__ = ["SERVICES", "Requester", "Service"]

log = logging.getLogger("harebell.broker.services")


class Requester(Owner, Protocol):
    """The connection of a client that sent a request."""

    node: Node
    vhost: VirtualHost
    access: Access

    @property
    def name(self) -> str: ...
    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries of that channel a lease. Returns their tags."""


def _ping(connection: Requester, request: Content) -> bytes:
    return request.body


def _stats(connection: Requester, request: Content) -> bytes:
    node, vhost = connection.node, connection.vhost
    return _json({"node": node.name, "vhost": vhost.name, **vhost_statistics(node, vhost)})


def _routes(connection: Requester, request: Content) -> bytes:
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


def _change_queue(connection: Requester, request: Content) -> bytes:
    """Change a queue; it needs the permissions of declaring the queue, and no other connection may own it."""
    name, arguments = _asked(request, queue=str, arguments=dict)
    connection.access.configure("queue", name)
    queue = connection.vhost.change_queue(name, arguments, connection)
    return _json({"queue": name, "arguments": queue.arguments})


def _revoke(connection: Requester, request: Content) -> bytes:
    """Drop delayed messages; it needs the permission to publish to the exchange."""
    exchange, message_id = _asked(request, exchange=str, id=str)
    connection.access.write("exchange", exchange)
    return _json({"revoked": connection.vhost.revoke_delayed(exchange, message_id)})


def _administer(connection: Requester, request: Content) -> bytes:
    """Administer for an administrator, which may not delete what the answer needs. Changes are logged."""
    node, user = connection.node, connection.user
    if not node.users.has_tag(user, "administrator"):
        raise AccessRefused(f"user '{user}' is no administrator: only one may ask amq.administer")
    asked = _json_of(request)
    does, name = (asked.get("do"), asked.get("name")) if isinstance(asked, dict) else (None, None)
    if does == "delete-user" and name == user:
        raise PreconditionFailed(f"user '{name}' is asking for this: log in as another to delete it")
    if does == "delete-vhost" and name == connection.vhost.name:
        raise PreconditionFailed(f"this connection is to vhost '{name}': connect to another to delete it")
    answer = administer(node, asked)
    if COMMANDS[asked["do"]].changes:
        about = ", ".join(f"{field} {asked[field]!r}" for field in ("name", "user", "vhost") if field in asked)
        log.info("%s: user '%s' did %s: %s", connection.name, user, does, about)
    return _json(answer)


def _asked(request: Content, **fields: type[str | dict[str, Any]]) -> tuple[Any, ...]:
    """The fields of a JSON object, each of its type. PreconditionFailed for anything else."""
    asked = _json_of(request)
    for name, kind in fields.items():
        if not isinstance(asked, dict) or not isinstance(asked.get(name), kind):
            wanted = ", ".join(f'"{each}": {"string" if of is str else "object"}' for each, of in fields.items())
            raise PreconditionFailed(f"the body must be {{{wanted}}}")
    return tuple(asked[name] for name in fields)


def _json_of(request: Content) -> Any:
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise PreconditionFailed(f"the body is not JSON: {error}") from None


def _lease(connection: Requester, request: Content) -> bytes:
    asked = lease_request(request.decode_properties().headers or {})
    tags = connection.lease(request.channel, asked)
    return _json({"delivery_tags": tags, "timeout": asked.timeout})


def _json(value: object) -> bytes:
    return json.dumps(value, default=str).encode("utf-8", "backslashreplace")


SERVICES: dict[str, Callable[[Requester, Content], bytes]] = {
    "amq.ping": _ping,
    "amq.stats": _stats,
    "amq.routes": _routes,
    "amq.change-queue": _change_queue,
    "amq.revoke": _revoke,
    ADMINISTER: _administer,
    "amq.lease": _lease,
}


class Service:
    """One service for one connection, as a sink of messages."""

    stored = False

    def __init__(self, connection: Requester, name: str) -> None:
        self._connection, self._answer = connection, SERVICES[name]

    def publish(self, message: Message) -> bool:
        request = message.content.decode_properties()
        try:
            body = self._answer(self._connection, message.content)
        except AmqpError as error:
            if not request.reply_to:
                raise
            body = _json({"error": error.reply_name.lower(), "reason": error.reply_text})
        if request.reply_to:
            properties = Properties(correlation_id=request.correlation_id, content_type="application/json")
            frames = encode_content(1, properties, body, FRAME_MAX)
            answer = Message(Address("", request.reply_to), Content(1, b"", frames, len(body)))
            queue = self._connection.vhost.reply_queue(request.reply_to)
            if queue is not None:
                queue.publish(answer)
        return True

    def can_deliver(self) -> bool:
        return True

    def enrich(self) -> None:
        """Do nothing: messages do not expire here."""
