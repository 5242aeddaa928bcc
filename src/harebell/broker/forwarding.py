"""Forwarding inside a virtual host: the objects that take a message (`Sink`), and the routing to them (`Forwarding`).

A publisher, a dead letter, a delayed exchange and an announcement of the broker's own all route a message and publish
it to sinks. They use the virtual host by `Forwarding` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from harebell.broker.message import Message
from harebell.protocol.v091 import Properties, Table
from harebell.protocol.v091.splice import header
from harebell.routing import Route, Router, cc_keys
from harebell.routing.exchanges.hashing import HASH_PROPERTIES

__all__ = [
    "ROUTABLE_PROPERTIES",
    "Forwarding",
    "Receiver",
    "Sink",
    "hashed_properties",
    "keys_of",
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
    properties: Callable[[], Properties],
    body: Callable[[], bytes],
    *,
    released: bool = False,
    lenient: bool = False,
) -> Route:
    """The route of a message by its keys, as `Router.route_keys`; an exchange reads no more of it than it routes by.

    properties  decodes them, when it is called for the first time
    """
    parts = _Parts(properties, body)
    return router.route_keys(
        exchange, keys, parts.headers, parts.hashed, parts.whole, released=released, lenient=lenient
    )


class _Parts:
    """The parts of a message that an exchange may route by."""

    __slots__ = ("_body", "_decode", "_properties")

    def __init__(self, decode: Callable[[], Properties], body: Callable[[], bytes]) -> None:
        self._decode, self._body = decode, body
        self._properties: Properties | None = None

    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = self._decode()
        return self._properties

    def headers(self) -> Table:
        return self.properties().headers or {}

    def hashed(self) -> Mapping[str, object]:
        return hashed_properties(self.properties())

    def whole(self) -> Mapping[str, object]:
        return whole_message(self.properties(), self._body())


def hashed_properties(properties: Properties) -> Mapping[str, object]:
    """The properties that an exchange may route by, in the form that routing takes."""
    return {name: getattr(properties, name) for name in HASH_PROPERTIES}


def whole_message(properties: Properties, body: bytes) -> Mapping[str, object]:
    """The message for exchanges of a program's own types, which may route by any part of it."""
    given = {name: value for name in ROUTABLE_PROPERTIES if (value := getattr(properties, name)) is not None}
    return {"headers": properties.headers or {}, "properties": given, "body": body}


def keys_of(message: Message) -> tuple[str, ...]:
    """The keys that a message was published with: its own and those of CC; the properties are not decoded."""
    return message.keys or (message.address.routing_key, *_copies(message.content.raw_properties))


def _copies(raw: bytes) -> tuple[str, ...]:
    """The keys in the header CC of these encoded properties; none where it is not an array."""
    found = header(raw, b"CC")
    return cc_keys({"CC": found}) if isinstance(found, list) else ()
