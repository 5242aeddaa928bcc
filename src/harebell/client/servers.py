"""Which broker a client is connected to, by the server properties of connection.start (specification 1.4.2.1).

Harebell may tell clients another product than its own, because some choose by that what they do; who it is stands
beside it under a key of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HAREBELL", "RABBITMQ", "product_of", "version_of"]

HAREBELL: Final = "Harebell"
RABBITMQ: Final = "RabbitMQ"


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
