"""A vhost's routing table: its exchanges, the names of its queues, the bindings between them, and where a message goes.

Rules (RabbitMQ's; the error texts and their order were probed):

- The default exchange "" reaches every queue by its name and can be neither declared, deleted nor bound. Names that
  begin with "amq." are reserved: what exists may be declared again as it is, nothing new, nothing deleted.
- A second declaration must agree in type, durable, auto_delete, internal and the argument alternate-exchange.
- An auto_delete exchange goes when its last binding as a source goes; that may take away the last binding of another.
- A message follows bindings from exchange to exchange, each visited once, so cycles end. An exchange none of whose
  bindings wants the message (with any of its keys) passes it to its alternate exchange. A missing alternate exchange
  takes nothing; nor does the default exchange as one, because its bindings are implicit.
- A queue gets a message once, however many ways lead to it.

Queues are names here: what a queue is, who may touch it, and what is stored, the broker knows. A router can be pickled,
so that the same table routes in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from typing import Final

from warren.errors import AccessRefused, NotFound, PreconditionFailed
from warren.routing.equivalence import check_arguments, check_property
from warren.routing.exchange import (
    EXCHANGE_TYPES,
    Binding,
    BindingIdentity,
    DefaultExchange,
    Destination,
    Exchange,
    identity,
    to_exchange,
    to_queue,
)
from warren.routing.values import Table, type_name

__all__ = ["COMPARED_ARGUMENTS", "PREDECLARED", "RESERVED_PREFIX", "Removed", "Route", "Router"]

RESERVED_PREFIX: Final = "amq."

PREDECLARED: Final[tuple[tuple[str, str, bool], ...]] = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)
"""Name, type and internal of the exchanges that every vhost has; all are durable."""

COMPARED_ARGUMENTS: Final = ("alternate-exchange",)
"""The only argument that a second declaration of an exchange must repeat."""

_NO_HEADERS: Final[Table] = {}


class Route:
    """Where a message goes.

    `queues`: names, each once, in the order in which bindings lead to them. `depends_on_headers`: the message's headers
    were consulted on the way, so that another message with the same key may go elsewhere.
    """

    __slots__ = ("depends_on_headers", "queues")

    def __init__(self, queues: tuple[str, ...], depends_on_headers: bool) -> None:
        self.queues = queues
        self.depends_on_headers = depends_on_headers

    def __repr__(self) -> str:
        return f"Route(queues={self.queues!r}, depends_on_headers={self.depends_on_headers})"


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal took away: the bindings, and the names of the exchanges, in the order in which they went."""

    bindings: tuple[Binding, ...] = ()
    exchanges: tuple[str, ...] = ()


class Router:
    """The routing table of one vhost. `version` grows with every change: what was routed before may be stale.

    `vhost` is its name, for error texts.
    """

    __slots__ = ("_exchanges", "_inbound", "_queues", "version", "vhost")

    def __init__(self, vhost: str = "/") -> None:
        self.vhost = vhost
        self.version = 0
        self._queues: dict[str, None] = {}
        self._exchanges: dict[str, Exchange] = {"": DefaultExchange(self._queues)}
        self._inbound: dict[Destination, dict[BindingIdentity, Binding]] = {}
        for name, kind, internal in PREDECLARED:
            self._exchanges[name] = EXCHANGE_TYPES[kind](name, durable=True, internal=internal)

    # What is there

    @property
    def queues(self) -> KeysView[str]:
        """The names of the queues, oldest first; a live view."""
        return self._queues.keys()

    @property
    def exchanges(self) -> ValuesView[Exchange]:
        """The exchanges, the predeclared ones first; a live view."""
        return self._exchanges.values()

    def has_exchange(self, name: str) -> bool:
        """True when there is an exchange of that name: what a dead-letter exchange is asked before it is used."""
        return name in self._exchanges

    def exchange(self, name: str) -> Exchange:
        """The exchange of that name. Raises NotFound."""
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self._called('exchange', name)}")
        return exchange

    def check_publish(self, name: str) -> Exchange:
        """The exchange, if clients may publish to it. Raises NotFound, or AccessRefused for an internal one.

        Dead-lettering, alternate exchanges and bindings may use an internal exchange and go past this check.
        """
        exchange = self.exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal {self._called('exchange', name)}")
        return exchange

    def bindings(self) -> Iterator[Binding]:
        """All bindings, exchange by exchange, the default exchange's implicit ones first."""
        for exchange in tuple(self._exchanges.values()):
            yield from exchange.bindings()

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        """The bindings that lead to the destination, oldest first, without the default exchange's."""
        return tuple(self._inbound.get(destination, {}).values())

    # Changes

    def declare_exchange(
        self,
        name: str,
        type: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> bool:
        """Make the exchange, or agree that it is there; True when it is new. Passive only looks for the name.

        Raises PreconditionFailed (unknown type, one that differs, a bad alternate-exchange), AccessRefused (the default
        exchange, a reserved name), and NotFound (passive).
        """
        if passive:
            self._refuse_default(name)
            self.exchange(name)
            return False
        kind = EXCHANGE_TYPES.get(type)
        if kind is None:
            raise PreconditionFailed(f"unknown exchange type '{type}'")
        self._refuse_default(name)
        table = arguments or {}
        current = self._exchanges.get(name)
        if current is not None:
            what = self._called("exchange", name)
            check_property(what, "type", type, current.type)
            check_property(what, "durable", durable, current.durable)
            check_property(what, "auto_delete", auto_delete, current.auto_delete)
            check_property(what, "internal", internal, current.internal)
            check_arguments(what, table, current.arguments, COMPARED_ARGUMENTS)
            return False
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        if "alternate-exchange" in table and not isinstance(table["alternate-exchange"], str):
            raise PreconditionFailed(
                f"invalid type '{type_name(table['alternate-exchange'])}' for arg 'alternate-exchange' "
                f"in {self._called('exchange', name)}"
            )
        self._exchanges[name] = kind(
            name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=table
        )
        self.version += 1
        return True

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Removed:
        """Delete the exchange and every binding from and to it; what that took away, nothing when it is not there.

        Raises AccessRefused (the default exchange, a reserved name), and PreconditionFailed (`if_unused` while
        it is the source of a binding; being a destination is no use).
        """
        self._refuse_default(name)
        what = self._called("exchange", name)
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system {what} not allowed")
        exchange = self._exchanges.get(name)
        if exchange is None:
            return Removed()
        if if_unused and exchange.is_bound:
            raise PreconditionFailed(f"{what} in use")
        return self._remove([], name)

    def add_queue(self, name: str) -> bool:
        """Let the default exchange reach a queue of that name; False when it was there."""
        if name in self._queues:
            return False
        self._queues[name] = None
        self.version += 1
        return True

    def remove_queue(self, name: str) -> Removed:
        """Forget the queue and the bindings to it; what else that took away. Nothing when there is none such."""
        if name not in self._queues:
            return Removed()
        del self._queues[name]
        return self._remove(self.bindings_to(to_queue(name)))

    def bind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table | None = None
    ) -> Binding | None:
        """Bind a queue or an exchange to the exchange `source`: the new binding, or None when it was there.

        Raises AccessRefused (the default exchange at either end), NotFound (the source is looked for first), and
        PreconditionFailed (a headers exchange and a bad x-match).
        """
        self._refuse_default_ends(source, destination)
        exchange = self.exchange(source)
        if destination.kind == "exchange":
            self.exchange(destination.name)
        elif destination.name not in self._queues:
            raise NotFound(f"no {self._called('queue', destination.name)}")
        binding = exchange.bind(destination, binding_key, arguments)
        if binding is not None:
            self._inbound.setdefault(destination, {})[binding.identity] = binding
            self.version += 1
        return binding

    def unbind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table | None = None
    ) -> Removed:
        """Remove the binding; what that took away, nothing when the binding or either end does not exist.

        Raises AccessRefused for the default exchange at either end.
        """
        self._refuse_default_ends(source, destination)
        key = identity(source, destination, binding_key, arguments)
        binding = self._inbound.get(destination, {}).get(key)
        return self._remove([binding]) if binding is not None else Removed()

    # Routing

    def route(self, exchange: str, routing_key: str, headers: Callable[[], Table] | None = None) -> Route:
        """The queues that a message published to `exchange` with `routing_key` goes to.

        `headers` is called at most once, and only when a headers exchange is on the way: the caller decodes the
        properties no earlier. None stands for no headers. Raises NotFound when there is no such exchange.
        """
        return self.route_keys(exchange, (routing_key,), headers)

    def route_keys(
        self, exchange: str, routing_keys: Sequence[str], headers: Callable[[], Table] | None = None
    ) -> Route:
        """As `route`, for a message with several keys: the routing key, then those of CC and BCC."""
        exchanges = self._exchanges
        todo = [self.exchange(exchange)]
        seen = {exchange, ""}
        queues: dict[str, None] = {}
        table: Table | None = None
        for at in todo:
            if at.reads_headers and table is None:
                table = headers() if headers is not None else _NO_HEADERS
            found = at.match(routing_keys, _NO_HEADERS if table is None else table)
            if not found and at.alternate is not None:
                found = (to_exchange(at.alternate),)
            for kind, name in found:
                if kind == "queue":
                    queues[name] = None
                elif name not in seen:
                    seen.add(name)
                    after = exchanges.get(name)
                    if after is not None:
                        todo.append(after)
        return Route(tuple(queues), table is not None)

    # Within

    def _remove(self, bindings: Iterable[Binding], exchange: str | None = None) -> Removed:
        """Take away bindings, an exchange, and the auto_delete exchanges that this leaves unused, until none is."""
        gone: list[Binding] = []
        doomed = [] if exchange is None else [exchange]
        self._cut(bindings, gone, doomed)
        for name in doomed:  # grows while it is walked
            self._cut((*self._exchanges[name].bindings(), *self.bindings_to(to_exchange(name))), gone, doomed)
            del self._exchanges[name]
        self.version += 1
        return Removed(tuple(gone), tuple(doomed))

    def _cut(self, bindings: Iterable[Binding], gone: list[Binding], doomed: list[str]) -> None:
        for binding in bindings:
            source = self._exchanges[binding.source]
            if source.unbind(binding.destination, binding.binding_key, binding.arguments) is None:
                continue  # an exchange bound to itself meets that binding at both its ends
            inbound = self._inbound[binding.destination]
            del inbound[binding.identity]
            if not inbound:
                del self._inbound[binding.destination]
            gone.append(binding)
            if source.auto_delete and not source.is_bound and source.name not in doomed:
                doomed.append(source.name)

    def _called(self, kind: str, name: str) -> str:
        return f"{kind} '{name}' in vhost '{self.vhost}'"

    def _refuse_default(self, name: str) -> None:
        if name == "":
            raise AccessRefused("operation not permitted on the default exchange")

    def _refuse_default_ends(self, source: str, destination: Destination) -> None:
        self._refuse_default(source)
        if destination.kind == "exchange":
            self._refuse_default(destination.name)
