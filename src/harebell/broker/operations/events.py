"""The event exchange: changes on the node, as messages of the topic exchange `amq.rabbitmq.event` of vhost "/".

The routing key names the event ("queue.created"), the headers have the details; there is no body. Names, headers and
their forms are those of RabbitMQ's plugin rabbitmq_event_exchange, so arguments are Erlang terms in text. An event that
no queue is bound for is cheap, and without `Broker(events=True)` events are not built.

Each change calls a method of its `observers.Listener`; the message is delivered at the end of the batch. Watchers in
the same process (`watch`) get the same events as they happen, also while none are published. The audit log has the
changes of objects, also while events are off.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, cast

from harebell.broker.audit import NOBODY, NOTHING, AuditLog, Origin, as_details, requested
from harebell.broker.clients import Channel, Connection, Subscription
from harebell.broker.observers import INTERNAL_USER, VhostFacts, Watcher
from harebell.broker.queues.base import Queue
from harebell.protocol.v091 import FieldValue, Properties, Table
from harebell.routing import Binding, Exchange
from harebell.routing.definitions import Parameter
from harebell.routing.exchanges.exchange import TopicExchange
from harebell.routing.policies import Policy
from harebell.routing.table_values import erlang_term, type_name

__all__ = ["EVENT_EXCHANGE", "Events"]

log = logging.getLogger("harebell.broker.queue")

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
PERSISTENT: Final = 2
TLS_FACTS: Final = (
    "ssl_protocol",
    "ssl_key_exchange",
    "ssl_cipher",
    "ssl_hash",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_validity",
)
"""Of these only the protocol and the cipher, by OpenSSL's names, are given; the others are empty."""


class Announcing(Protocol):
    """The part of a virtual host that publishes the broker's own messages."""

    def announce(self, exchange: str, routing_key: str, properties: Properties, body: bytes = b"") -> None: ...


class Events:
    """The events of one node; `attach` is called before the first of them.

    `published`: they go to the exchange. `on`: that, or somebody watches. `clock` gives seconds since the epoch.
    `origin` is who asked for the current change, from where: None for the broker's own changes.
    """

    def __init__(self, *, on: bool, clock: Callable[[], float] = time.time) -> None:
        self.published = self.on = on
        self.origin: Origin | None = None
        self.audit = AuditLog()
        self._watchers: tuple[Watcher, ...] = ()
        self._clock = clock
        self._node_name = ""
        self._vhosts: Mapping[str, Announcing] = {}

    @property
    def acting(self) -> str:
        """The user in whose name the current change is made, where its caller names none."""
        return INTERNAL_USER if self.origin is None else self.origin.user

    def attach(self, node_name: str, vhosts: Mapping[str, Announcing]) -> None:
        self._node_name, self._vhosts = node_name, vhosts

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` at each event from now on."""
        self._watchers = (*self._watchers, watcher)
        self.on = True

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers = tuple(each for each in self._watchers if each is not watcher)
        self.on = self.published or bool(self._watchers)

    def act(
        self,
        vhost: str,
        kind: str,
        name: str,
        act: str,
        *,
        refused: str = "",
        told: Mapping[str, object] = NOTHING,
        origin: Origin | None = None,
    ) -> None:
        """Record an act that has no event, or one that was refused; `told`: what it set."""
        origin = origin or self.origin or NOBODY
        at, details = int(self._clock() * 1000), as_details(told)
        self.audit.add(at, origin, vhost, kind, name, act, refused=refused, details=details)

    def emit(
        self,
        name: str,
        headers: Mapping[str, FieldValue],
        *,
        recorded: bool = True,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Publish an event; do nothing while events are off, so that callers need no check.

        A caller outside a batch (a timer's callback is inside one) calls `Batch.end` afterwards. `recorded`: the audit
        log has it too, if it is an act; `arguments`: with these, of the object.
        """
        if recorded:
            self.audit.add_event(int(self._clock() * 1000), self.origin, name, headers, INTERNAL_USER, arguments)
        if not self.on:
            return
        for watcher in self._watchers:
            watcher(name, headers)
        vhost = self._vhosts.get("/") if self.published else None
        if vhost is None:
            return  # nobody consumes them, or the vhost was deleted, and the exchange with it
        now = self._clock()
        vhost.announce(
            EVENT_EXCHANGE,
            name,
            Properties(
                headers={**headers, "timestamp_in_ms": int(now * 1000)},
                delivery_mode=PERSISTENT,
                timestamp=datetime.fromtimestamp(int(now), UTC),
            ),
        )

    # -- what the broker itself emits: built only while events are on --------------------------------------------

    def connection_created(self, connection: Connection) -> None:
        if self.on:
            user = connection.user
            self.emit(
                "connection.created",
                {
                    **_ends(connection),
                    **_tls_facts(connection),
                    "type": "network",
                    "pid": connection.pid,
                    "auth_mechanism": connection.mechanism,
                    "user": user,
                    "vhost": connection.vhost.name,
                    "timeout": connection.heartbeat,
                    "frame_max": connection.frame_max,
                    "channel_max": connection.channel_max,
                    "client_properties": _terms(connection.client_properties),
                    "connected_at": connection.connected_at,
                    "node": self._node_name,
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
                    "node": self._node_name,
                    "client_properties": _terms(connection.client_properties),
                },
            )

    def authenticated(self, connection: Connection, mechanism: str, user: str, error: str = "") -> None:
        """Emit the login of `user`, or its refusal with `error`."""
        if error:
            origin = requested("", connection.peer, connection.protocol)
            self.audit.add(int(self._clock() * 1000), origin, "", "login", user, "login", refused=error)
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
                    "vhost": connection.vhost.name,
                    "user_who_performed_action": connection.user,
                },
            )

    def channel_closed(self, channel: Channel) -> None:
        if self.on:
            self.emit("channel.closed", {"pid": channel.pid, "user_who_performed_action": channel.connection.user})

    def consumer_created(self, consumer: Subscription) -> None:
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

    def consumer_deleted(self, consumer: Subscription) -> None:
        if self.on:
            self.emit("consumer.deleted", _consumer(consumer))

    def queue_created(self, vhost: str, queue: Queue, user: str) -> None:
        self.emit(
            "queue.created",
            {
                "vhost": vhost,
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "exclusive": queue.exclusive,
                "arguments": _terms(queue.arguments),
                "owner_pid": "" if queue.owner is None else queue.owner.pid,
                "user_who_performed_action": user,
            },
            arguments=queue.arguments,
        )

    def queue_deleted(self, vhost: str, queue: Queue, user: str) -> None:
        self.emit("queue.deleted", {"vhost": vhost, "name": queue.name, "user_who_performed_action": user})

    def queue_alert(
        self, what: Literal["set", "cleared"], queue: Queue, measure: str, value: int, limit: int, *, repeated: bool
    ) -> None:
        """Emit that a queue is too long, or no longer: `value` of the `measure` is at its limit. Log the first."""
        said = f"{value} {'messages' if measure == 'length' else 'bytes of messages'} ready"
        if what == "set":
            log.warning("%s has %s, its alert is at %d", queue, said, limit)
        else:
            log.info("%s has %s, its alert has ended", queue, said)
        self.emit(
            f"queue.alert.{what}",
            {
                "vhost": queue.vhost.name,
                "name": queue.name,
                "alert": measure,
                "limit": limit,
                "value": value,
                "repeated": repeated,
            },
        )

    def exchange_created(self, vhost: str, exchange: Exchange, user: str, *, recorded: bool = True) -> None:
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
            recorded=recorded,
            arguments=exchange.arguments,
        )

    def exchange_deleted(self, vhost: str, name: str, user: str) -> None:
        self.emit("exchange.deleted", {"vhost": vhost, "name": name, "user_who_performed_action": user})

    def binding(self, what: str, vhost: str, binding: Binding, user: str, *, implied: bool = False) -> None:
        """Emit that the binding was created or deleted (`what`).

        One that went with its queue or exchange is `implied`: the audit log has the deletion of that one alone, so that
        the end of a queue with 20,000 bindings is one record.
        """
        if implied and not self.on:
            return
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
            recorded=not implied,
            arguments=binding.arguments,
        )

    def prepare_vhost(self, vhost: VhostFacts) -> None:
        """Declare the event exchange, in vhost "/"."""
        if self.published and vhost.name == "/":
            vhost.router.predeclare(EVENT_EXCHANGE, TopicExchange, internal=True)

    def vhost_created(self, vhost: VhostFacts) -> None:
        """Emit the exchanges that every virtual host has, then the virtual host, in RabbitMQ's order."""
        if self.on:
            for exchange in vhost.router.exchanges:
                self.exchange_created(vhost.name, exchange, self.acting, recorded=False)
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
                "cluster_state": {self._node_name: "running"},
                "user_who_performed_action": self.acting,
            },
        )

    def vhost_deleted(self, name: str) -> None:
        self.emit("vhost.deleted", {"name": name, "user_who_performed_action": self.acting})

    def user(self, what: str, name: str, **more: FieldValue) -> None:
        """Emit the change (`what`) of the user: created, deleted, password.changed, tags.set."""
        self.emit(f"user.{what}", {"name": name, **more, "user_who_performed_action": self.acting})

    def user_limits(self, name: str, limits: Mapping[str, object]) -> None:
        """Emit the user limits that were set, or that they were cleared when there are none."""
        told = cast("Table", {**limits, "name": "limits", "username": name})
        event = "user.limits.set" if limits else "user.limits.cleared"
        self.emit(event, {**told, "user_who_performed_action": self.acting})

    def permission(self, what: str, vhost: str, user: str, **patterns: str) -> None:
        """Emit the change (`what`) of the permission: permission.created, topic.permission.deleted, ..."""
        self.emit(what, {"vhost": vhost, "user": user, **patterns, "user_who_performed_action": self.acting})

    def parameter(self, what: str, parameter: Parameter) -> None:
        """Emit that the parameter was set or cleared (`what`). Limits of virtual hosts are two events."""
        value = cast("Table", {"value": parameter.value} if what == "set" else {})
        about: dict[str, FieldValue] = {"name": parameter.name, "user_who_performed_action": self.acting}
        self.emit(f"parameter.{what}", {**about, **value, "component": parameter.component, "vhost": parameter.vhost})
        if parameter.component == "vhost-limits":
            limits = cast("Table", parameter.value if what == "set" else {})
            self.emit(f"vhost.limits.{what}", {**limits, **about}, recorded=False)

    def global_parameter(self, name: str, value: object) -> None:
        """Emit that the global parameter was set; a cleared one has no value, and RabbitMQ says "set" of that too."""
        cleared = value is None
        told = cast("Table", {} if cleared else {"value": value})
        headers: Table = {"name": name, **told, "component": "global", "user_who_performed_action": self.acting}
        self.emit("parameter.set", headers, recorded=not cleared)
        if cleared:
            self.act("", "parameter", name, "cleared", told={"component": "global"})

    def policy_set(self, policy: Policy, *, operator: bool) -> None:
        """Emit that a policy was set; an operator policy is a parameter too, as in RabbitMQ."""
        value: dict[str, FieldValue] = {
            "pattern": policy.pattern,
            "definition": cast("Table", policy.definition),
            "priority": int(policy.priority),
            "apply-to": policy.apply_to,
        }
        about = _policy(policy.vhost, policy.name, self.acting)
        if operator:
            self.emit("parameter.set", {**about, "component": "operator_policy", "value": value})
        self.emit("policy.set", {**about, **value}, recorded=not operator)

    def policy_cleared(self, vhost: str, name: str, *, operator: bool) -> None:
        about = _policy(vhost, name, self.acting)
        if operator:
            self.emit("parameter.cleared", {**about, "component": "operator_policy"})
        self.emit("operator.policy.cleared" if operator else "policy.cleared", about, recorded=not operator)

    def alarm(self, what: str, resource: str) -> None:
        """Emit that the alarm was set or cleared (`what`)."""
        self.emit(f"alarm.{what}", {"source": resource, "node": self._node_name})


def _policy(vhost: str, name: str, user: str) -> dict[str, FieldValue]:
    return {"name": name, "vhost": vhost, "user_who_performed_action": user}


def _consumer(consumer: Subscription) -> dict[str, FieldValue]:
    channel = consumer.channel
    return {
        "consumer_tag": consumer.tag,
        "channel": channel.pid,
        "vhost": channel.connection.vhost.name,
        "queue": consumer.queue.name,
        "user_who_performed_action": channel.connection.user,
    }


def _ends(connection: Connection) -> dict[str, FieldValue]:
    """The headers for both ends of a connection; a socket that is no TCP socket has neither addresses nor ports."""
    peer_host, peer_port = _split(connection.peer)
    host, port = _split(connection.local)
    return {
        "name": connection.name,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "host": host,
        "port": port,
        "protocol": connection.protocol,
        "ssl": connection.tls is not None,
    }


def _tls_facts(connection: Connection) -> dict[str, FieldValue]:
    protocol, cipher = connection.tls or ("", "")
    return {**dict.fromkeys(TLS_FACTS, ""), "ssl_protocol": protocol.lower(), "ssl_cipher": cipher}


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
        groups = list(ip.packed) if ip.version == 4 else [int(group, 16) for group in ip.exploded.split(":")]
        return f"{{{','.join(map(str, groups))}}}", int(port)
    except ValueError:
        return "unknown", 0


def _terms(table: Mapping[str, object]) -> list[FieldValue]:
    return [f"{{{erlang_term(name)},{type_name(value)},{erlang_term(value)}}}" for name, value in table.items()]
