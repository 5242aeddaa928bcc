"""The services of the system exchange: the routing key of a message to `amq.system` names one, and it is answered.

    amq.ping           returns the body
    amq.stats          counts of this virtual host, as JSON: its part of `Broker.statistics`, for what the user may read
    amq.routes         exchanges and bindings that the user may read, as JSON
    amq.queue          {"queue": name}: its type and counts; of a stream queue its id and the bounds of its offsets
    amq.change-queue   {"queue": name, "arguments": {...}} changes a queue's optional arguments (`changes`)
    amq.revoke         {"exchange": name, "id": id} drops delayed messages; {"revoked": number of them}
    amq.administer     {"do": ..., ...} of an administrator: users, vhosts, policies, definitions (`administration`)
    amq.lease          more time for deliveries of the same channel (`leases`), answered with the granted lease

The answer goes through the default exchange to the message's reply_to, with its correlation_id. A message without
reply_to is processed but not answered; one to an unknown service reaches no queue (it is returned when mandatory). A
refusal is answered by {"error": ..., "reason": ...}, the name and the text of AMQP's reply; without reply_to it closes
the channel, as any refusal does. Source: the draft's section 2.2.3.5.

A service acts in the name of the user that asks, and checks what the same act over AMQP would check (`auth.acts`). The
answer is a publication of that user too: it needs the permission to write to amq.default, unless it goes back to the
connection that asked (a direct reply, an exclusive queue of its own). Without that permission nothing is done, and the
channel is closed with 403.

A program adds services of its own by a plug-in (`broker.plugins`), to which the same rules apply. One that fails, other
than by a refusal, is refused with 541, and the log has the exception.

What may take long is a work in steps: the connection's further input waits for it, other clients do not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from harebell.broker.audit import NOTHING, Origin, performed
from harebell.broker.auth import Access
from harebell.broker.message import Address, Message
from harebell.broker.node import Node
from harebell.broker.operations.administration import COMMANDS, administering
from harebell.broker.operations.firehose import ADMINISTER
from harebell.broker.operations.leases import LeaseRequest, lease_request
from harebell.broker.operations.statistics import vhost_statistics
from harebell.broker.queues.base import Owner, Queue
from harebell.broker.queues.changes import changed_arguments
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.vhost import VirtualHost
from harebell.defaults import FRAME_MAX
from harebell.errors import (
    AccessRefused,
    AmqpError,
    ChannelError,
    InvalidArgument,
    PluginFailed,
    PreconditionFailed,
)
from harebell.protocol.v091 import BaseContent, Content, Properties, Table, encode_content
from harebell.routing import Destination
from harebell.routing.steps import Steps, complete
from harebell.routing.wire_limits import check_key, check_value

__all__ = ["SERVICES", "OwnRequest", "Requester", "Service", "has_service"]

log = logging.getLogger("harebell.broker.services")

CHANGING: Final = frozenset({ADMINISTER, "amq.change-queue", "amq.revoke"})
"""The services whose refusals the audit log has."""
SECRET: Final = frozenset({"add-user", "set-password", "import-definitions"})
"""The commands of amq.administer with hashes of passwords, which the reason of a refusal may quote."""
LONGEST_READ: Final = 64 << 10  # bytes of a refused request that is read again for the audit log

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"

T = TypeVar("T")


class Requester(Owner, Protocol):
    """The connection of a client that sent a request."""

    node: Node
    vhost: VirtualHost
    access: Access

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> Origin:
        """Who asks, for the audit log."""

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries of that channel a lease. Returns their tags."""


def _ping(connection: Requester, request: BaseContent) -> bytes:
    return request.body


def _stats(connection: Requester, request: BaseContent) -> Steps[bytes]:
    """Count what the user may read; totals of the virtual host are there only when nothing is left out."""
    node, vhost, access = connection.node, connection.vhost, connection.access
    counts = yield from vhost_statistics(node, vhost)
    queues = dict((yield from _filtered(counts["queues"].items(), lambda item: access.sees_queue(item[0]))))
    exchanges = dict((yield from _filtered(counts["exchanges"].items(), lambda item: access.sees_exchange(item[0]))))
    if len(queues) < len(counts["queues"]) or len(exchanges) < len(counts["exchanges"]):
        del counts["connections"], counts["message_stats"]
    answer = {"node": node.name, "vhost": vhost.name, **counts, "queues": queues, "exchanges": exchanges}
    return (yield from _json_in_steps(answer))


def _routes(connection: Requester, request: BaseContent) -> Steps[bytes]:
    router, access = connection.vhost.router, connection.access
    exchanges = yield from _filtered(router.exchanges, lambda each: access.sees_exchange(each.name))
    bindings = list[dict[str, object]]()
    for exchange in tuple(router.exchanges):
        yield
        for binding in tuple(exchange.bindings()):
            if access.sees_binding(binding.source, binding.destination):
                bindings.append(
                    {
                        "source": binding.source,
                        "destination": binding.destination.name,
                        "destination_type": binding.destination.kind,
                        "routing_key": binding.binding_key,
                        "arguments": binding.arguments,
                    }
                )
            yield
    return (
        yield from _json_in_steps({"exchanges": {each.name: each.type for each in exchanges}, "bindings": bindings})
    )


def _filtered(items: Iterable[T], wanted: Callable[[T], bool]) -> Steps[list[T]]:
    found = []
    for item in tuple(items):
        if wanted(item):
            found.append(item)
        yield
    return found


def _queue(connection: Requester, request: BaseContent) -> bytes:
    """Describe a queue. A stream queue has an `id`, another one each time that it is declared after a deletion."""
    (name,) = _asked(request, queue=str)
    connection.access.see_queue(name)
    queue = connection.vhost.queue(name, connection)
    told = {
        "queue": name,
        "type": queue.type,
        "messages_ready": queue.message_count,
        "consumers": len(queue.consumers),
    }
    if isinstance(queue, StreamQueue):
        told |= {"id": queue.id, "first_offset": queue.log.first, "next_offset": queue.log.durable}
    return _json(told)


def _change_queue(connection: Requester, request: BaseContent) -> bytes:
    """Change a queue; it needs the permissions of declaring the queue so, and no other connection may own it."""
    name, arguments = _asked(request, queue=str, arguments=dict)
    access, vhost = connection.access, connection.vhost
    access.declare_queue(name, {}, new=False, server_named=True)
    access.dead_letter(name, changed_arguments(vhost.queue(name, connection), arguments))
    queue = vhost.change_queue(name, arguments, connection)
    return _json({"queue": name, "arguments": queue.arguments})


def _revoke(connection: Requester, request: BaseContent) -> Steps[bytes]:
    """Drop delayed messages; it needs the permission to publish to the exchange."""
    exchange, message_id = _asked(request, exchange=str, id=str)
    connection.access.publish(exchange, "")
    return _json({"revoked": (yield from connection.vhost.revoke_delayed(exchange, message_id))})


def _administer(connection: Requester, request: BaseContent) -> Steps[bytes]:
    """Administer for an administrator, which may not delete what the answer needs. Changes are logged."""
    node, user = connection.node, connection.user
    if not node.users.has_tag(user, "administrator"):
        raise AccessRefused(f"user '{user}' is no administrator: only one may ask amq.administer")
    asked = yield from _json_of(request)
    does, name = (asked.get("do"), asked.get("name")) if isinstance(asked, dict) else (None, None)
    if does == "delete-user" and name == user:
        raise PreconditionFailed(f"user '{name}' is asking for this: log in as another to delete it")
    if does == "delete-vhost" and name == connection.vhost.name:
        raise PreconditionFailed(f"this connection is to vhost '{name}': connect to another to delete it")
    command = COMMANDS.get(does) if isinstance(does, str) else None
    address = connection.vhost.reply_queues.get(request.decode_properties().reply_to or "")
    if command is not None and command.secret and (address is None or address.owner is not connection):
        raise PreconditionFailed(f"the answer to '{does}' has hashes of passwords: ask for it with a direct reply")
    answer = yield from administering(node, asked)
    if COMMANDS[asked["do"]].changes:
        about = ", ".join(f"{field} {asked[field]!r}" for field in ("name", "user", "vhost") if field in asked)
        log.info("%s: user '%s' did %s: %s", connection.name, user, does, about)
    return (yield from _json_in_steps(answer))


def _does(body: bytes) -> str:
    """The command that a request to amq.administer has; "" where it is too long to be read at once, or has none."""
    try:
        asked = json.loads(body) if len(body) <= LONGEST_READ else None
    except (ValueError, RecursionError):
        return ""
    does = asked.get("do") if isinstance(asked, dict) else None
    return does if isinstance(does, str) else ""


def _asked(request: BaseContent, **fields: type[str | dict[str, Any]]) -> tuple[Any, ...]:
    """The fields of a JSON object, each of its type. PreconditionFailed for anything else."""
    asked = complete(_json_of(request))
    for name, kind in fields.items():
        if not isinstance(asked, dict) or not isinstance(asked.get(name), kind):
            wanted = ", ".join(f'"{each}": {"string" if of is str else "object"}' for each, of in fields.items())
            raise PreconditionFailed(f"the body must be {{{wanted}}}")
    return tuple(asked[name] for name in fields)


def _json_of(request: BaseContent) -> Steps[Any]:
    try:
        asked = json.loads(request.body)
        yield from _check(asked, "the body", 3)
    except InvalidArgument as error:
        raise PreconditionFailed(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise PreconditionFailed(f"the body is not JSON: {error}") from None
    return asked


def _check(value: object, what: str, levels: int, depth: int = 0) -> Steps[None]:
    """As `check_value`, an item of a list or an object in one step, and so many levels down."""
    if not levels or not isinstance(value, (dict, list)):
        check_value(value, what, depth)
    elif isinstance(value, dict):
        for name, item in value.items():
            check_key(name, what)
            yield from _check(item, f"{what}.{name}", levels - 1, depth + 1)
            yield
    else:
        for number, item in enumerate(value):
            yield from _check(item, f"{what}[{number}]", levels - 1, depth + 1)
            yield


def _lease(connection: Requester, request: BaseContent) -> bytes:
    asked = lease_request(request.decode_properties().headers or {})
    tags = connection.lease(request.channel, asked)
    return _json({"delivery_tags": tags, "timeout": asked.timeout})


def _json(value: object) -> bytes:
    return json.dumps(value, default=str).encode("utf-8", "backslashreplace")


def _json_in_steps(value: object, levels: int = 2) -> Steps[bytes]:
    """As `_json`, an item of a list or an object in one step, and so many levels down."""
    parts = yield from _parts(value, levels)
    return "".join(parts).encode("utf-8", "backslashreplace")


def _parts(value: object, levels: int) -> Steps[list[str]]:
    if not levels or not isinstance(value, (dict, list)) or not value:
        return [json.dumps(value, default=str)]
    items = value.items() if isinstance(value, dict) else (("", item) for item in value)
    parts, separator = list[str](), "{" if isinstance(value, dict) else "["
    for name, item in items:
        parts.append(f"{separator}{json.dumps(name)}: " if isinstance(value, dict) else separator)
        parts += yield from _parts(item, levels - 1)
        separator = ", "
        yield
    parts.append("}" if isinstance(value, dict) else "]")
    return parts


SERVICES: dict[str, Callable[[Requester, BaseContent], bytes | Steps[bytes]]] = {
    "amq.ping": _ping,
    "amq.stats": _stats,
    "amq.routes": _routes,
    "amq.queue": _queue,
    "amq.change-queue": _change_queue,
    "amq.revoke": _revoke,
    ADMINISTER: _administer,
    "amq.lease": _lease,
}


def has_service(node: Node, name: str) -> bool:
    """Whether there is a service of that name, built in or of a plug-in."""
    return name in SERVICES or name in node.plugins.services


class OwnRequest:
    """A request to a service of a plug-in (`plugins.ServiceRequest`)."""

    def __init__(self, connection: Requester, service: str, content: BaseContent) -> None:
        self.service = service
        self.user, self.vhost = connection.user, connection.vhost.name
        self.body = content.body
        self.properties = content.decode_properties()
        self._access = connection.access

    @property
    def headers(self) -> Table:
        return self.properties.headers or {}

    def check(self, act: str, *, routing_key: str | None = None, **resources: str | Destination) -> None:
        self._access.check(act, resources, routing_key)


class Service:
    """One service for one connection, as a sink of messages."""

    stored = False

    def __init__(self, connection: Requester, name: str) -> None:
        self._connection, self._name = connection, name
        self._built_in = SERVICES.get(name)

    def _answer(self, request: BaseContent) -> Steps[tuple[bytes, str]]:
        """The answer and its content type. ChannelError where the request is refused."""
        if self._built_in is not None:
            done = self._built_in(self._connection, request)
            return done if isinstance(done, bytes) else (yield from done), JSON
        function = self._connection.node.plugins.services[self._name]
        try:
            answer = function(OwnRequest(self._connection, self._name, request))
            if isinstance(answer, (bytes, bytearray)):
                return bytes(answer), BYTES
            return json.dumps(answer, allow_nan=False).encode(), JSON
        except ChannelError:
            raise
        except Exception as error:  # the program's own: nothing of it may reach the broker
            log.exception("service '%s' failed, asked by user '%s'", self._name, self._connection.user)
            raise PluginFailed(f"service '{self._name}' failed, the broker's log says how") from error

    def publish(self, message: Message) -> bool:
        """As `serve`, at once."""
        complete(self.serve(message))
        return True

    def serve(self, message: Message) -> Steps[None]:
        """Do what is asked, and answer. AmqpError for a refusal without an address for the answer."""
        request = message.content.decode_properties()
        queue = self._reply_queue(request.reply_to) if request.reply_to else None
        try:
            body, content_type = yield from performed(
                self._connection.node.events, self._connection.origin, self._answer(message.content)
            )
        except AmqpError as error:
            if self._name in CHANGING:
                self._note_refusal(message.content, error)
            if not request.reply_to:
                raise
            body, content_type = _json({"error": error.reply_name.lower(), "reason": error.reply_text}), JSON
        if request.reply_to and queue is not None and not queue.deleted:
            properties = Properties(correlation_id=request.correlation_id, content_type=content_type)
            frames = encode_content(1, properties, body, FRAME_MAX)
            queue.publish(Message(Address("", request.reply_to), Content(1, b"", frames, len(body))))

    def _note_refusal(self, request: BaseContent, error: AmqpError) -> None:
        """Record it, without its reason where that may quote a secret."""
        connection, does = self._connection, _does(request.body) if self._name == ADMINISTER else ""
        safe = self._name != ADMINISTER or (does in COMMANDS and does not in SECRET)
        connection.node.events.act(
            connection.vhost.name, "service", self._name, "asked", origin=connection.origin,
            refused=error.reply_text if safe else error.reply_name, told={"do": does} if does else NOTHING,
        )  # fmt: skip

    def _reply_queue(self, name: str) -> Queue | None:
        """The queue for the answer; None when there is none of that name. AccessRefused when the user may not write."""
        connection = self._connection
        queue = connection.vhost.reply_queue(name)
        if queue is None or queue.owner is not connection:
            connection.access.publish("", name)
        return queue

    def can_deliver(self, message: Message) -> bool:
        return True

    def enrich(self) -> None:
        """Do nothing: messages do not expire here."""
