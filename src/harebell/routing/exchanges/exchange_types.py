"""The types of exchange that a declaration may name, and the exchanges that every virtual host has from the start.

`EXCHANGE_TYPES` only route. `KEEPING_TYPES` need a broker that delays or remembers messages; it makes its routers by
`Router(types=EXCHANGE_TYPES | KEEPING_TYPES)`, or of what `types_with` gives where a program has types of its own. The
type `system` is in neither, because clients cannot declare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from harebell.routing.exchanges.exchange import DirectExchange, FanoutExchange, HeadersExchange, TopicExchange
from harebell.routing.exchanges.hashing import ConsistentHashExchange, ModulusHashExchange, RandomExchange
from harebell.routing.exchanges.own_exchange import MatcherFactory, OwnExchange, Report
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, ExchangeFactory, RecentHistoryExchange
from harebell.routing.exchanges.system_exchange import SYSTEM_EXCHANGE, SystemExchange

__all__ = ["EXCHANGE_TYPES", "KEEPING_TYPES", "PREDECLARED", "ExchangeFactory", "types_with"]

EXCHANGE_TYPES: Final[dict[str, ExchangeFactory]] = {
    kind.TYPE: kind
    for kind in (
        DirectExchange,
        FanoutExchange,
        TopicExchange,
        HeadersExchange,
        ConsistentHashExchange,
        ModulusHashExchange,
        RandomExchange,
    )
}

KEEPING_TYPES: Final[dict[str, ExchangeFactory]] = {
    RecentHistoryExchange.TYPE: RecentHistoryExchange,
    DelayedMessageExchange.TYPE: partial(
        DelayedMessageExchange, types=EXCHANGE_TYPES | {RecentHistoryExchange.TYPE: RecentHistoryExchange}
    ),
}

PREDECLARED: Final[tuple[tuple[str, ExchangeFactory, bool], ...]] = (
    ("amq.direct", DirectExchange, False),
    ("amq.fanout", FanoutExchange, False),
    ("amq.headers", HeadersExchange, False),
    ("amq.match", HeadersExchange, False),
    ("amq.rabbitmq.trace", TopicExchange, True),
    (SYSTEM_EXCHANGE, SystemExchange, False),
    ("amq.topic", TopicExchange, False),
)
"""Name, class and `internal` of the exchanges that every vhost has; all are durable."""


def types_with(own: Mapping[str, MatcherFactory], report: Report) -> dict[str, ExchangeFactory]:
    """Every type of exchange, with a program's own, which a delayed exchange may name too."""
    added: dict[str, ExchangeFactory] = {
        name: partial(OwnExchange, type=name, make=make, report=report) for name, make in own.items()
    }
    plain = {**EXCHANGE_TYPES, **added, RecentHistoryExchange.TYPE: RecentHistoryExchange}
    return {**plain, DelayedMessageExchange.TYPE: partial(DelayedMessageExchange, types=plain)}
