"""Finds the queues that many routing keys reach, all at once: the walk of `harebell.routing.trace`, by arrays of keys.

Rules:

- It handles the exchanges that route by key alone: direct, fanout, topic, and the default exchange. `takes` says
  whether a message published to an exchange can reach only such exchanges; other messages are traced one by one.
- Queues and bindings are those that `Tracer.trace` gives for the key; a test holds the two together.
- An exchange sees a key once. So cycles end, and a binding counts once for a key.
- The pairs of one batch are bounded; `TooMany` tells the caller to give the keys in smaller batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harebell.routing.exchanges.exchange import DefaultExchange, DirectExchange, Exchange, FanoutExchange, TopicExchange
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.routing.trace import Tracer
from harebell.spark.jobs.simulate.patterns import MAX_PAIRS, Patterns, TooMany, expanded
from harebell.spark.jobs.simulate.totals import Numbers

__all__ = ["Reached", "Walker"]

_KINDS: Final = (DefaultExchange, DirectExchange, FanoutExchange, TopicExchange)
_Find = Callable[[pa.StringArray], tuple[Numbers, Numbers]]


@dataclass(frozen=True, slots=True)
class Reached:
    """Pairs (place of the key, number), each once, in no order: the bindings that match and the queues reached."""

    binding_keys: Numbers
    bindings: Numbers
    queue_keys: Numbers
    queues: Numbers


class Walker:
    """Follows keys through the exchanges of a tracer's router; bindings have the tracer's numbers.

    `queues` are names by number: pass the same dict to the walkers of several topologies to compare what they reach.
    """

    def __init__(self, tracer: Tracer, queues: dict[str, int]) -> None:
        self._router = tracer.router
        self._queues = queues
        for name in self._router.queues:
            queues.setdefault(name, len(queues))
        self._exchanges = {exchange.name: number for number, exchange in enumerate(self._router.exchanges)}
        self._bindings = tracer.bindings
        to = [binding.destination for binding in tracer.bindings]
        self._to_queue = np.array([queues[name] if kind == "queue" else -1 for kind, name in to], np.int64)
        self._to_exchange = np.array(
            [self._exchanges.get(name, -1) if kind == "exchange" else -1 for kind, name in to], np.int64
        )
        self._from: dict[str, list[int]] = {}
        for number, binding in enumerate(tracer.bindings):
            self._from.setdefault(binding.source, []).append(number)
        self._finders: dict[str, _Find] = {}
        self._names = tuple(self._exchanges)
        self._takes: dict[str, bool] = {}

    @property
    def size(self) -> int:
        """How many bindings there are."""
        return len(self._bindings)

    def takes(self, exchange: str) -> bool:
        """True when clients may publish to the exchange, and only exchanges of those kinds can be reached from it."""
        known = self._takes.get(exchange)
        if known is None:
            known = self._router.has_exchange(exchange) and not self._router.exchange(exchange).internal
            known = known and all(type(each) in _KINDS for each in self._after(exchange))
            self._takes[exchange] = known
        return known

    def _after(self, exchange: str) -> Iterable[Exchange]:
        """The exchange, and those that a message may reach from it."""
        todo = [exchange]
        for name in todo:  # grows while it is walked
            at = self._router.exchange(name)
            yield at
            after = [binding.destination.name for binding in at.bindings() if binding.destination.kind == "exchange"]
            if at.alternate is not None:
                after.append(at.alternate)
            todo += [each for each in after if self._router.has_exchange(each) and each not in todo]

    def walk(self, exchange: str, keys: pa.StringArray) -> Reached:
        """What messages published to the exchange with these keys reach. Raises TooMany for more than one key.

        The exchange is one that it `takes`.
        """
        seen = {exchange: np.ones(len(keys), bool)}
        todo: list[tuple[str, Numbers]] = [(exchange, np.arange(len(keys)))]
        hits: list[tuple[Numbers, Numbers]] = []
        copies: list[tuple[Numbers, Numbers]] = []

        def go(name: str, places: Numbers) -> None:
            if name == "" or name not in self._exchanges:  # the default exchange takes from clients only
                return
            there = seen.setdefault(name, np.zeros(len(keys), bool))
            fresh = places[~there[places]]
            if len(fresh):
                there[fresh] = True
                todo.append((name, np.unique(fresh)))

        for name, places in todo:  # grows while it is walked
            some = keys if len(places) == len(keys) else keys.take(pa.array(places))
            found, numbers = self._found(name, some)
            found = places[found]
            if name:
                hits.append((found, numbers))
                to_queue = self._to_queue[numbers]
                copied = to_queue >= 0
                copies.append((found[copied], to_queue[copied]))
                to_exchange = self._to_exchange[numbers]
                for after in np.unique(to_exchange[to_exchange >= 0]).tolist():
                    go(self._names[after], found[to_exchange == after])
            else:
                copies.append((found, numbers))
            alternate = self._router.exchange(name).alternate
            if alternate is not None:
                without = np.ones(len(keys), bool)
                without[found] = False
                go(alternate, places[without[places]])
            if len(keys) > 1 and sum(len(each) for each, _ in hits) > MAX_PAIRS:
                raise TooMany
        places, reached = _joined(copies)
        if len(copies) > 1 or self._several(exchange):
            places, reached = self._once(places, reached)
        return Reached(*_joined(hits), places, reached)

    def _several(self, exchange: str) -> bool:
        """True when several bindings of the exchange lead to one queue."""
        to = self._to_queue[np.array(self._from.get(exchange, []), np.int64)]
        to = to[to >= 0]
        return len(np.unique(to)) < len(to)

    def _once(self, places: Numbers, queues: Numbers) -> tuple[Numbers, Numbers]:
        """A queue gets a message once, however many bindings lead to it."""
        codes = np.sort(places * len(self._queues) + queues)
        codes = codes[np.diff(codes, prepend=-1) > 0]
        places = codes // max(1, len(self._queues))
        return places, codes - places * len(self._queues)

    def _found(self, name: str, keys: pa.StringArray) -> tuple[Numbers, Numbers]:
        find = self._finders.get(name)
        if find is None:
            find = self._finders[name] = self._finder(self._router.exchange(name))
        return find(keys)

    def _finder(self, exchange: Exchange) -> _Find:
        """What finds the pairs (place of the key, number of the binding that takes it on) of one exchange; the default
        exchange's are of queues."""
        numbers = self._from.get(exchange.name, [])
        match exchange:
            case DefaultExchange():
                return _by_key({name: [self._queues[name]] for name in self._router.queues})
            case TopicExchange():
                return Patterns(TopicMatcher((self._bindings[number].binding_key, number) for number in numbers)).match
            case DirectExchange():
                by_key: dict[str, list[int]] = {}
                for number in numbers:
                    by_key.setdefault(self._bindings[number].binding_key, []).append(number)
                return _by_key(by_key)
        everything = np.array(numbers, np.int64)

        def to_all(keys: pa.StringArray) -> tuple[Numbers, Numbers]:
            if len(keys) > 1 and len(keys) * len(everything) > MAX_PAIRS:
                raise TooMany
            return np.repeat(np.arange(len(keys)), len(everything)), np.tile(everything, len(keys))

        return to_all


def _by_key(numbers: Mapping[str, list[int]]) -> _Find:
    """What finds the numbers that stand under a key."""
    there = pa.array(list(numbers), pa.string())
    counts = np.array([len(each) for each in numbers.values()], np.int64)
    starts = np.cumsum(counts) - counts
    flat = np.array([number for each in numbers.values() for number in each], np.int64)

    def find(keys: pa.StringArray) -> tuple[Numbers, Numbers]:
        at = pc.fill_null(pc.index_in(keys, value_set=there), -1).to_numpy(zero_copy_only=False)
        known = np.flatnonzero(at >= 0)
        wanted = counts[at[known]]
        if len(keys) > 1 and wanted.sum() > MAX_PAIRS:
            raise TooMany
        rows, places = expanded(starts[at[known]], wanted)
        return known[rows], flat[places]

    return find


def _joined(parts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([each for each, _ in parts]), np.concatenate([each for _, each in parts])
