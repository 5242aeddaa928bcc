"""The system exchange of the 2006 draft of AMQP (section 2.2.3.5): a routing key names a service of the server.

Rules:

- There is one, `amq.system`, in every virtual host. It can be neither declared anew nor deleted, and nothing is bound
  to or from it: a key is a service's name, and the draft knows no queue behind it.
- Services that begin with "amq." are the server's; other names are free for it to use (`is_reserved_service`).
- The type `system` belongs to this exchange alone.

It routes to no queue. What a service does and where its reply goes, the broker knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harebell.errors import AccessRefused
from harebell.routing.exchanges.exchange import Binding, BindingIdentity, Destination, Exchange
from harebell.routing.table_values import Table

__all__ = ["SYSTEM_EXCHANGE", "SystemExchange", "is_reserved_service"]

SYSTEM_EXCHANGE: Final = "amq.system"


class SystemExchange(Exchange):
    """An exchange without bindings, whose messages the broker answers."""

    type = "system"

    __slots__ = ()

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        return ()

    def _begin(self) -> None:
        """Nothing: there is no index."""

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        raise AccessRefused(f"operation not permitted on the system exchange '{self.name}'")

    _detach = _attach


def is_reserved_service(routing_key: str) -> bool:
    """True for the names of services that AMQP keeps for itself."""
    return routing_key.startswith("amq.")
