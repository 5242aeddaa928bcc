"""The walk of one message from exchange to exchange, which the router, traces and explanations share.

Rules (RabbitMQ's, see `router`):

- Each exchange is visited once, so cycles end. The default exchange is visited as the first one only.
- An exchange without a match passes the message to its alternate exchange; a missing one takes nothing.
- A queue gets the message once, however many bindings lead to it.
- An exchange that delays the message gives no destinations, unless it has `released` the message.
- An exchange whose plug-in fails or refuses the message ends the walk with that ChannelError; where the walk is
  `lenient`, that exchange matches nothing.

The walk reads headers and properties when the first exchange needs them. A caller that wants to know more than the
result records it in its `find`, which gives the destinations of one exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeAlias

from harebell.errors import ChannelError
from harebell.routing.exchanges.exchange import CHEAP, NO_MESSAGE, Dependence, Destination, Exchange, to_exchange
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, RecentHistoryExchange
from harebell.routing.table_values import Table

__all__ = ["Facts", "Find", "Read", "Walk", "walk"]

Find: TypeAlias = "Callable[[Exchange, Sequence[str], Table], Sequence[Destination]]"
"""A function that gives the destinations of an exchange for these keys, and the table that it depends on."""
Read: TypeAlias = "Callable[[], Table] | None"

NONE: Final[Set[str]] = frozenset()
_KEY: Final = Dependence.KEY  # a module's name costs one look-up less per message than an enum's member


class Walk:
    """The result: `exchanges` in order, `queues` as the keys of a dict, and `facts`, None where keys alone decided.

    `effort` is 0 for a route that was cheap to find, else about the microseconds that it took.
    """

    __slots__ = ("effort", "exchanges", "facts", "queues")

    def __init__(self, exchanges: list[Exchange], queues: dict[str, None], facts: Facts | None, effort: int) -> None:
        self.exchanges = exchanges
        self.queues = queues
        self.facts = facts
        self.effort = effort


def walk(
    exchanges: Mapping[str, Exchange],
    start: Exchange,
    keys: Sequence[str],
    headers: Read = None,
    properties: Read = None,
    message: Read = None,
    *,
    released: bool = False,
    lenient: bool = False,
    find: Find | None = None,
    gone: Set[str] = NONE,
) -> Walk:
    """Follow a message from `start`. Without `find`, the exchanges' own `match` gives the destinations.

    `message` reads headers, properties and body. `released` says that `start` has delayed the message already. `gone`
    are queues that bindings may lead to and that are not there.
    """
    todo = [start]
    seen = {start.name, ""}
    queues: dict[str, None] = {}
    facts: Facts | None = None
    effort = 0
    for at in todo:  # the loop appends to it
        table = NO_MESSAGE
        if at.depends_on is not _KEY:
            if facts is None:
                facts = Facts(headers, properties, message, start.name if released else None)
            if facts.held_back(at):
                continue
            table = facts.table(at.depends_on)
        try:
            found = at.match(keys, table) if find is None else find(at, keys, table)
        except ChannelError:
            if not lenient:
                raise
            found = ()
            facts = facts or Facts(headers, properties, message, start.name if released else None)
            facts.only_headers = False  # so that nobody keeps this route for another message
        if at.effort:
            effort += at.effort
            at.effort = 0
        if len(found) > CHEAP:
            effort += len(found)
        if gone:
            found = [each for each in found if each.kind != "queue" or each.name not in gone]
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
    if len(todo) > CHEAP:
        effort += len(todo)
    return Walk(todo, queues, facts, effort)


class Facts:
    """A message's parts, read when they are needed, and the exchanges that store the message.

    only_headers  no exchange needed anything but headers
    chance        an exchange picks at random
    delayed       the exchanges that delay the message, each with its milliseconds
    remembered    the exchanges that remember the message
    """

    __slots__ = (
        "_headers",
        "_message",
        "_properties",
        "_read",
        "_released",
        "chance",
        "delayed",
        "only_headers",
        "remembered",
    )

    def __init__(self, headers: Read, properties: Read, message: Read, released: str | None) -> None:
        self._headers = headers
        self._properties = properties
        self._message = message
        self._released = released
        self._read: dict[Dependence, Table] = {}
        self.only_headers = True
        self.chance = False
        self.delayed: list[tuple[str, int]] = []
        self.remembered: list[str] = []

    def table(self, wanted: Dependence) -> Table:
        """The part of the message that is wanted; an empty table for an exchange that picks at random."""
        table = self._read.get(wanted)
        if table is None:
            read = {
                Dependence.HEADERS: self._headers,
                Dependence.PROPERTIES: self._properties,
                Dependence.MESSAGE: self._message,
            }.get(wanted)
            table = self._read[wanted] = read() if read is not None else NO_MESSAGE
            self.only_headers = self.only_headers and wanted is Dependence.HEADERS
            self.chance = self.chance or wanted is Dependence.CHANCE
        return table

    def held_back(self, at: Exchange) -> bool:
        """Record it when the exchange delays or remembers the message; True when it delays the message."""
        if isinstance(at, DelayedMessageExchange) and at.name != self._released:
            delay = at.delay(self.table(Dependence.HEADERS))
            if delay:
                self.delayed.append((at.name, delay))
                return True
        storing = at.inner if isinstance(at, DelayedMessageExchange) else at
        if isinstance(storing, RecentHistoryExchange) and storing.remembers(self.table(Dependence.HEADERS)):
            self.remembered.append(at.name)
        return False
