"""The way of one message from exchange to exchange: the only walk there is. Router, trace and explanation record it.

Rules (RabbitMQ's, see `router`):

- Each exchange is visited once, so cycles end. The default exchange is visited as the first one only.
- An exchange that finds nothing passes the message to its alternate exchange; a missing one takes nothing.
- A queue gets the message once, however many bindings lead to it.
- An exchange that holds the message back is not asked for destinations, unless it has `released` the message.

Headers and properties are read no earlier than an exchange asks for them. What else is to be known of the way, the
caller records in its `find`, which gives the destinations of one exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from harebell.routing.exchanges.exchange import Dependence, Destination, Exchange, to_exchange
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, RecentHistoryExchange
from harebell.routing.table_values import Table

__all__ = ["Facts", "Find", "Read", "Walk", "walk"]

Find: TypeAlias = "Callable[[Exchange, Sequence[str], Table], Sequence[Destination]]"
"""Gives the destinations of an exchange for a message with these keys, and what the exchange depends on."""
Read: TypeAlias = "Callable[[], Table] | None"

_EMPTY: Final[Table] = {}
_KEY: Final = Dependence.KEY  # a module's name costs one look less than an enum's member, on the path of every message


class Walk:
    """What was met: `exchanges` in order, `queues` as the keys of a table, and `facts`, None where keys decided all."""

    __slots__ = ("exchanges", "facts", "queues")

    def __init__(self, exchanges: list[Exchange], queues: dict[str, None], facts: Facts | None) -> None:
        self.exchanges = exchanges
        self.queues = queues
        self.facts = facts


def walk(
    exchanges: Mapping[str, Exchange],
    start: Exchange,
    keys: Sequence[str],
    headers: Read = None,
    properties: Read = None,
    *,
    released: bool = False,
    find: Find | None = None,
) -> Walk:
    """Follow a message from `start`. `find` is left out where only the queues count: then the exchanges are asked.

    `released` says that `start` held the message back and does so no longer.
    """
    todo = [start]
    seen = {start.name, ""}
    queues: dict[str, None] = {}
    facts: Facts | None = None
    for at in todo:  # grows while it is walked
        table = _EMPTY
        if at.depends_on is not _KEY:
            if facts is None:
                facts = Facts(headers, properties, start.name if released else None)
            if facts.held_back(at):
                continue
            table = facts.table(at.depends_on)
        found = at.match(keys, table) if find is None else find(at, keys, table)
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
    return Walk(todo, queues, facts)


class Facts:
    """What is known of a message beside its keys, read no earlier than asked for, and what was kept on its way.

    only_headers  nothing but headers was asked for
    chance        an exchange picks at random
    delayed       the exchanges that hold the message back, each with its milliseconds
    remembered    the exchanges that remember the message
    """

    __slots__ = ("_headers", "_properties", "_read", "_released", "chance", "delayed", "only_headers", "remembered")

    def __init__(self, headers: Read, properties: Read, released: str | None) -> None:
        self._headers = headers
        self._properties = properties
        self._released = released
        self._read: dict[Dependence, Table] = {}
        self.only_headers = True
        self.chance = False
        self.delayed: list[tuple[str, int]] = []
        self.remembered: list[str] = []

    def table(self, wanted: Dependence) -> Table:
        """The headers or the properties; nothing for an exchange that leaves it to chance."""
        table = self._read.get(wanted)
        if table is None:
            read = {Dependence.HEADERS: self._headers, Dependence.PROPERTIES: self._properties}.get(wanted)
            table = self._read[wanted] = read() if read is not None else _EMPTY
            self.only_headers = self.only_headers and wanted is Dependence.HEADERS
            self.chance = self.chance or wanted is Dependence.CHANCE
        return table

    def held_back(self, at: Exchange) -> bool:
        """Note what the exchange keeps of the message; True when that stops the message for now."""
        if isinstance(at, DelayedMessageExchange) and at.name != self._released:
            delay = at.delay(self.table(Dependence.HEADERS))
            if delay:
                self.delayed.append((at.name, delay))
                return True
        kept = at.inner if isinstance(at, DelayedMessageExchange) else at
        if isinstance(kept, RecentHistoryExchange) and kept.remembers(self.table(Dependence.HEADERS)):
            self.remembered.append(at.name)
        return False
