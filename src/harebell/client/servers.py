"""Which broker a client is connected to, by the server properties of connection.start (specification 1.4.2.1), and what
a server is that sends something else.

Harebell may tell clients another product than its own, because some choose by that what they do; who it is stands
beside it under a key of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HAREBELL", "RABBITMQ", "answered", "product_of", "version_of"]

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


def answered(first: bytes) -> str:
    """What answered a protocol header with these bytes, which are no AMQP, and what to do; for the text of an error."""
    if first.startswith(b"\x15\x03"):  # an alert of TLS (RFC 8446, 5.1)
        return "a server that wants TLS answered: use amqps://"
    kind = "a web server" if first.startswith((b"HTTP/", b"<")) else "no AMQP broker"
    return f"{kind} answered: {first[:8]!r}"
