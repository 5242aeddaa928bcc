"""The queues and bindings of many messages, for counting: the router's walk, with numbered bindings.

Rules:

- The queues are those that `Router.route_keys` gives, in its order; a test compares the two. A tracer also follows a
  message beyond the exchange that delays it, as the broker does after the delay: a queue that the message reaches both
  at once and later is in the trace twice, because it gets two copies.
- A binding counts when it matches, even if another one leads to the same destination. Of an exchange that picks by hash
  or at random, the bindings to the picked destination count. A message reaches an alternate exchange without a binding,
  and so it does the queues of the default exchange.

`explain` shows one message's route to people and tries each binding by itself; a tracer uses indexes like the router's,
once per key. Make a tracer for a router that does not change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from harebell.routing.exchanges.exchange import (
    Binding,
    DefaultExchange,
    Dependence,
    Destination,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from harebell.routing.exchanges.hashing import ModulusHashExchange
from harebell.routing.exchanges.headers_index import HeadersIndex
from harebell.routing.exchanges.own_exchange import OwnExchange
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, RecentHistoryExchange
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.routing.router import Router
from harebell.routing.table_values import Table

__all__ = ["Trace", "Tracer"]

_NOTHING: Table = {}
_Find = Callable[[Sequence[str], Table], Sequence[int]]


class Trace:
    """One message's route: the queues that get a copy, and the numbers of the bindings that match.

    `chance`: an exchange on the route picks at random, so an equal message may have another route.
    """

    __slots__ = ("bindings", "chance", "queues")

    def __init__(self, queues: tuple[str, ...], bindings: tuple[int, ...], chance: bool) -> None:
        self.queues = queues
        self.bindings = bindings
        self.chance = chance

    def __repr__(self) -> str:
        return f"Trace(queues={self.queues!r}, bindings={self.bindings!r}, chance={self.chance})"


class Tracer:
    """Follows messages through a router.

    bindings    the router's bindings; the number of a binding is its place here
    depends_on  what a route may depend on beside exchange and keys, for a caller that caches routes
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.bindings: tuple[Binding, ...] = tuple(router.bindings(implicit=False))
        numbers: dict[str, list[int]] = {}
        for number, binding in enumerate(self.bindings):
            numbers.setdefault(binding.source, []).append(number)
        self._finders = {
            exchange.name: self._finder(exchange, numbers.get(exchange.name, [])) for exchange in router.exchanges
        }
        self.depends_on = frozenset(chain.from_iterable(map(_depends_on, router.exchanges)))

    def trace(
        self, exchange: str, routing_keys: Sequence[str], headers: Table = _NOTHING, properties: Table = _NOTHING
    ) -> Trace:
        """The route of a message that a client publishes with these keys (the routing key first, then CC and BCC).

        `properties` has those of HASH_PROPERTIES. Raises NotFound when the exchange does not exist, and AccessRefused
        for an internal one.
        """
        self.router.check_publish(exchange)
        return self._trace(exchange, routing_keys, headers, properties, released=False)

    def _trace(self, exchange: str, keys: Sequence[str], headers: Table, properties: Table, *, released: bool) -> Trace:
        finders, bindings = self._finders, self.bindings
        hits: list[int] = []

        def find(at: Exchange, keys: Sequence[str], table: Table) -> Sequence[Destination]:
            finder = finders[at.name]
            if finder is None:  # the default exchange
                return at.match(keys, table)
            numbers = finder(keys, table)
            hits.extend(numbers)
            return [bindings[number].destination for number in numbers]

        way = self.router.follow(
            exchange,
            keys,
            find,
            lambda: headers,
            lambda: properties,
            lambda: {"headers": headers, "properties": properties, "body": b""},
            released=released,
        )
        copies, facts = tuple(way.queues), way.facts
        if facts is None:
            return Trace(copies, tuple(hits), chance=False)
        chance = facts.chance
        for name, delay in facts.delayed:
            later = self._trace(name, keys, {**headers, "x-delay": -delay}, properties, released=True)
            copies += later.queues
            hits += later.bindings
            chance = chance or later.chance
        return Trace(copies, tuple(hits), chance)

    def _finder(self, exchange: Exchange, numbers: list[int]) -> _Find | None:
        """A function that gives the numbers of the exchange's bindings that match; None for the default exchange."""
        inner = exchange.inner if isinstance(exchange, DelayedMessageExchange) else exchange
        made = [(number, self.bindings[number]) for number in numbers]
        match inner:
            case DefaultExchange():
                return None
            case TopicExchange():
                matcher = TopicMatcher((binding.binding_key, number) for number, binding in made)
                return _each_once(matcher.match)
            case DirectExchange():
                by_key: dict[str, tuple[int, ...]] = {}
                for number, binding in made:
                    by_key[binding.binding_key] = (*by_key.get(binding.binding_key, ()), number)
                return _each_once(lambda key: by_key.get(key, ()))
            case HeadersExchange():
                index: HeadersIndex[int] = HeadersIndex()
                for number, binding in made:
                    index.add(number, binding.arguments, number)
                return lambda keys, table: index.match(table)
            case FanoutExchange() if not isinstance(inner, ModulusHashExchange):
                everything = tuple(numbers)
                return lambda keys, table: everything
            case OwnExchange():
                by_identity = {binding.identity: number for number, binding in made}
                matched = inner.matched
                return lambda keys, table: [by_identity[binding.identity] for binding in matched(keys, table)]
        to: dict[Destination, list[int]] = {}
        for number, binding in made:
            to.setdefault(binding.destination, []).append(number)
        match = inner.match
        return lambda keys, table: [number for picked in match(keys, table) for number in to[picked]]


def _each_once(find: Callable[[str], Sequence[int]]) -> _Find:
    """A function that gives the bindings for any of several keys, each once."""

    def found(keys: Sequence[str], table: Table) -> Sequence[int]:
        if len(keys) == 1:
            return find(keys[0])
        return tuple(dict.fromkeys(chain.from_iterable(map(find, keys))))

    return found


def _depends_on(exchange: Exchange) -> set[Dependence]:
    if not exchange.is_bound:
        return set()  # every message goes to the alternate exchange, or nowhere
    depends_on = {exchange.depends_on}
    if isinstance(exchange, DelayedMessageExchange):
        depends_on |= {Dependence.HEADERS, exchange.inner.depends_on}
    elif isinstance(exchange, RecentHistoryExchange):
        return set()  # its use of headers is to remember messages, not to route them
    return depends_on - {Dependence.KEY}
