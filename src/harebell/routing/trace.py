"""Where messages go and by which bindings, for counting many of them: the router's walk, with its bindings numbered.

Rules:

- The queues are those that `Router.route_keys` gives, in its order; a test holds the two together. A message that a
  delayed exchange holds back is followed further, as the broker does when its time has come: a queue that it reaches
  both at once and later is there twice, for it gets two copies.
- A binding counts when it matches, whether or not another one had led to the same place. Of an exchange that picks by
  hash or by chance, the bindings to what it picked count. An alternate exchange is reached without a binding, and so
  are queues from the default exchange.

`explain` tells one message's way to people and tries each binding by itself; this asks the same indexes as the router
does, once a key, and a tracer is made for a router that does not change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from harebell.routing.exchange import (
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
from harebell.routing.hashing import ModulusHashExchange
from harebell.routing.headers import HeadersIndex
from harebell.routing.keeping import DelayedMessageExchange, RecentHistoryExchange
from harebell.routing.router import Router
from harebell.routing.topic import TopicMatcher
from harebell.routing.values import Table

__all__ = ["Trace", "Tracer"]

_NOTHING: Table = {}
_Find = Callable[[Sequence[str], Table], Sequence[int]]


class Trace:
    """One message's way: the queues that get a copy, and the numbers of the bindings that matched.

    `chance`: an exchange on the way picks at random, so the next message with the same facts may go elsewhere.
    """

    __slots__ = ("bindings", "chance", "queues")

    def __init__(self, queues: tuple[str, ...], bindings: tuple[int, ...], chance: bool) -> None:
        self.queues = queues
        self.bindings = bindings
        self.chance = chance

    def __repr__(self) -> str:
        return f"Trace(queues={self.queues!r}, bindings={self.bindings!r}, chance={self.chance})"


class Tracer:
    """Follows messages through a router. `bindings` are numbered by their place; `depends_on` is what ways may hang
    on beside exchange and keys, for those who want to remember them."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.bindings: tuple[Binding, ...] = tuple(binding for binding in router.bindings() if binding.source)
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
        """The way of a message that a client publishes with these keys (the routing key first, then CC and BCC).

        `properties` has those of HASH_PROPERTIES. Raises NotFound when there is no such exchange, and AccessRefused
        for an internal one.
        """
        self.router.check_publish(exchange)
        return self._walk(exchange, routing_keys, headers, properties, None)

    def _walk(
        self, exchange: str, keys: Sequence[str], headers: Table, properties: Table, released: str | None
    ) -> Trace:
        router, finders, bindings = self.router, self._finders, self.bindings
        todo = [exchange]
        seen = {exchange, ""}
        queues: dict[str, None] = {}
        hits: list[int] = []
        delayed: list[tuple[str, int]] = []
        chance = False
        for name in todo:  # grows while it is walked
            at = router.exchange(name)
            if isinstance(at, DelayedMessageExchange) and name != released:
                delay = at.delay(headers)
                if delay:
                    delayed.append((name, delay))
                    continue
            depends_on = at.depends_on
            table = headers if depends_on is Dependence.HEADERS else properties
            chance = chance or depends_on is Dependence.CHANCE
            find = finders[name]
            found: Sequence[Destination]
            if find is None:  # the default exchange
                found = at.match(keys, table)
            else:
                numbers = find(keys, table)
                hits += numbers
                found = [bindings[number].destination for number in numbers]
            if not found and at.alternate is not None:
                found = (Destination("exchange", at.alternate),)
            for kind, reached in found:
                if kind == "queue":
                    queues[reached] = None
                elif reached not in seen:
                    seen.add(reached)
                    if router.has_exchange(reached):
                        todo.append(reached)
        copies = tuple(queues)
        for name, delay in delayed:
            later = self._walk(name, keys, {**headers, "x-delay": -delay}, properties, name)
            copies += later.queues
            hits += later.bindings
            chance = chance or later.chance
        return Trace(copies, tuple(hits), chance)

    def _finder(self, exchange: Exchange, numbers: list[int]) -> _Find | None:
        """What finds the numbers of the bindings of one exchange that take a message on; None: it has none to find."""
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
        to: dict[Destination, list[int]] = {}
        for number, binding in made:
            to.setdefault(binding.destination, []).append(number)
        match = inner.match
        return lambda keys, table: [number for picked in match(keys, table) for number in to[picked]]


def _each_once(find: Callable[[str], Sequence[int]]) -> _Find:
    """The bindings for several keys, each once."""

    def found(keys: Sequence[str], table: Table) -> Sequence[int]:
        if len(keys) == 1:
            return find(keys[0])
        return tuple(dict.fromkeys(chain.from_iterable(map(find, keys))))

    return found


def _depends_on(exchange: Exchange) -> set[Dependence]:
    if not exchange.is_bound:
        return set()  # it leads nowhere, or to its alternate, whatever the message
    depends_on = {exchange.depends_on}
    if isinstance(exchange, DelayedMessageExchange):
        depends_on |= {Dependence.HEADERS, exchange.inner.depends_on}
    elif isinstance(exchange, RecentHistoryExchange):
        return set()  # it looks at headers for what it remembers, not for where a message goes
    return depends_on - {Dependence.KEY}
