"""Observers of a node: a `Listener` is notified of changes (events), a `Tracer` of every message (the firehose).

The modules that make changes get a listener and know it by this protocol; `operations.events` and `operations.firehose`
implement them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from harebell.broker.audit import AuditLog, Source
from harebell.broker.clients import Channel, Connection, Subscription
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.protocol.v091 import FieldValue, Properties
from harebell.routing import Binding, Exchange, Router
from harebell.routing.definitions import Parameter, VirtualHost
from harebell.routing.policies import Policy

__all__ = ["INTERNAL_USER", "Listener", "Tracer", "VhostFacts", "Watcher"]

INTERNAL_USER: Final = "rmq-internal"  # the user of the broker's own changes; RabbitMQ's name


class VhostFacts(Protocol):
    """The part of a new virtual host that listeners use."""

    name: str
    definition: VirtualHost

    @property
    def router(self) -> Router: ...
    @property
    def trace(self) -> object | None: ...


class Watcher(Protocol):
    """Called with the name of an event and its headers, once it has happened."""

    def __call__(self, name: str, headers: Mapping[str, FieldValue], /) -> None: ...


class Listener(Source, Protocol):
    """A listener, notified of changes once they are made, inside the batch that makes them.

    `origin` is who asked for the current change, from where: None for the broker's own changes. It is named in events
    where the method is not told a user.
    """

    audit: AuditLog

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` at each event from now on."""

    def unwatch(self, watcher: Watcher) -> None: ...
    def prepare_vhost(self, vhost: VhostFacts) -> None:
        """Make what the listener needs in a virtual host, before it is used."""

    def vhost_created(self, vhost: VhostFacts) -> None: ...
    def vhost_deleted(self, name: str) -> None: ...

    def connection_created(self, connection: Connection) -> None: ...
    def connection_closed(self, connection: Connection) -> None: ...
    def authenticated(self, connection: Connection, mechanism: str, user: str, error: str = "") -> None:
        """A client logged in as `user`, or was refused with `error`."""

    def channel_created(self, channel: Channel) -> None: ...
    def channel_closed(self, channel: Channel) -> None: ...
    def consumer_created(self, consumer: Subscription) -> None: ...
    def consumer_deleted(self, consumer: Subscription) -> None: ...

    def queue_created(self, vhost: str, queue: Queue, user: str) -> None: ...
    def queue_deleted(self, vhost: str, queue: Queue, user: str) -> None: ...
    def queue_alert(
        self, what: Literal["set", "cleared"], queue: Queue, measure: str, value: int, limit: int, *, repeated: bool
    ) -> None:
        """The queue has `value` messages or bytes: its alert was set, or cleared."""

    def exchange_created(self, vhost: str, exchange: Exchange, user: str) -> None: ...
    def exchange_deleted(self, vhost: str, name: str, user: str) -> None: ...
    def binding(self, what: str, vhost: str, binding: Binding, user: str, *, implied: bool = False) -> None:
        """The binding was created or deleted (`what`); `implied`: it went with its queue or exchange."""

    def user(self, what: str, name: str, **more: FieldValue) -> None:
        """The user changed (`what`): created, deleted, password.changed, tags.set."""

    def user_limits(self, name: str, limits: Mapping[str, object]) -> None:
        """The user's limits were set, or cleared when there are none."""

    def permission(self, what: str, vhost: str, user: str, **patterns: str) -> None:
        """The permission changed (`what`): permission.created, topic.permission.deleted, ..."""

    def parameter(self, what: str, parameter: Parameter) -> None:
        """The parameter was set or cleared (`what`)."""

    def global_parameter(self, name: str, value: object) -> None:
        """The global parameter was set, or cleared when it has no value."""

    def policy_set(self, policy: Policy, *, operator: bool) -> None: ...
    def policy_cleared(self, vhost: str, name: str, *, operator: bool) -> None: ...

    def alarm(self, what: str, resource: str) -> None:
        """The alarm was set or cleared (`what`)."""


class Tracer(Protocol):
    """A tracer, notified of every message that is published or delivered in a virtual host."""

    def published(
        self, channel: Channel, message: Message, keys: tuple[str, ...], properties: Properties, queues: tuple[str, ...]
    ) -> None:
        """A client published a message with these keys, and it was routed to these queues."""

    def delivered(self, channel: Channel, queue: Queue, message: Message, redelivered: bool) -> None:
        """A message of the queue goes to a consumer or to basic.get on this channel."""
