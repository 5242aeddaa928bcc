"""Forwarding inside a virtual host: the objects that take a message (`Sink`), and the routing to them (`Forwarding`).

A publisher, a dead letter, a delayed exchange and an announcement of the broker's own all route a message and publish
it to sinks. They use the virtual host by `Forwarding` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from harebell.broker.message import Message
from harebell.protocol.v091 import Properties, Table
from harebell.routing import Route, Router
from harebell.routing.exchanges.hashing import HASH_PROPERTIES

__all__ = [
    "ROUTABLE_PROPERTIES",
    "Forwarding",
    "Receiver",
    "Sink",
    "hashed_properties",
    "route_message",
    "whole_message",
]


ROUTABLE_PROPERTIES: Final = tuple(name for name in Properties.__slots__ if name not in ("headers", "reserved"))
"""The properties that an exchange of a program's own type may route by."""


class Sink(Protocol):
    """A target of a routed message: a queue, a channel's reply address, an exchange that holds messages, a service.

    `stored`: a publisher confirm has to wait for the disk.
    """

    stored: bool

    def publish(self, message: Message) -> bool:
        """Take the message, or refuse it (False)."""

    def can_deliver(self, message: Message) -> bool:
        """Whether the message, published now, would go to a consumer at once."""

    def enrich(self) -> None:
        """Prepare for a message with an expiration."""


class Receiver(Sink, Protocol):
    """The part of a queue that forwarding uses."""

    name: str

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all publications so far survive a crash, or the queue is deleted."""


class Forwarding(Protocol):
    """The part of a virtual host that forwarding uses."""

    @property
    def router(self) -> Router: ...
    @property
    def queues(self) -> Mapping[str, Receiver]: ...
    def receivers(self, names: Sequence[str]) -> tuple[Receiver, ...]:
        """The queues on a route, and the addresses for direct replies."""

    def exchange_sinks(self, route: Route, keys: tuple[str, ...]) -> tuple[Sink, ...]:
        """The exchanges on the route that hold the message: delayed ones and histories."""


def route_message(
    router: Router,
    exchange: str,
    keys: tuple[str, ...],
    properties: Properties,
    body: Callable[[], bytes],
    *,
    released: bool = False,
    lenient: bool = False,
) -> Route:
    """The route of a message by its keys, as `Router.route_keys`; an exchange reads no more of it than it routes by."""
    headers: Table = properties.headers or {}
    return router.route_keys(
        exchange,
        keys,
        lambda: headers,
        lambda: hashed_properties(properties),
        lambda: whole_message(properties, body()),
        released=released,
        lenient=lenient,
    )


def hashed_properties(properties: Properties) -> Mapping[str, object]:
    """The properties that an exchange may route by, in the form that routing takes."""
    return {name: getattr(properties, name) for name in HASH_PROPERTIES}


def whole_message(properties: Properties, body: bytes) -> Mapping[str, object]:
    """The message for exchanges of a program's own types, which may route by any part of it."""
    given = {name: value for name in ROUTABLE_PROPERTIES if (value := getattr(properties, name)) is not None}
    return {"headers": properties.headers or {}, "properties": given, "body": body}
