"""Which queues get a message: exchanges, bindings, topic patterns, header matches, and dead-letter bookkeeping.

Pure: nothing here waits, reads a clock or touches a socket. The broker routes with it, and so does whoever wants to
know beforehand where a message would go.
"""

from __future__ import annotations

from warren.routing.copies import bcc_keys, cc_bcc, cc_keys
from warren.routing.dead_letter import Death, Reason, dead_letter_headers, dead_letter_keys, deaths, without_cycles
from warren.routing.exchange import Binding, Destination, Exchange, to_exchange, to_queue
from warren.routing.kinds import EXCHANGE_TYPES, KEEPING_TYPES
from warren.routing.router import Removed, Route, Router
from warren.routing.system import SYSTEM_EXCHANGE, SystemExchange
from warren.routing.topic import TopicMatcher

__all__ = [
    "EXCHANGE_TYPES",
    "KEEPING_TYPES",
    "SYSTEM_EXCHANGE",
    "Binding",
    "Death",
    "Destination",
    "Exchange",
    "Reason",
    "Removed",
    "Route",
    "Router",
    "SystemExchange",
    "TopicMatcher",
    "bcc_keys",
    "cc_bcc",
    "cc_keys",
    "dead_letter_headers",
    "dead_letter_keys",
    "deaths",
    "to_exchange",
    "to_queue",
    "without_cycles",
]
