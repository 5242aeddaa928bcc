"""Which broker a client is connected to, by the server properties of connection.start (specification 1.4.2.1).

Harebell may tell clients another product than its own, because some choose by that what they do; who it is stands
beside it under a key of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["HAREBELL", "RABBITMQ", "BrokerIdentity", "identity_of", "product_of", "version_of"]

HAREBELL: Final = "Harebell"
RABBITMQ: Final = "RabbitMQ"


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What tells a broker from others, whatever its address is now: the name of its cluster, and an id of its own.

    Harebell has an id, as old as its data; without data, of its process. Other brokers have only a name.
    """

    name: str
    id: str | None = None

    def __str__(self) -> str:
        return self.name if self.id is None else f"{self.name} ({self.id})"

    def is_same(self, other: BrokerIdentity) -> bool:
        """Whether both are one broker, as far as they can tell."""
        return self.name == other.name if self.id is None or other.id is None else self.id == other.id


def identity_of(properties: Mapping[str, object], address: str) -> BrokerIdentity:
    """Which broker the server is; one that has no name is known by its address."""
    name, own = properties.get("cluster_name"), properties.get("cluster_id")
    return BrokerIdentity(name if isinstance(name, str) else address, own if isinstance(own, str) else None)


def product_of(properties: Mapping[str, object]) -> str | None:
    """The product that the server is: "Harebell", "RabbitMQ"; None when it does not say."""
    if HAREBELL.lower() in properties:
        return HAREBELL
    product = properties.get("product")
    return product if isinstance(product, str) else None


def version_of(properties: Mapping[str, object]) -> str | None:
    """The version of that product; None when it does not say."""
    version = properties.get(HAREBELL.lower(), properties.get("version"))
    return version if isinstance(version, str) else None
