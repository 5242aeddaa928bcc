"""Which queues get a message: exchanges, bindings, topic patterns, header matches, and dead-letter bookkeeping.

The package also has the rules for names (`naming`), for the settings of queues (`settings`) and for policies
(`policies`), RabbitMQ's definitions file (`definitions`), and the explanation of a message's route (`explain`).

The package is pure: no code here waits, reads a clock or uses a socket. The broker routes with it, and so do
`harebell route explain` and the Spark simulation, which find the same route without a broker.
"""

from __future__ import annotations

from harebell.routing.copies import bcc_keys, cc_bcc, cc_keys
from harebell.routing.dead_letter import Death, Reason, dead_letter_headers, dead_letter_keys, deaths, without_cycles
from harebell.routing.definitions import Definitions, emit_definitions, parse_definitions
from harebell.routing.exchanges.exchange import Binding, Destination, Exchange, to_exchange, to_queue
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES
from harebell.routing.exchanges.system_exchange import SYSTEM_EXCHANGE, SystemExchange
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.routing.policies import Policy, Setting, check_policy, effective, matching, parse_policy
from harebell.routing.router import Removed, Route, Router
from harebell.routing.settings import QueueSettings, check_redeclaration, queue_settings, settings_of

__all__ = [
    "EXCHANGE_TYPES",
    "KEEPING_TYPES",
    "SYSTEM_EXCHANGE",
    "Binding",
    "Death",
    "Definitions",
    "Destination",
    "Exchange",
    "Policy",
    "QueueSettings",
    "Reason",
    "Removed",
    "Route",
    "Router",
    "Setting",
    "SystemExchange",
    "TopicMatcher",
    "bcc_keys",
    "cc_bcc",
    "cc_keys",
    "check_policy",
    "check_redeclaration",
    "dead_letter_headers",
    "dead_letter_keys",
    "deaths",
    "effective",
    "emit_definitions",
    "matching",
    "parse_definitions",
    "parse_policy",
    "queue_settings",
    "settings_of",
    "to_exchange",
    "to_queue",
    "without_cycles",
]
