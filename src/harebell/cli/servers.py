"""The name of a broker, from its server properties."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["server_name"]


def server_name(properties: Mapping[str, object]) -> str:
    """Product and version ("RabbitMQ 3.10.8"), from connection.start (specification 1.4.2.1)."""
    said = [properties.get("product"), properties.get("version")]
    return " ".join(word for word in said if isinstance(word, str)) or "an AMQP broker"
