"""The explanation of a message's route: the exchanges that it reaches, and the bindings that match.

Rules:

- The route is the router's own (`Router.route_keys`): the same exchanges in the same order, with alternate exchanges
  and delays. Where an exchange picks at random, the explanation has every binding, and none of them is certain.
- Where an exchange picks by hash, the explanation has the bindings to the destination that it picks.
- The explanation has each exchange once; a binding that leads to it again is marked.

The module changes nothing. It tries each binding of these exchanges by itself, which is too slow to do per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from harebell.printable import printable
from harebell.routing.exchanges.exchange import Binding, DefaultExchange, Dependence, Destination, Exchange
from harebell.routing.exchanges.hashing import ConsistentHashExchange, ModulusHashExchange
from harebell.routing.exchanges.own_exchange import OwnExchange
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.exchanges.system_exchange import SystemExchange
from harebell.routing.router import Router
from harebell.routing.steps import Steps, complete
from harebell.routing.table_values import Table, erlang_term

__all__ = ["Explanation", "Hop", "Reached", "Step", "explain", "explaining"]

Outcome = Literal["matched", "alternate", "delayed", "nothing"]

TRIED: Final = 64  # bindings of one step
LONGEST: Final = 1_000_000  # characters of a line


class Hop(NamedTuple):
    """A binding that matches the message; `again` when it leads to an exchange that was reached before."""

    binding: Binding
    again: bool


class Reached(NamedTuple):
    """A queue that the message reaches; not `certain` when a random choice decides."""

    queue: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Step:
    """The message at one exchange.

    `outcome` is "matched" when bindings match (`hops`, of all `bindings`); "alternate" when none does, and the message
    goes on to the exchange `alternate`, if it exists (`alternate_exists`) and was not reached before; "delayed" when
    the exchange delays the message by `delay` milliseconds; "nothing" when the route ends here. `chosen_by` is "hash"
    or "chance" where the exchange picks among its bindings, else "".
    """

    exchange: str
    type: str
    outcome: Outcome
    bindings: int
    hops: tuple[Hop, ...] = ()
    alternate: str | None = None
    alternate_exists: bool = False
    delay: int = 0
    chosen_by: Literal["", "hash", "chance"] = ""
    certain: bool = True

    def text(self) -> str:
        """The step in one line, and one more for each binding that matched."""
        head = f"exchange '{printable(self.exchange, LONGEST)}' ({self.type})"
        if not self.certain:
            head = f"perhaps {head}"
        if self.outcome == "delayed":
            return f"{head}: held back for {self.delay} ms"
        if self.outcome == "alternate":
            missing = "" if self.alternate_exists else ", which does not exist"
            alternate = printable(self.alternate or "", LONGEST)
            return f"{head}: {self._count()}; to its alternate exchange '{alternate}'{missing}"
        if self.outcome == "nothing":
            return f"{head}: {'the server answers' if self.type == SystemExchange.TYPE else self._count()}"
        return "\n".join([f"{head}: {self._count()}", *(f"  {printable(_shown(hop), LONGEST)}" for hop in self.hops)])

    def _count(self) -> str:
        if self.bindings == 0:
            return "no bindings"
        match self.chosen_by:
            case "chance" if self.bindings > 1:
                return f"one of {self.bindings} bindings, by chance"
            case "hash":
                return f"{len(self.hops)} of {self.bindings} bindings, by hash"
        return f"{len(self.hops)} of {self.bindings} bindings match"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole route: the steps in the router's order, and the queues at the end."""

    exchange: str
    routing_keys: tuple[str, ...]
    steps: tuple[Step, ...]
    queues: tuple[Reached, ...]

    def text(self) -> str:
        """The route as lines for a terminal, the queues last."""
        keys = ", ".join(f"'{key}'" for key in self.routing_keys)
        first = printable(f"a message to exchange '{self.exchange}' with {keys}", LONGEST)
        lines = [first, *(step.text() for step in self.steps)]
        held = any(step.outcome == "delayed" for step in self.steps)
        if self.queues:
            reached = (f"'{queue}'" if certain else f"perhaps '{queue}'" for queue, certain in self.queues)
            lines.append(printable(f"reaches {', '.join(reached)}", LONGEST))
        else:
            lines.append("reaches no queue yet" if held else "reaches no queue")
        return "\n".join(lines)


def explain(
    router: Router,
    exchange: str,
    routing_keys: Sequence[str],
    headers: Table | None = None,
    properties: Table | None = None,
    body: bytes = b"",
    *,
    released: bool = False,
) -> Explanation:
    """The explanation of the route that `Router.route_keys` gives a message with these keys, headers and properties.

    Raises NotFound when the exchange does not exist, PluginFailed when an exchange of a program's own type fails.
    """
    return complete(explaining(router, exchange, routing_keys, headers, properties, body, released=released))


def explaining(
    router: Router,
    exchange: str,
    routing_keys: Sequence[str],
    headers: Table | None = None,
    properties: Table | None = None,
    body: bytes = b"",
    *,
    released: bool = False,
) -> Steps[Explanation]:
    """As `explain`, in steps. The route is that of the first one; the bindings are tried in those after it."""
    visits: dict[str, _Visit] = {}

    def find(at: Exchange, keys: Sequence[str], table: Table) -> Sequence[Destination]:
        visits[at.name] = visit = _visit(at, keys, table)
        return [binding.destination for binding in visit.candidates]

    way = router.follow(
        exchange,
        routing_keys,
        find,
        lambda: headers or {},
        lambda: properties or {},
        lambda: {"headers": headers or {}, "properties": properties or {}, "body": body},
        released=released,
    )
    delays = dict(way.facts.delayed) if way.facts is not None else {}
    seen = {exchange, ""}
    steps = list[Step]()
    for at in way.exchanges:
        visit = visits.get(at.name)
        matched = (yield from visit.matched()) if visit is not None else []
        steps.append(_step(router, at, delays.get(at.name, 0), matched, seen))
        yield
    sure = _certain(exchange, steps)
    queues: dict[str, bool] = {}
    for step in steps:
        for binding, _ in step.hops:
            kind, queue = binding.destination
            if kind == "queue":
                queues[queue] = queues.get(queue, False) or (step.exchange in sure and not _undecided(step))
    return Explanation(
        exchange,
        tuple(routing_keys),
        tuple(replace(step, certain=step.exchange in sure) for step in steps),
        tuple(map(Reached, queues, queues.values())),
    )


def _step(router: Router, at: Exchange, delay: int, matched: list[Binding], seen: set[str]) -> Step:
    """The step at the exchange; adds the exchanges that it leads to to `seen`."""
    count = len(tuple(at.bindings()))
    if delay:
        return Step(at.name, at.type, "delayed", count, delay=delay)
    hops = tuple(
        Hop(binding, binding.destination.kind == "exchange" and binding.destination.name in seen) for binding in matched
    )
    seen.update(hop.binding.destination.name for hop in hops if hop.binding.destination.kind == "exchange")
    if hops:
        return Step(at.name, at.type, "matched", count, hops, chosen_by=_chosen_by(at))
    if at.alternate is not None:
        seen.add(at.alternate)
        exists = router.has_exchange(at.alternate)
        return Step(at.name, at.type, "alternate", count, alternate=at.alternate, alternate_exists=exists)
    return Step(at.name, at.type, "nothing", count)


class _Visit(NamedTuple):
    """A message at an exchange: the bindings to the destinations that it goes to, in the router's order of these.

    `trial`: each of them is still to be tried by itself, because a destination may have others that do not match.
    """

    exchange: Exchange
    routing_keys: Sequence[str]
    table: Table
    candidates: list[Binding]
    trial: bool

    def matched(self) -> Steps[list[Binding]]:
        """The bindings that match, a few of them tried in a step."""
        if not self.trial:
            return self.candidates
        at, found = self.exchange, list[Binding]()
        kind = type(_inner(at))
        for number, binding in enumerate(self.candidates, 1):
            alone = kind(at.name, arguments=at.arguments)
            alone.bind(binding.destination, binding.binding_key, binding.arguments)
            if alone.match(self.routing_keys, self.table):
                found.append(binding)
            if not number % TRIED:
                yield
        return found


def _visit(at: Exchange, routing_keys: Sequence[str], table: Table) -> _Visit:
    inner = _inner(at)
    if isinstance(inner, OwnExchange):
        known = {binding.identity: binding for binding in at.bindings()}
        found = [known[binding.identity] for binding in inner.matched(routing_keys, table)]
        return _Visit(at, routing_keys, table, found, trial=False)
    if isinstance(at, DefaultExchange):
        return _Visit(at, routing_keys, table, [_implicit(each) for each in at.match(routing_keys, table)], trial=False)
    by_destination: dict[Destination, list[Binding]] = {}
    for binding in at.bindings():
        by_destination.setdefault(binding.destination, []).append(binding)
    chance = at.depends_on is Dependence.CHANCE
    destinations = tuple(by_destination) if chance else at.match(routing_keys, table)
    candidates = [binding for destination in destinations for binding in by_destination[destination]]
    return _Visit(at, routing_keys, table, candidates, trial=True)


def _implicit(destination: Destination) -> Binding:
    """How the default exchange leads to a queue, or to an address for direct replies."""
    return Binding("", destination, destination.name, {})


def _inner(at: Exchange) -> Exchange:
    return at.inner if isinstance(at, DelayedMessageExchange) else at


def _chosen_by(at: Exchange) -> Literal["", "hash", "chance"]:
    inner = _inner(at)
    if isinstance(inner, (ConsistentHashExchange, ModulusHashExchange)):
        return "hash"
    return "chance" if inner.depends_on is Dependence.CHANCE else ""


def _undecided(step: Step) -> bool:
    """True when a random choice decides where the step leads."""
    return step.chosen_by == "chance" and len({hop.binding.destination for hop in step.hops}) > 1


def _certain(exchange: str, steps: Sequence[Step]) -> set[str]:
    """The exchanges that the message reaches whatever the random choices are."""
    by_name = {step.exchange: step for step in steps}
    sure = {exchange}
    todo = [exchange]
    for name in todo:  # the loop appends to it
        step = by_name[name]
        onward = [] if _undecided(step) else [hop.binding.destination for hop in step.hops]
        names = [destination.name for destination in onward if destination.kind == "exchange"]
        if step.alternate is not None:
            names.append(step.alternate)
        fresh = [each for each in dict.fromkeys(names) if each in by_name and each not in sure]
        sure.update(fresh)
        todo += fresh
    return sure


def _shown(hop: Hop) -> str:
    binding = hop.binding
    arguments = f" {erlang_term(binding.arguments)}" if binding.arguments else ""
    again = ", where it was before" if hop.again else ""
    return f"'{binding.binding_key}'{arguments} -> {binding.destination.kind} '{binding.destination.name}'{again}"
