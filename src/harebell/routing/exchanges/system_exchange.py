"""The system exchange of the 2006 draft of AMQP (section 2.2.3.5): a routing key names a service of the server.

Rules:

- Every virtual host has one, `amq.system`. Clients can neither create nor delete one, nor bind to or from it: a key is
  a service's name, and in the draft no queue stands behind it.
- AMQP defines the services whose names begin with "amq."; a server may use any other name (`is_reserved_service`).
- The type `system` belongs to this exchange alone.

The exchange routes to no queue. The broker runs the services and sends their replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harebell.errors import AccessRefused
from harebell.routing.exchanges.exchange import Binding, BindingIdentity, Destination, Exchange
from harebell.routing.naming import RESERVED_PREFIX
from harebell.routing.table_values import Table

__all__ = ["SYSTEM_EXCHANGE", "SystemExchange", "is_reserved_service"]

SYSTEM_EXCHANGE: Final = "amq.system"


class SystemExchange(Exchange):
    """An exchange without bindings, whose messages the broker answers."""

    TYPE = "system"

    __slots__ = ()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        return ()

    def _begin(self) -> None:
        """Nothing: there is no index."""

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        raise AccessRefused(f"operation not permitted on the system exchange '{self.name}'")

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self._attach(key, binding)


def is_reserved_service(routing_key: str) -> bool:
    """True for the names of services that AMQP reserves."""
    return routing_key.startswith(RESERVED_PREFIX)
