"""The identity of a message over deliveries and runs: 16 bytes that every delivery of the message shares."""

from __future__ import annotations

from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from harebell.protocol.v091.splice import DELIVERY_COUNTS
from harebell.spark.schema import PROPERTY_COLUMNS

if TYPE_CHECKING:
    from harebell.client.messages import Delivery

__all__ = ["digest"]

DIGEST_BYTES: Final = 16
_PROPERTIES: Final = attrgetter(*(name for name in PROPERTY_COLUMNS if name != "headers"))


def digest(delivery: Delivery) -> bytes:
    """The digest of exchange, routing key, properties and body. Two messages equal in all of these share it."""
    properties = delivery.properties
    headers = {name: value for name, value in (properties.headers or {}).items() if name not in DELIVERY_COUNTS}
    identity = delivery.exchange, delivery.routing_key, headers, _PROPERTIES(properties)
    # A peer's bytes that are not UTF-8 are surrogates in our text.
    return blake2b(repr(identity).encode("utf-8", "surrogatepass") + delivery.body, digest_size=DIGEST_BYTES).digest()
