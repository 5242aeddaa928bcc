"""The event exchange: what happens on the node, as messages of the topic exchange `amq.rabbitmq.event` of vhost "/".

The routing key names the event ("queue.created"), the headers say the rest; there is no body. Names, headers and their
forms are those of RabbitMQ's plugin rabbitmq_event_exchange, so arguments are Erlang terms in text. Nobody who listens
makes an event cheap, and without `Broker(events=True)` nothing is built at all.

Whoever changes something calls `node.events.emit`; the message is delivered at the end of the batch.
"""

from __future__ import annotations

import ipaddress
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from harebell.protocol.v091 import FieldValue, Properties, Table
from harebell.routing import Binding
from harebell.routing.values import erlang_term, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harebell.broker.node import Node
    from harebell.broker.queues.classic import Queue
    from harebell.broker.v091.channel import Channel
    from harebell.broker.v091.connection import Connection
    from harebell.broker.v091.consumer import Consumer
    from harebell.broker.vhost import VirtualHost
    from harebell.routing import Exchange
    from harebell.routing.definitions import Parameter

__all__ = ["EVENT_EXCHANGE", "INTERNAL_USER", "Events"]

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
INTERNAL_USER: Final = "rmq-internal"  # who did what no user did; RabbitMQ's name
PERSISTENT: Final = 2
WITHOUT_TLS: Final = dict.fromkeys(
    (
        "ssl_protocol",
        "ssl_key_exchange",
        "ssl_cipher",
        "ssl_hash",
        "peer_cert_subject",
        "peer_cert_issuer",
        "peer_cert_validity",
    ),
    "",
)


class Events:
    """`on`: events are published. `clock` gives seconds since the epoch."""

    def __init__(self, node: Node, *, on: bool, clock: Callable[[], float] = time.time) -> None:
        self._node = node
        self.on = on
        self._clock = clock

    def emit(self, name: str, headers: Mapping[str, FieldValue]) -> None:
        """Publish an event. Nothing happens while events are off; nobody has to ask first.

        A caller outside a batch (a timer's callback is inside one) calls `node.end_batch` afterwards.
        """
        if not self.on:
            return
        now = self._clock()
        vhost = self._node.vhosts.get("/")
        if vhost is None:
            return  # deleted, and the exchange with it
        vhost.announce(
            EVENT_EXCHANGE,
            name,
            Properties(
                headers={**headers, "timestamp_in_ms": int(now * 1000)},
                delivery_mode=PERSISTENT,
                timestamp=datetime.fromtimestamp(int(now), UTC),
            ),
        )

    # -- what the broker itself emits: built only when somebody may listen ----------------------------------------

    def connection_created(self, connection: Connection) -> None:
        if self.on:
            engine, user = connection.engine, connection.user
            self.emit(
                "connection.created",
                {
                    **_ends(connection),
                    **WITHOUT_TLS,
                    "type": "network",
                    "pid": connection.pid,
                    "auth_mechanism": connection.mechanism,
                    "user": user,
                    "vhost": connection.vhost.name,
                    "timeout": connection.heartbeat,
                    "frame_max": engine.frame_max,
                    "channel_max": engine.channel_max,
                    "client_properties": _terms(connection.client_properties),
                    "connected_at": connection.connected_at,
                    "node": self._node.name,
                    "user_who_performed_action": user,
                },
            )

    def connection_closed(self, connection: Connection) -> None:
        if self.on:
            self.emit(
                "connection.closed",
                {
                    "name": connection.name,
                    "pid": connection.pid,
                    "node": self._node.name,
                    "client_properties": _terms(connection.client_properties),
                },
            )

    def authenticated(self, connection: Connection, mechanism: str, user: str, error: str = "") -> None:
        """Somebody logged in as `user`, or was refused with `error`."""
        if self.on:
            headers: dict[str, FieldValue] = {
                **_ends(connection),
                "connection_name": connection.name,
                "connection_type": "network",
                "auth_mechanism": mechanism,
                "name": user,
            }
            del headers["port"]
            if error:
                headers["error"] = error
            self.emit(f"user.authentication.{'failure' if error else 'success'}", headers)

    def channel_created(self, channel: Channel) -> None:
        if self.on:
            connection = channel.connection
            self.emit(
                "channel.created",
                {
                    "pid": channel.pid,
                    "name": f"{connection.name} ({channel.number})",
                    "connection": connection.pid,
                    "number": channel.number,
                    "user": connection.user,
                    "vhost": channel.vhost.name,
                    "user_who_performed_action": connection.user,
                },
            )

    def channel_closed(self, channel: Channel) -> None:
        if self.on:
            self.emit("channel.closed", {"pid": channel.pid, "user_who_performed_action": channel.connection.user})

    def consumer_created(self, consumer: Consumer) -> None:
        if self.on:
            self.emit(
                "consumer.created",
                {
                    **_consumer(consumer),
                    "exclusive": consumer.exclusive,
                    "ack_required": not consumer.no_ack,
                    "prefetch_count": consumer.prefetch,
                    "arguments": _terms(consumer.arguments),
                },
            )

    def consumer_deleted(self, consumer: Consumer) -> None:
        if self.on:
            self.emit("consumer.deleted", _consumer(consumer))

    def queue_created(self, queue: Queue, user: str) -> None:
        if self.on:
            self.emit(
                "queue.created",
                {
                    "vhost": queue.vhost.name,
                    "name": queue.name,
                    "durable": queue.durable,
                    "auto_delete": queue.auto_delete,
                    "exclusive": queue.exclusive,
                    "arguments": _terms(queue.arguments),
                    "owner_pid": "" if queue.owner is None else queue.owner.pid,
                    "user_who_performed_action": user,
                },
            )

    def queue_deleted(self, queue: Queue, user: str) -> None:
        self.emit("queue.deleted", {"vhost": queue.vhost.name, "name": queue.name, "user_who_performed_action": user})

    def exchange_created(self, vhost: str, exchange: Exchange, user: str) -> None:
        if self.on:
            self.emit(
                "exchange.created",
                {
                    "vhost": vhost,
                    "name": exchange.name,
                    "type": exchange.type,
                    "durable": exchange.durable,
                    "auto_delete": exchange.auto_delete,
                    "internal": exchange.internal,
                    "arguments": _terms(exchange.arguments),
                    "policy": "",
                    "user_who_performed_action": user,
                },
            )

    def exchange_deleted(self, vhost: str, name: str, user: str) -> None:
        self.emit("exchange.deleted", {"vhost": vhost, "name": name, "user_who_performed_action": user})

    def binding(self, what: str, vhost: str, binding: Binding, user: str) -> None:
        """`what` happened to the binding: created or deleted."""
        if self.on:
            self.emit(
                f"binding.{what}",
                {
                    "source_name": binding.source,
                    "source_kind": "exchange",
                    "destination_name": binding.destination.name,
                    "destination_kind": binding.destination.kind,
                    "routing_key": binding.binding_key,
                    "arguments": _terms(binding.arguments),
                    "vhost": vhost,
                    "user_who_performed_action": user,
                },
            )

    def vhost_created(self, vhost: VirtualHost) -> None:
        """Before it the exchanges that every virtual host has, as RabbitMQ tells it."""
        if not self.on:
            return
        for exchange in vhost.router.exchanges:
            self.exchange_created(vhost.name, exchange, INTERNAL_USER)
        it = vhost.definition
        tags = it.tags or ()
        description = it.description or ""
        listed = f"[{','.join(tags)}]" if tags else "<<>>"
        metadata = f"#{{description => {erlang_term(description)},tags => {listed}"
        if it.default_queue_type is not None:
            metadata += f",default_queue_type => {erlang_term(it.default_queue_type)}"
        self.emit(
            "vhost.created",
            {
                "name": vhost.name,
                "description": description,
                "tags": list(tags) or "",
                "default_queue_type": it.default_queue_type or "undefined",
                "metadata": metadata + "}",
                "tracing": vhost.trace is not None,
                "cluster_state": {self._node.name: "running"},
                "user_who_performed_action": INTERNAL_USER,
            },
        )

    def vhost_deleted(self, name: str) -> None:
        self.emit("vhost.deleted", {"name": name, "user_who_performed_action": INTERNAL_USER})

    def user(self, what: str, name: str, **more: FieldValue) -> None:
        """`what` happened to the user: created, deleted, password.changed, tags.set."""
        self.emit(f"user.{what}", {"name": name, **more, "user_who_performed_action": INTERNAL_USER})

    def user_limits(self, name: str, limits: Mapping[str, object]) -> None:
        """Those that were set, or none when they were cleared."""
        told = cast("Table", {**limits, "name": "limits", "username": name})
        event = "user.limits.set" if limits else "user.limits.cleared"
        self.emit(event, {**told, "user_who_performed_action": INTERNAL_USER})

    def permission(self, what: str, vhost: str, user: str, **patterns: str) -> None:
        """`what` happened to the permission: permission.created, topic.permission.deleted, ..."""
        self.emit(what, {"vhost": vhost, "user": user, **patterns, "user_who_performed_action": INTERNAL_USER})

    def parameter(self, what: str, parameter: Parameter) -> None:
        """`what` happened to the parameter: set or cleared. Limits of virtual hosts are told twice."""
        if not self.on:
            return
        value = cast("Table", {"value": parameter.value} if what == "set" else {})
        about: dict[str, FieldValue] = {"name": parameter.name, "user_who_performed_action": INTERNAL_USER}
        self.emit(f"parameter.{what}", {**about, **value, "component": parameter.component, "vhost": parameter.vhost})
        if parameter.component == "vhost-limits":
            limits = cast("Table", parameter.value if what == "set" else {})
            self.emit(f"vhost.limits.{what}", {**limits, **about})

    def global_parameter(self, name: str, value: object) -> None:
        """It was set, or cleared when there is no value: RabbitMQ says "set" of that too."""
        told = cast("Table", {} if value is None else {"value": value})
        self.emit(
            "parameter.set", {"name": name, **told, "component": "global", "user_who_performed_action": INTERNAL_USER}
        )

    def alarm(self, what: str, resource: str) -> None:
        """`what` happened to the alarm: set or cleared."""
        self.emit(f"alarm.{what}", {"source": resource, "node": self._node.name})


def _consumer(consumer: Consumer) -> dict[str, FieldValue]:
    channel = consumer.channel
    return {
        "consumer_tag": consumer.tag,
        "channel": channel.pid,
        "vhost": channel.vhost.name,
        "queue": consumer.queue.name,
        "user_who_performed_action": channel.connection.user,
    }


def _ends(connection: Connection) -> dict[str, FieldValue]:
    """Both ends of a connection; a socket that is no TCP socket has neither addresses nor ports."""
    peer_host, peer_port = _split(connection.transport.peer)
    host, port = _split(connection.transport.local)
    return {
        "name": connection.name,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "host": host,
        "port": port,
        "protocol": "{0,9,1}",
        "ssl": False,
    }


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host)
        groups = list(ip.packed) if ip.version == 4 else [int(group, 16) for group in ip.exploded.split(":")]
        return f"{{{','.join(map(str, groups))}}}", int(port)
    except ValueError:
        return "unknown", 0


def _terms(table: Mapping[str, object]) -> list[FieldValue]:
    return [f"{{{erlang_term(name)},{type_name(value)},{erlang_term(value)}}}" for name, value in table.items()]
