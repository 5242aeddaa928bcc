"""A vhost's routing table: its exchanges, the names of its queues, their bindings, and the routes of messages.

Rules (RabbitMQ's; the error texts and their order were probed):

- The default exchange "" reaches every queue by its name and can be neither declared, deleted nor bound. It reaches
  addresses for direct replies by their names too, whatever key of the message it is; these have no binding. Names that
  begin with "amq." are reserved: a client may declare an existing exchange again as it is, but neither create nor
  delete one.
- A second declaration must agree in type, durable, auto_delete, internal and the argument alternate-exchange.
- An auto_delete exchange is deleted with its last binding as a source. That may remove the last binding of another one.
- A message follows bindings from exchange to exchange, each visited once, so cycles end. An exchange without a binding
  that matches (by any of the message's keys) passes the message to its alternate exchange. An alternate exchange that
  does not exist takes nothing; nor does the default exchange as an alternate, because its bindings are implicit.
- A queue gets a message once, however many routes lead to it.
- A message that an exchange delays goes no further through that exchange now; the broker routes it again, from that
  exchange, when the delay is over (`released`).
- The system exchange is bound to nothing. Its type belongs to it alone.

Queues are only names here: their settings, permissions and content are the broker's. A router can be pickled, so that
the same table routes in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Final

from harebell.errors import AccessRefused, NotFound, PreconditionFailed
from harebell.routing.equivalence import check_arguments, check_property
from harebell.routing.exchanges.exchange import (
    Binding,
    BindingIdentity,
    DefaultExchange,
    Destination,
    Exchange,
    identity,
    to_exchange,
    to_queue,
)
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, PREDECLARED
from harebell.routing.exchanges.storing_exchanges import ExchangeFactory
from harebell.routing.exchanges.system_exchange import SystemExchange
from harebell.routing.naming import RESERVED_PREFIX, check_new_name
from harebell.routing.table_values import Table, type_name
from harebell.routing.walk import Find, Read, Walk, walk

__all__ = ["COMPARED_ARGUMENTS", "PREDECLARED", "RESERVED_PREFIX", "Removed", "Route", "Router"]

COMPARED_ARGUMENTS: Final = ("alternate-exchange",)
"""The only argument that a second declaration of an exchange must repeat."""


class Route:
    """The route of one message.

    queues      names, each once, in the order in which bindings lead to them, addresses for direct replies among them
    cacheable   a message with the same keys has the same route until the table changes; False when the route depends
                on headers, properties or a random choice
    by_headers  a message with the same keys and headers has the same route, and no exchange on it stores the message
    chance      an exchange on the route picks at random
    delayed     the exchanges that delay the message, each with its milliseconds; the route ends there for now
    remembered  the exchanges that remember the message for later bindings
    effort      0, or about the microseconds that it took to find a route for which much was looked at
    """

    __slots__ = ("by_headers", "cacheable", "chance", "delayed", "effort", "queues", "remembered")

    def __init__(
        self,
        queues: tuple[str, ...],
        cacheable: bool,
        delayed: tuple[tuple[str, int], ...] = (),
        remembered: tuple[str, ...] = (),
        *,
        by_headers: bool = False,
        chance: bool = False,
        effort: int = 0,
    ) -> None:
        self.queues = queues
        self.cacheable = cacheable
        self.by_headers = by_headers
        self.chance = chance
        self.delayed = delayed
        self.remembered = remembered
        self.effort = effort

    def __repr__(self) -> str:
        details = "".join(
            f", {name}={value!r}"
            for name, value in (("delayed", self.delayed), ("remembered", self.remembered))
            if value
        )
        return f"Route(queues={self.queues!r}, cacheable={self.cacheable}{details})"


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal: the removed bindings, and the names of the removed exchanges, in order."""

    bindings: tuple[Binding, ...] = ()
    exchanges: tuple[str, ...] = ()


class Router:
    """The routing table of one vhost. `version` grows with every change, after which earlier routes may be stale.

    `vhost` is its name, for error texts; `types` are the exchange types that can be declared
    (`harebell.routing.exchanges.exchange_types`).
    """

    __slots__ = ("_addresses", "_exchanges", "_gone", "_inbound", "_queues", "_types", "version", "vhost")

    def __init__(self, vhost: str = "/", *, types: Mapping[str, ExchangeFactory] = EXCHANGE_TYPES) -> None:
        self.vhost = vhost
        self._types = types
        self.version = 0
        self._queues: dict[str, None] = {}
        self._gone: set[str] = set()  # forgotten queues that bindings still lead to
        self._addresses: set[str] = set()
        self._exchanges: dict[str, Exchange] = {"": DefaultExchange(self._queues, self._addresses)}
        self._inbound: dict[Destination, dict[BindingIdentity, Binding]] = {}
        for name, kind, internal in PREDECLARED:
            self.predeclare(name, kind, internal=internal)

    # Reading

    @property
    def queues(self) -> KeysView[str]:
        """The names of the queues, oldest first; a live view."""
        return self._queues.keys()

    @property
    def exchanges(self) -> ValuesView[Exchange]:
        """The exchanges, the predeclared ones first; a live view."""
        return self._exchanges.values()

    @property
    def types(self) -> KeysView[str]:
        """The exchange types that can be declared."""
        return self._types.keys()

    def has_exchange(self, name: str) -> bool:
        """True when an exchange of that name exists; dead-lettering asks for it first."""
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

    def bindings(self, *, implicit: bool = True) -> Iterator[Binding]:
        """All bindings, exchange by exchange, the default exchange's `implicit` ones first."""
        for exchange in tuple(self._exchanges.values())[0 if implicit else 1 :]:
            for binding in exchange.bindings():
                if not self._gone or binding.destination.kind != "queue" or binding.destination.name not in self._gone:
                    yield binding

    def binding(
        self, source: str, destination: Destination, binding_key: str, arguments: Table | None = None
    ) -> Binding | None:
        """The binding, if there is one."""
        return self._inbound.get(destination, {}).get(identity(source, destination, binding_key, arguments))

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        """The bindings to the destination, oldest first, without the default exchange's."""
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
        """Declare the exchange; True when it is new. With `passive`, only check that the name exists.

        Raises PreconditionFailed (unknown type, one that differs, arguments that are wrong), AccessRefused (the default
        exchange, a reserved name, the type `system`), and NotFound (passive).
        """
        if passive:
            self._refuse_default(name)
            self.exchange(name)
            return False
        self.check_declaration(name, type)
        kind = self._types.get(type)
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
        check_new_name("exchange", name)
        if kind is None:
            raise AccessRefused(f"exchange type '{type}' is the server's own: {self._called('exchange', name)}")
        if "alternate-exchange" in table and not isinstance(table["alternate-exchange"], str):
            raise PreconditionFailed(
                f"invalid type '{type_name(table['alternate-exchange'])}' for arg 'alternate-exchange' "
                f"in {self._called('exchange', name)}"
            )
        self._exchanges[name] = kind(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=table)
        self.version += 1
        return True

    def check_declaration(self, name: str, type: str) -> None:
        """Raise what a declaration is refused for, whether the exchange exists or not.

        That is PreconditionFailed for an unknown type, and AccessRefused for the default exchange.
        """
        if type not in self._types and type != SystemExchange.TYPE:
            raise PreconditionFailed(f"unknown exchange type '{type}'")
        self._refuse_default(name)

    def predeclare(self, name: str, kind: ExchangeFactory, *, internal: bool) -> None:
        """Create a durable exchange whose name no client may declare; call it before the first message is routed."""
        self._exchanges[name] = kind(name, durable=True, internal=internal)

    def adopt(self, exchange: Exchange) -> None:
        """Have an exchange like this one of another router, but without its bindings."""
        self._exchanges[exchange.name] = self._types.get(exchange.type, type(exchange))(
            exchange.name,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=exchange.arguments,
        )

    def set_alternate(self, name: str, alternate: str | None) -> None:
        """Set the alternate that a policy names for the exchange, or None. One that the declaration names stays.

        Raises NotFound.
        """
        exchange = self.exchange(name)
        if "alternate-exchange" not in exchange.arguments and exchange.alternate != alternate:
            exchange.alternate = alternate
            self.version += 1

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Removed:
        """Delete the exchange and every binding from and to it: what was removed, nothing when it does not exist.

        Raises AccessRefused (the default exchange, a reserved name), and PreconditionFailed (`if_unused` while
        it is the source of a binding; being a destination does not count).
        """
        if if_unused:
            self.check_unused(name)
        self.check_deletion(name)
        return self._remove([], name) if name in self._exchanges else Removed()

    def check_unused(self, name: str) -> None:
        """Raise what a deletion `if_unused` is refused for."""
        self.check_deletion(name)
        exchange = self._exchanges.get(name)
        if exchange is not None and exchange.is_bound:
            raise PreconditionFailed(f"{self._called('exchange', name)} in use")

    def check_deletion(self, name: str) -> None:
        """Raise AccessRefused for the default exchange and for a reserved name, whether the exchange exists or not."""
        self._refuse_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system {self._called('exchange', name)} not allowed")

    def add_queue(self, name: str) -> bool:
        """Add a queue's name, by which the default exchange reaches the queue; False when it is there already."""
        if name in self._queues:
            return False
        self._queues[name] = None
        self.version += 1
        return True

    def remove_queue(self, name: str) -> Removed:
        """Remove the queue's name and the bindings to it: what was removed, nothing when the name is unknown."""
        return self._remove(self.forget_queue(name)) if name in self._queues else Removed()

    def forget_queue(self, name: str) -> tuple[Binding, ...]:
        """Remove the queue's name, so that no route leads to the queue any more.

        Returns the bindings to it, oldest first. The caller removes them by `unbind_some`, in parts if they are many,
        and all of them before the name is added again.
        """
        del self._queues[name]
        bindings = self.bindings_to(to_queue(name))
        if bindings:
            self._gone.add(name)
        self.version += 1
        return bindings

    def add_address(self, name: str) -> None:
        """Add an address for direct replies. The version stays: nobody has routed to a name that nobody knew."""
        self._addresses.add(name)

    def remove_address(self, name: str) -> None:
        """Remove an address for direct replies."""
        self._addresses.remove(name)
        self.version += 1

    def bind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table | None = None
    ) -> Binding | None:
        """Bind a queue or an exchange to the exchange `source`: the new binding, or None when it exists already.

        Raises AccessRefused (the default or the system exchange at either end), NotFound (of the source first), and
        PreconditionFailed (a bad x-match for a headers exchange, a bad weight for a consistent hash).
        """
        self.check_ends(source, destination)
        exchange = self.exchange(source)
        if destination.kind == "exchange":
            if isinstance(self.exchange(destination.name), SystemExchange):
                raise AccessRefused(f"operation not permitted on the system exchange '{destination.name}'")
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
        """Remove the binding: what was removed, nothing when the binding or either end does not exist.

        Raises AccessRefused for the default exchange at either end.
        """
        self.check_ends(source, destination)
        binding = self.binding(source, destination, binding_key, arguments)
        return self._remove([binding]) if binding is not None else Removed()

    def unbind_some(self, bindings: Iterable[Binding]) -> Removed:
        """Remove those of the bindings that are still there: what was removed."""
        inbound, none = self._inbound, dict[BindingIdentity, Binding]()
        return self._remove(
            [each for each in bindings if inbound.get(each.destination, none).get(each.identity) is each]
        )

    # Routing

    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Callable[[], Table] | None = None,
        properties: Callable[[], Table] | None = None,
    ) -> Route:
        """The route of a message published to `exchange` with `routing_key`.

        `headers` and `properties` (by name, those of HASH_PROPERTIES) are functions. The router calls each at most
        once, when an exchange on the route needs the result, so the caller decodes no earlier. None: the message has
        none. Raises NotFound when the exchange does not exist.
        """
        return self.route_keys(exchange, (routing_key,), headers, properties)

    def route_keys(
        self,
        exchange: str,
        routing_keys: Sequence[str],
        headers: Callable[[], Table] | None = None,
        properties: Callable[[], Table] | None = None,
        message: Callable[[], Table] | None = None,
        *,
        released: bool = False,
        lenient: bool = False,
    ) -> Route:
        """The route of a message with several keys: the routing key, then those of CC and BCC.

        `message` gives its headers, properties and body, for exchanges of a program's own types. `released` says that
        `exchange` has delayed the message already. An exchange whose plug-in fails raises PluginFailed; where the route
        is `lenient`, because no channel waits for it, that exchange matches nothing. The rest is as in `route`.
        """
        start = self.exchange(exchange)
        way = walk(
            self._exchanges, start, routing_keys, headers, properties, message,
            released=released, lenient=lenient, gone=self._gone,
        )  # fmt: skip
        facts, queues = way.facts, tuple(way.queues)
        if facts is None:
            return Route(queues, True, by_headers=True, effort=way.effort)
        delayed, remembered = tuple(facts.delayed), tuple(facts.remembered)
        by_headers = facts.only_headers and not delayed and not remembered
        return Route(queues, False, delayed, remembered, by_headers=by_headers, chance=facts.chance, effort=way.effort)

    def follow(
        self,
        exchange: str,
        routing_keys: Sequence[str],
        find: Find,
        headers: Read = None,
        properties: Read = None,
        message: Read = None,
        *,
        released: bool = False,
    ) -> Walk:
        """The walk of `route_keys` for a caller that records it: its `find` gives the destinations of each exchange."""
        start = self.exchange(exchange)
        return walk(
            self._exchanges, start, routing_keys, headers, properties, message,
            released=released, find=find, gone=self._gone,
        )  # fmt: skip

    # Internals

    def _remove(self, bindings: Iterable[Binding], exchange: str | None = None) -> Removed:
        """Remove bindings, an exchange, and every auto_delete exchange that this leaves unused."""
        gone: list[Binding] = []
        doomed = [] if exchange is None else [exchange]
        self._cut(bindings, gone, doomed)
        for name in doomed:  # `_cut` appends to it
            self._cut((*self._exchanges[name].bindings(), *self.bindings_to(to_exchange(name))), gone, doomed)
            del self._exchanges[name]
        self.version += 1
        return Removed(tuple(gone), tuple(doomed))

    def _cut(self, bindings: Iterable[Binding], gone: list[Binding], doomed: list[str]) -> None:
        for binding in bindings:
            source = self._exchanges[binding.source]
            if source.unbind(binding.destination, binding.binding_key, binding.arguments) is None:
                continue  # a binding of an exchange to itself comes twice
            inbound = self._inbound[binding.destination]
            del inbound[binding.identity]
            if not inbound:
                del self._inbound[binding.destination]
                if binding.destination.kind == "queue":
                    self._gone.discard(binding.destination.name)
            gone.append(binding)
            if source.auto_delete and not source.is_bound and source.name not in doomed:
                doomed.append(source.name)

    def _called(self, kind: str, name: str) -> str:
        return f"{kind} '{name}' in vhost '{self.vhost}'"

    def _refuse_default(self, name: str) -> None:
        if name == "":
            raise AccessRefused("operation not permitted on the default exchange")

    def check_ends(self, source: str, destination: Destination) -> None:
        """Raise AccessRefused when either end of a binding is the default exchange."""
        self._refuse_default(source)
        if destination.kind == "exchange":
            self._refuse_default(destination.name)
