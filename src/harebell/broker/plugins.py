"""What a program adds to a broker: exchange types and services of its own.

    Broker(plugins=[Plugin(exchange_types={"x-geo": Geo}, services={"geo.lookup": lookup})])

`Plugin` is what a program writes, `Plugins` what a node has: all of them together, checked. An exchange type is
described in `harebell.routing.exchanges.own_exchange`, a service here. The name of a type begins with "x-", that of a
service not with "amq.": these are AMQP's (sections 2.2.3.5 and 2.2.3.6 of the draft of AMQP 0-10).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Properties
from harebell.routing import EXCHANGE_TYPES, KEEPING_TYPES, Destination, SystemExchange
from harebell.routing.exchanges.exchange_types import ExchangeFactory, types_with
from harebell.routing.exchanges.own_exchange import MatcherFactory
from harebell.routing.exchanges.system_exchange import is_reserved_service
from harebell.routing.table_values import Table
from harebell.routing.wire_limits import check_name

__all__ = ["Answer", "Plugin", "Plugins", "ServiceFunction", "ServiceRequest"]

log = logging.getLogger("harebell.broker.plugins")

Answer: TypeAlias = "bytes | str | int | float | bool | Mapping[str, object] | Sequence[object] | None"
"""The answer of a service: bytes as they are, anything else as JSON."""


class ServiceRequest(Protocol):
    """A message to the exchange amq.system whose routing key names a service."""

    @property
    def service(self) -> str:
        """The name of the service: the routing key."""

    @property
    def user(self) -> str:
        """The user that asks."""

    @property
    def vhost(self) -> str:
        """The name of the virtual host."""

    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> Properties: ...
    @property
    def headers(self) -> Table:
        """The headers; empty where the message has none."""

    def check(self, act: str, *, routing_key: str | None = None, **resources: str | Destination) -> None:
        """Raise AccessRefused unless the user may do this: one of the acts of `harebell.broker.auth.acts.ACTS`.

        `resources` are those that the act needs, by the part that they play: check("get", queue="orders"),
        check("publish", exchange="orders", routing_key="new"). A name is that of an exchange, but `queue` is a queue's;
        what a binding leads to is given by `to_queue` or `to_exchange`. `publish`, `bind` and `unbind` need a routing
        key, other acts take none. Raises InvalidArgument for an unknown act, and for what it is not about.
        """


ServiceFunction: TypeAlias = "Callable[[ServiceRequest], Answer]"
"""A service: it is called for each request, in the broker's thread, so it must not block.

It raises a ChannelError (PreconditionFailed, NotFound, ...) to refuse. Any other exception is logged, and the request
is refused with 541.
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Exchange types and services that a program adds to a broker.

    exchange_types  by name, which begins with "x-": a class or function that is called with the arguments of each
                    exchange of the type, and returns its `Matcher`
    services        by name, which does not begin with "amq.": a function that is called with each `ServiceRequest`, and
                    returns the answer
    """

    exchange_types: Mapping[str, MatcherFactory] = field(default_factory=dict)
    services: Mapping[str, ServiceFunction] = field(default_factory=dict)


class Plugins:
    """All that plug-ins add to one broker.

    InvalidArgument for a name that is taken twice, or that a plug-in may not have, and for what cannot be called.
    """

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        own: dict[str, MatcherFactory] = {}
        self.services: dict[str, ServiceFunction] = {}
        for plugin in plugins:
            if not isinstance(plugin, Plugin):
                raise InvalidArgument(f"plugins are harebell.broker.Plugin objects, and {plugin!r} is none")
            for name, make in plugin.exchange_types.items():
                _check_name("exchange type", name, own)
                if not name.startswith("x-") or name in EXCHANGE_TYPES or name in KEEPING_TYPES:
                    why = "is built in" if name.startswith("x-") else "must begin with 'x-'"
                    raise InvalidArgument(f"exchange type '{name}' {why}: give it another name")
                _check_callable("exchange type", name, make)
                own[name] = make
            for name, function in plugin.services.items():
                _check_name("service", name, self.services)
                if is_reserved_service(name):
                    raise InvalidArgument(f"service '{name}': names that begin with 'amq.' are AMQP's; take another")
                _check_callable("service", name, function)
                self.services[name] = function
        self.exchange_types: dict[str, ExchangeFactory] = types_with(own, _report)

    def missing_type(self, name: str) -> str | None:
        """Why an exchange of this type cannot be made, and what to do; None: it can."""
        if name in self.exchange_types or name == SystemExchange.TYPE:
            return None
        return (
            f"no plug-in has its type '{name}': start the broker with the plug-in that does (harebell serve --plugins "
            "MODULE:NAME, or Broker(plugins=[...]))"
        )


def _check_name(what: str, name: object, there: Mapping[str, object]) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of the {what} {name!r} must be a text")
    check_name(name, f"the name of the {what}")
    if name in there:
        raise InvalidArgument(f"{what} '{name}': two plug-ins have it, and one name is for one of them")


def _check_callable(what: str, name: str, given: object) -> None:
    if not callable(given):
        raise InvalidArgument(f"{what} '{name}' must be a function or a class; it is {given!r}")
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        raise InvalidArgument(
            f"{what} '{name}' is a coroutine function, and the broker waits for none: for work that takes time, let a "
            "client consume from a queue"
        )


def _report(what: str, error: Exception) -> None:
    log.error("%s: a plug-in failed", what, exc_info=error)
