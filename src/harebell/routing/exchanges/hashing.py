"""Exchanges that pick one of their destinations for a message: by hash, by weight and hash, or at random.

Rules (those of RabbitMQ's plugins; the texts were probed on 3.10.8):

- `x-consistent-hash`: the binding key is the destination's weight, an integer above 0 in text. The hash is that of the
  routing key, or of the header that `hash-header` names, or of the property that `hash-property` names (message_id,
  correlation_id, timestamp); not both. Messages without it all have the same destination.
- `x-modulus-hash`: the routing key's hash, modulo the number of destinations. Binding keys mean nothing.
- `x-random`: one of the bindings, each as likely as the others, whatever the key.

Several bindings to one destination add up. Hashes are the same in every process and on every machine.

Theory of operation of x-consistent-hash. Every destination bids for a key with -weight / log(u), u being a number
between 0 and 1 that follows from the key and the destination alone; the highest bid wins (weighted rendezvous). The
probability that a destination wins a key is its share of the weights. Adding or removing a destination moves only the
keys that it wins or had won. A ring of points would be cheaper with very many destinations (a bid costs 0.4 us), but
its shares are only approximate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from hashlib import blake2b
from re import ASCII, compile as pattern
from typing import Final

from harebell.errors import PreconditionFailed
from harebell.routing.exchanges.exchange import (
    CHEAP,
    Binding,
    BindingIdentity,
    Dependence,
    Destination,
    Exchange,
    FanoutExchange,
)
from harebell.routing.table_values import Table, canonical, erlang_term, type_name

__all__ = ["HASH_PROPERTIES", "ConsistentHashExchange", "Draw", "ModulusHashExchange", "RandomExchange", "draw"]

HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

MAX_WEIGHT_DIGITS: Final = 100  # a shortstr may hold 255 digits; a weight must stay what a float can compare

LISTED: Final = 64  # destinations that are listed in about a microsecond

_INTEGER: Final = pattern(r"[+-]?\d+", ASCII)
_MASK: Final = 2**64 - 1

Draw = Callable[[int], int]
"""Given n, a number from 0 to n - 1."""


def draw(count: int) -> int:
    """A number below `count`, all equally likely."""
    return random.randrange(count)


class ConsistentHashExchange(Exchange):
    """An exchange that picks a destination by weight and by the hash of the key, a header or a property."""

    TYPE = "x-consistent-hash"

    __slots__ = ("_bidders", "_by")

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        value = routing_keys[0] if self._by is None else table.get(self._by)
        hashed = _hash(repr(canonical(value)))
        if len(self._bidders) > CHEAP:
            self.effort += len(self._bidders)
        winner: tuple[Destination, ...] = ()
        highest = 0.0
        for destination, (seed, weight) in self._bidders.items():
            bid = weight / -math.log(_fraction(hashed ^ seed))
            if bid > highest:
                winner, highest = (destination,), bid
        return winner

    def _begin(self) -> None:
        self._bidders: dict[Destination, tuple[int, int]] = {}  # destination -> (its own hash, its weight)
        header, field = self.arguments.get("hash-header"), self.arguments.get("hash-property")
        for name, value in (("hash-header", header), ("hash-property", field)):
            if name in self.arguments and not isinstance(value, str):
                raise PreconditionFailed(f"invalid type '{type_name(value)}' for arg '{name}': expected longstr")
        if header is not None and field is not None:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if field is not None and field not in HASH_PROPERTIES:
            raise PreconditionFailed(f"Unsupported property: {field}")
        self._by = str(header) if header is not None else str(field) if field is not None else None
        if header is not None:
            self.depends_on = Dependence.HEADERS
        elif field is not None:
            self.depends_on = Dependence.PROPERTIES

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        weight = _weight(binding.binding_key)
        seed, before = self._bidders.get(binding.destination) or (_hash("\0".join(binding.destination)), 0)
        self._bidders[binding.destination] = (seed, before + weight)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        seed, before = self._bidders[binding.destination]
        after = before - _weight(binding.binding_key)
        if after:
            self._bidders[binding.destination] = (seed, after)
        else:
            del self._bidders[binding.destination]


class ModulusHashExchange(FanoutExchange):
    """An exchange that picks the destination by the routing key's hash; a change of the bindings moves most keys."""

    TYPE = "x-modulus-hash"

    __slots__ = ()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        there = tuple(self.destinations)
        self.effort += len(there) // LISTED
        return (there[_hash(routing_keys[0]) % len(there)],) if there else ()


class RandomExchange(Exchange):
    """An exchange that picks a binding at random. `draw` makes the choice; pass another one for repeatable routes."""

    TYPE = "x-random"

    __slots__ = ("_draw", "_table")

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        draw: Draw = draw,
    ) -> None:
        self._draw = draw
        super().__init__(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        return (self._table[self._draw(len(self._table))],) if self._table else ()

    def _begin(self) -> None:
        self.depends_on = Dependence.CHANCE
        self._table: list[Destination] = []

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self._table.append(binding.destination)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self._table.remove(binding.destination)


def _weight(binding_key: str) -> int:
    """The binding key as a weight. Raises PreconditionFailed for a key that is none."""
    if not _INTEGER.fullmatch(binding_key) or len(binding_key) > MAX_WEIGHT_DIGITS:
        shown = binding_key if binding_key.isascii() else binding_key.encode()
        raise PreconditionFailed(f"The binding key must be an integer: {erlang_term(shown)}")
    weight = int(binding_key)
    if weight < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    return weight


def _hash(text: str) -> int:
    """A 64-bit hash of the text, the same in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")


def _fraction(number: int) -> float:
    """64 bits, well mixed (the finaliser of splitmix64), as a number between 0 and 1, both excluded."""
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    number ^= number >> 31
    return ((number >> 12) + 0.5) / 2**52  # 52 bits and a half: exact in a float, and never 0 or 1
