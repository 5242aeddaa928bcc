"""One virtual host of a definitions file, ready to route: its router, and the settings of its queues.

Rules: the result is that of a broker which imports the file. Policies apply to exchanges (alternate-exchange) and to
queues. An object that a broker would leave out (a binding with a missing end, a name of the server's) is left out and
named in `remarks`; for an object that it would refuse, the InvalidArgument names the object. Users, permissions and
parameters are ignored: they decide who may publish, not where a message goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from harebell.errors import AmqpError, InvalidArgument
from harebell.routing.definitions import BindingDefinition, Definitions, ExchangeDefinition, QueueDefinition, naming
from harebell.routing.exchanges.exchange import to_exchange, to_queue
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES
from harebell.routing.exchanges.hashing import Draw, RandomExchange, draw
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, ExchangeFactory, RecentHistoryExchange
from harebell.routing.exchanges.system_exchange import SYSTEM_EXCHANGE
from harebell.routing.naming import RESERVED_PREFIX
from harebell.routing.patterns import Patterns, standard
from harebell.routing.policies import effective, matching
from harebell.routing.router import Router
from harebell.routing.settings import QueueSettings, queue_settings, settings_of, without_undefined_type
from harebell.routing.table_values import Table

__all__ = ["QueueFacts", "Topology", "exchange_types", "topology"]

_PATTERNS = Patterns(standard)


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue of the file. `settings` are those in force, policies included."""

    name: str
    durable: bool
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class Topology:
    """A virtual host that routes; it can be pickled. `remarks` name the objects that were left out, and why."""

    vhost: str
    router: Router
    queues: Mapping[str, QueueFacts]
    remarks: tuple[str, ...] = ()


def exchange_types(draw: Draw = draw) -> dict[str, ExchangeFactory]:
    """Every type of exchange that a definitions file may name; `draw` makes the random choices of x-random."""
    plain: dict[str, ExchangeFactory] = {**EXCHANGE_TYPES, RandomExchange.TYPE: partial(RandomExchange, draw=draw)}
    inner = {**plain, RecentHistoryExchange.TYPE: RecentHistoryExchange}
    return {**inner, DelayedMessageExchange.TYPE: partial(DelayedMessageExchange, types=inner)}


def topology(
    definitions: Definitions, vhost: str | None = None, *, types: Mapping[str, ExchangeFactory] | None = None
) -> Topology:
    """The virtual host `vhost` of the definitions; None: the only one that is not empty.

    `types` are the exchange types that the file may name, by default `exchange_types()`. Raises InvalidArgument when
    the virtual host does not exist, when several are not empty, and for an object that a broker would refuse.
    """
    name = _chosen(definitions, vhost)
    building = _Builder(definitions, name, exchange_types() if types is None else types)
    for policy in (*definitions.policies, *definitions.operator_policies):
        if policy.vhost == name:
            with naming(f"policy '{policy.name}' in vhost '{name}'", AmqpError):
                _PATTERNS.check(policy.pattern)
    for exchange in definitions.exchanges:
        if exchange.vhost == name and exchange.name:
            building.exchange(exchange)
    for queue in definitions.queues:
        if queue.vhost == name:
            building.queue(queue)
    for binding in definitions.bindings:
        if binding.vhost == name and binding.source:  # the default exchange's are implicit
            building.binding(binding)
    building.alternates()
    return Topology(name, building.router, building.queues, tuple(building.remarks))


def _chosen(definitions: Definitions, vhost: str | None) -> str:
    parts: list[ExchangeDefinition | QueueDefinition | BindingDefinition] = [
        *definitions.exchanges, *definitions.queues, *definitions.bindings
    ]  # fmt: skip
    used = list(dict.fromkeys(part.vhost for part in parts))
    declared = [each.name for each in definitions.vhosts]
    if vhost is not None:
        if vhost not in used and vhost not in declared:
            there = ", ".join(f"'{name}'" for name in dict.fromkeys([*declared, *used])) or "none"
            raise InvalidArgument(f"the definitions have no vhost '{vhost}'; there are: {there}")
        return vhost
    if len(used) > 1:
        names = ", ".join(f"'{name}'" for name in used)
        raise InvalidArgument(f"the definitions have several vhosts, name one of them: {names}")
    return (used or declared or ["/"])[0]


class _Builder:
    """The builder of a Topology: adds the objects of a file one by one."""

    def __init__(self, definitions: Definitions, vhost: str, types: Mapping[str, ExchangeFactory]) -> None:
        self.router = Router(vhost, types=types)
        self.queues: dict[str, QueueFacts] = {}
        self.remarks: list[str] = []
        self._definitions = definitions
        self._vhost = vhost
        self._default_type = next((each.default_queue_type for each in definitions.vhosts if each.name == vhost), None)

    def exchange(self, exchange: ExchangeDefinition) -> None:
        what = f"exchange '{exchange.name}' in vhost '{self._vhost}'"
        if exchange.name.startswith(RESERVED_PREFIX) and not self.router.has_exchange(exchange.name):
            self.remarks.append(f"{what}: left out, the name is the server's")
            return
        if exchange.name == SYSTEM_EXCHANGE:
            return
        with naming(what, AmqpError):
            self.router.declare_exchange(
                exchange.name,
                exchange.type,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=exchange.arguments,
            )

    def queue(self, queue: QueueDefinition) -> None:
        what = f"queue '{queue.name}' in vhost '{self._vhost}'"
        if not queue.name or queue.name.startswith(RESERVED_PREFIX):
            self.remarks.append(f"{what}: left out, the name is the server's")
            return
        if not self.router.add_queue(queue.name):
            self.remarks.append(f"{what}: twice in the file, the first one counts")
            return
        arguments = self._arguments(queue)
        with naming(what, AmqpError):
            declared = queue_settings(arguments, what, durable=queue.durable, auto_delete=queue.auto_delete)
            kind = declared.queue_type
            values = effective(
                arguments,
                matching(self._definitions.policies, self._vhost, queue.name, kind, _PATTERNS),
                matching(self._definitions.operator_policies, self._vhost, queue.name, kind, _PATTERNS),
            )
        settings = settings_of({**{key: each.value for key, each in values.items()}, "queue-type": kind})
        self.queues[queue.name] = QueueFacts(queue.name, queue.durable, settings)

    def binding(self, binding: BindingDefinition) -> None:
        what = (
            f"binding from exchange '{binding.source}' to {binding.destination_type} '{binding.destination}' "
            f"in vhost '{self._vhost}'"
        )
        match binding.destination_type:
            case "queue":
                destination, there = to_queue(binding.destination), binding.destination in self.router.queues
            case "exchange":
                destination, there = to_exchange(binding.destination), self.router.has_exchange(binding.destination)
            case _:
                raise InvalidArgument(f"{what}: destination_type is 'queue' or 'exchange'")
        if not there or not self.router.has_exchange(binding.source):
            self.remarks.append(f"{what}: left out, one end of it is missing")
            return
        with naming(what, AmqpError):
            self.router.bind(binding.source, destination, binding.routing_key, binding.arguments)

    def alternates(self) -> None:
        """Set the alternate exchanges that policies name."""
        for exchange in tuple(self.router.exchanges):
            if exchange.name in ("", SYSTEM_EXCHANGE):
                continue
            policy = matching(self._definitions.policies, self._vhost, exchange.name, "exchange", _PATTERNS)
            alternate = policy.definition.get("alternate-exchange") if policy is not None else None
            if isinstance(alternate, str):
                self.router.set_alternate(exchange.name, alternate)

    def _arguments(self, queue: QueueDefinition) -> Table:
        """The queue's arguments, with the type that the file or the virtual host's default gives it."""
        arguments = without_undefined_type(queue.arguments)
        kind = queue.type or (self._default_type if queue.durable and not queue.auto_delete else None)
        if kind is None or "x-queue-type" in arguments:
            return arguments
        return {**arguments, "x-queue-type": kind}
