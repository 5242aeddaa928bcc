"""Exchanges, which hold bindings and give the destinations of those that match a message's keys and headers.

Rules:

- A binding is identified by (source, destination, binding_key, arguments); making it again changes nothing.
- An exchange knows its own bindings only. Following an exchange that is a destination, the alternate exchange, and the
  rules of declaration belong to `harebell.routing.router`.
- A direct exchange looks the key up, a fanout takes all bindings, a topic exchange runs its automaton, a headers
  exchange compares arguments, and the default exchange finds the queue of the key's name. More types are in `hashing`,
  `storing_exchanges` and `system_exchange`; `exchange_types` lists them all.
- Destinations come in the order of their bindings, each once.
- `effort` grows by what a match costs that looks at more than CHEAP bindings: about a microsecond each. Whoever routes
  counts it, and sets it to 0.
- `depends_on` says what the destinations depend on beside the keys. A result that depends on the keys alone may be
  cached by key.

An exchange does not check that a destination exists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import ClassVar, Final, Literal, NamedTuple

from harebell.routing.exchanges.headers_index import HeadersIndex
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.routing.table_values import Table, canonical

__all__ = [
    "Binding",
    "CHEAP",
    "DefaultExchange",
    "Dependence",
    "Destination",
    "DirectExchange",
    "Exchange",
    "FanoutExchange",
    "HeadersExchange",
    "NO_MESSAGE",
    "TopicExchange",
    "to_exchange",
    "to_queue",
]


CHEAP: Final = 16  # bindings that a match may look at without any count

NO_MESSAGE: Final[Table] = {}
"""In place of a part of a message, while the router asks for the route of a key and there is no message yet."""


class Destination(NamedTuple):
    """The far end of a binding. Exchanges and queues have separate names, so the kind belongs to it."""

    kind: Literal["queue", "exchange"]
    name: str


def to_queue(name: str) -> Destination:
    """The queue of that name as a destination."""
    return Destination("queue", name)


def to_exchange(name: str) -> Destination:
    """The exchange of that name as a destination."""
    return Destination("exchange", name)


BindingIdentity = Hashable


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One binding, as it was made. Compare bindings by `identity`: 1 and True are different arguments."""

    source: str
    destination: Destination
    binding_key: str
    arguments: Table

    @property
    def identity(self) -> BindingIdentity:
        return identity(self.source, self.destination, self.binding_key, self.arguments)


def identity(source: str, destination: Destination, binding_key: str, arguments: Table | None) -> BindingIdentity:
    """A hashable key that is equal for equal bindings."""
    return (source, destination, binding_key, canonical(arguments) if arguments else ())


class Dependence(Enum):
    """What the destinations of a message depend on beside the bindings and the message's keys."""

    KEY = "key"
    HEADERS = "headers"
    PROPERTIES = "properties"
    MESSAGE = "message"
    CHANCE = "chance"


class Exchange(ABC):
    """The base of all exchange types: the attributes of the declaration, and the table of bindings.

    `alternate` is the exchange that gets the messages without a match here, or None. The constructor raises
    PreconditionFailed for arguments that the type does not allow.
    """

    TYPE: ClassVar[str] = ""

    __slots__ = (
        "_bindings", "alternate", "arguments", "auto_delete", "depends_on", "durable", "effort", "internal", "name",
        "type",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        type: str | None = None,
    ) -> None:
        self.name = name
        self.type: str = type or self.TYPE
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: Table = dict(arguments or {})
        alternate = self.arguments.get("alternate-exchange")
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.depends_on = Dependence.KEY
        self.effort = 0
        self._bindings: dict[BindingIdentity, Binding] = {}
        self._begin()

    def bind(self, destination: Destination, binding_key: str, arguments: Table | None = None) -> Binding | None:
        """Add a binding: the new one, or None when it exists already. Raises PreconditionFailed for bad arguments."""
        table = dict(arguments or {})
        key = identity(self.name, destination, binding_key, table)
        if key in self._bindings:
            return None
        binding = Binding(self.name, destination, binding_key, table)
        self._attach(key, binding)
        self._bindings[key] = binding
        return binding

    def unbind(self, destination: Destination, binding_key: str, arguments: Table | None = None) -> Binding | None:
        """Remove a binding: the removed one, or None when it does not exist."""
        key = identity(self.name, destination, binding_key, arguments)
        binding = self._bindings.pop(key, None)
        if binding is not None:
            self._detach(key, binding)
        return binding

    def bindings(self) -> Iterator[Binding]:
        """The bindings of which this exchange is the source, oldest first."""
        return iter(tuple(self._bindings.values()))

    @property
    def is_bound(self) -> bool:
        """True while this exchange is the source of a binding; if_unused and auto_delete depend on it."""
        return bool(self._bindings)

    @abstractmethod
    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        """The destinations of a message with these keys (at least one), each once.

        `table` is what `depends_on` names: the message's headers, its properties by name (message_id, correlation_id,
        timestamp), or the whole message (headers, properties, body). It may be empty for an exchange that depends on
        none of them. Raises PluginFailed where the type is not a built-in one.
        """

    @abstractmethod
    def _begin(self) -> None:
        """Make the empty index of the bindings that `match` uses."""

    @abstractmethod
    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        """Add a new binding to the index, or raise PreconditionFailed and change nothing."""

    @abstractmethod
    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        """Remove the binding from the index."""


class _Counted(dict[Destination, int]):
    """Destinations in the order of their first binding, with the number of bindings that lead to each."""

    __slots__ = ()

    def include(self, destination: Destination) -> None:
        self[destination] = self.get(destination, 0) + 1

    def exclude(self, destination: Destination) -> None:
        count = self[destination] - 1
        if count:
            self[destination] = count
        else:
            del self[destination]


def _once(found: Iterable[Iterable[Destination]]) -> tuple[Destination, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(found)))


class DirectExchange(Exchange):
    """An exchange that matches the bindings whose key equals the routing key."""

    TYPE = "direct"

    __slots__ = ("_by_key",)

    def _begin(self) -> None:
        self._by_key: dict[str, _Counted] = {}

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        if len(routing_keys) == 1:
            return tuple(self._by_key.get(routing_keys[0], ()))
        return _once(self._by_key.get(routing_key, ()) for routing_key in routing_keys)

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self._by_key.setdefault(binding.binding_key, _Counted()).include(binding.destination)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        counted = self._by_key[binding.binding_key]
        counted.exclude(binding.destination)
        if not counted:
            del self._by_key[binding.binding_key]


class FanoutExchange(Exchange):
    """An exchange that matches all bindings, whatever the key."""

    TYPE = "fanout"

    __slots__ = ("destinations",)

    def _begin(self) -> None:
        self.destinations = _Counted()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        return tuple(self.destinations)

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self.destinations.include(binding.destination)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self.destinations.exclude(binding.destination)


class TopicExchange(Exchange):
    """An exchange that matches the bindings whose pattern matches the routing key."""

    TYPE = "topic"

    __slots__ = ("_matcher",)

    def _begin(self) -> None:
        self._matcher: TopicMatcher[Destination] = TopicMatcher()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        matcher = self._matcher
        if len(routing_keys) == 1:
            found: Sequence[Destination] = matcher.match(routing_keys[0])
        else:
            found = _once(matcher.match(routing_key) for routing_key in routing_keys)
        if matcher.effort:
            self.effort += matcher.effort
            matcher.effort = 0
        return found

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self._matcher.add(binding.binding_key, binding.destination)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self._matcher.remove(binding.binding_key, binding.destination)


class HeadersExchange(Exchange):
    """An exchange that matches the bindings whose arguments the message's headers satisfy, whatever the key."""

    TYPE = "headers"

    __slots__ = ("_index",)

    def _begin(self) -> None:
        self.depends_on = Dependence.HEADERS
        self._index: HeadersIndex[Destination] = HeadersIndex()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        found = tuple(dict.fromkeys(self._index.match(table)))
        if self._index.tried > CHEAP:
            self.effort += self._index.tried
        return found

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self._index.add(key, binding.arguments, binding.destination)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self._index.remove(key)


class DefaultExchange(Exchange):
    """The nameless exchange, to which every queue is bound by its own name; no other binding is possible.

    It reaches addresses for direct replies too, without a binding. `queues` has the vhost's queue names as its keys,
    `addresses` has the addresses. They are the router's own, so that new names are in them at once.
    """

    TYPE = "direct"

    __slots__ = ("_addresses", "_queues")

    def __init__(self, queues: Mapping[str, None], addresses: Set[str]) -> None:
        self._queues, self._addresses = queues, addresses
        super().__init__("", durable=True)

    def bindings(self) -> Iterator[Binding]:
        """The implicit bindings, as RabbitMQ lists them: source "", the queue's name as binding key."""
        return (Binding("", to_queue(name), name, {}) for name in tuple(self._queues))

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        queues, addresses = self._queues, self._addresses
        return tuple(dict.fromkeys(to_queue(key) for key in routing_keys if key in queues or key in addresses))

    def _begin(self) -> None:
        """Nothing: the queue names are the index."""

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        raise TypeError("the default exchange has implicit bindings only")

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self._attach(key, binding)
