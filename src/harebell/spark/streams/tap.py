"""A tap: a stream queue bound beside a work queue, so that a pipeline reads what its consumers get, and takes nothing.

Rules: the tap gets the bindings of the work queue, or those that are named. Harebell says them itself (amq.routes); a
RabbitMQ's management plugin does, and without it they have to be named. What reaches a queue without a binding (through
the default exchange) reaches no tap. An exchange that shares messages out among its queues (by hash, at random) would
give some of them to the tap in place of a consumer: that is refused wherever the type can be known, before anything is
declared. Tapping twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from harebell import errors
from harebell.client.servers import RABBITMQ

if TYPE_CHECKING:
    from harebell.protocol.v091 import Table
    from harebell.spark.connection import Link

__all__ = ["Tap", "TapBinding", "tap"]

COPYING: Final = frozenset(("direct", "topic", "fanout", "headers", "x-delayed-message", "x-recent-history"))
"""Exchange types that give every queue whose binding matches a copy of its own."""


@dataclass(frozen=True, slots=True)
class TapBinding:
    """One binding of a tap."""

    exchange: str
    routing_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tap:
    """A declared tap: its stream queue and its bindings."""

    stream: str
    bindings: tuple[TapBinding, ...]


def tap(
    url: str,
    queue: str | None = None,
    *,
    exchange: str | None = None,
    routing_keys: Sequence[str] = (),
    stream: str | None = None,
    max_age: str | None = "7D",
    max_bytes: int | None = None,
    management_url: str | None = None,
    timeout: float = 30.0,
) -> Tap:
    """Declares a stream queue and binds it where the work queue is bound; returns the tap.

    queue           the work queue, whose bindings are copied
    exchange        or: bind to this exchange, by `routing_keys` ("" where none is given; one is enough for a fanout)
    stream          the stream queue's name; QUEUE.tap or EXCHANGE.tap when left out
    max_age         how long it keeps messages: a number and Y, M, D, h, m or s; None: for ever
    max_bytes       how much it keeps; None: no limit
    management_url  of a RabbitMQ's management plugin, which knows the bindings of `queue`
    timeout         seconds for each answer

    Messages that come from now on are in the stream. Raises InvalidArgument for what cannot be tapped and says why,
    NotFound for a queue or exchange that is not there, AccessRefused, and PreconditionFailed when the stream queue is
    there with other arguments.
    """
    if (queue is None) == (exchange is None):
        raise errors.InvalidArgument("tap either a queue, whose bindings are copied, or an exchange")
    if queue is not None and routing_keys:
        raise errors.InvalidArgument(
            "routing keys are for tapping an exchange; a queue's bindings are copied as they are"
        )
    from harebell.spark.connection import (
        Link,  # here, for every Spark worker imports this module, and few need a client
    )

    with Link(url, timeout) as link:
        if exchange is not None:
            bindings = [TapBinding(exchange, key) for key in dict.fromkeys(routing_keys or [""])]
            types = _types(link, url, management_url, timeout, [exchange])
        else:
            assert queue is not None
            link.count(queue)  # NotFound says so
            bindings, types = _copied(link, url, queue, management_url, timeout)
        for source in dict.fromkeys(binding.exchange for binding in bindings):
            kind = types.get(source)
            if source == "":
                raise errors.InvalidArgument("the default exchange has no bindings: it gives each message to one queue")
            if kind is not None and kind not in COPYING:
                raise errors.InvalidArgument(
                    f"exchange '{source}' is of type {kind}: it may give a message to the tap in place of a consumer, "
                    "so it cannot be tapped; bind an exchange of a copying type in front of it and tap that"
                )
        name = stream or f"{queue or exchange}.tap"
        arguments: Table = {"x-queue-type": "stream"}
        if max_age is not None:
            arguments["x-max-age"] = max_age
        if max_bytes is not None:
            arguments["x-max-length-bytes"] = max_bytes
        link.channel.queue_declare(name, durable=True, arguments=arguments)
        for binding in bindings:
            link.channel.queue_bind(
                name, binding.exchange, binding.routing_key, arguments=dict(binding.arguments) or None
            )
    return Tap(name, tuple(bindings))


def _copied(
    link: Link, url: str, queue: str, management_url: str | None, timeout: float
) -> tuple[list[TapBinding], dict[str, str]]:
    """The bindings that lead to a queue, but for the one that every queue has, and the types of their exchanges."""
    from harebell.spark.connection import ask_service
    from harebell.spark.streams.discovery import management

    if management_url is not None:
        what = f"queues/{{vhost}}/{quote(queue, safe='')}/bindings"
        found = management(management_url, url, what, timeout=timeout)
        key = "routing_key"
    elif link.product == RABBITMQ:
        raise errors.InvalidArgument(
            f"which bindings lead to queue '{queue}' a RabbitMQ says by its management plugin alone: give its address "
            "(managementUrl, such as http://host:15672), or the exchange and its routing keys"
        )
    else:
        routes = ask_service(link, "amq.routes", b"", timeout)
        found = [
            binding
            for binding in routes["bindings"]
            if binding["destination_type"] == "queue" and binding["destination"] == queue
        ]
        key = "routing_key"
    bindings = [
        TapBinding(each["source"], each[key], each.get("arguments") or {}) for each in found if each["source"] != ""
    ]
    if not bindings:
        raise errors.InvalidArgument(
            f"queue '{queue}' has no binding: what is in it comes through the default exchange, which gives each "
            "message to one queue and cannot be tapped; publish through an exchange of your own, bound to it"
        )
    return bindings, _types(link, url, management_url, timeout, [binding.exchange for binding in bindings])


def _types(link: Link, url: str, management_url: str | None, timeout: float, names: Sequence[str]) -> dict[str, str]:
    """The types of these exchanges, as far as they can be known. NotFound for one that is not there."""
    from harebell.spark.connection import ask_service
    from harebell.spark.streams.discovery import management

    exchanges = [name for name in dict.fromkeys(names) if name]
    for name in exchanges:
        link.channel.exchange_declare(name, passive=True)
    if management_url is not None:
        return {each["name"]: each["type"] for each in management(management_url, url, "exchanges", timeout=timeout)}
    if link.product == RABBITMQ:
        return {name: kind for name in exchanges if (kind := _declared_type(url, timeout, name)) is not None}
    return dict(ask_service(link, "amq.routes", b"", timeout)["exchanges"])


def _declared_type(url: str, timeout: float, exchange: str) -> str | None:
    """The type of an exchange that is there, out of the refusal to declare it with another one; None: unknown."""
    from harebell.spark.connection import Link

    with Link(url, timeout) as link:  # a refusal closes the channel
        try:
            link.channel.exchange_declare(exchange, "fanout", durable=True)
        except errors.PreconditionFailed as error:
            found = re.search(r"arg 'type'.* current is '([^']+)'", error.detail)
            return found[1] if found else "fanout"  # the type is compared first: another argument differs
        except errors.AccessRefused:
            return None  # this user may not declare it
    return "fanout"
