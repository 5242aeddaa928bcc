"""The name of a broker, from its server properties."""

from __future__ import annotations

from collections.abc import Mapping

from harebell.client.servers import product_of, version_of

__all__ = ["server_name"]


def server_name(properties: Mapping[str, object]) -> str:
    """Product and version ("RabbitMQ 3.10.8"), from connection.start (specification 1.4.2.1)."""
    said = [product_of(properties), version_of(properties)]
    return " ".join(filter(None, said)) or "an AMQP broker"
