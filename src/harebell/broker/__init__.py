"""The broker: vhosts, exchanges, queues, consumers, and the store, in one process.

`Broker` is all that most programs need. `QueueDecorator` and `Verdict` are for programs that decorate queues
(`Broker.add_decorator`), `Plugin` and what belongs to it for those that add exchange types and services; `COMMANDS`
names the commands of the service `amq.administer`.
"""

import harebell.logs  # noqa: F401  log records are one line each
from harebell.broker.net import Broker, Tls
from harebell.broker.operations.administration import COMMANDS
from harebell.broker.plugins import Answer, Plugin, ServiceRequest
from harebell.broker.queues.decorators import QueueDecorator, Verdict
from harebell.routing.exchanges.exchange import Binding, Dependence, Destination, to_exchange, to_queue
from harebell.routing.exchanges.own_exchange import Matcher, RoutedMessage

__all__ = [
    "COMMANDS",
    "Answer",
    "Binding",
    "Broker",
    "Dependence",
    "Destination",
    "Matcher",
    "Plugin",
    "QueueDecorator",
    "RoutedMessage",
    "ServiceRequest",
    "Tls",
    "Verdict",
    "to_exchange",
    "to_queue",
]
