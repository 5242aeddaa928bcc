"""A message as selectors see it."""

from __future__ import annotations

from typing import Any

from harebell.protocol.v091 import Properties, TableLike


class Message:
    """A message with these headers and properties."""

    def __init__(
        self,
        headers: TableLike | None = None,
        *,
        exchange: str = "",
        routing_key: str = "q",
        deliveries: int = 0,
        expires: int = 0,
        **properties: Any,
    ) -> None:
        self.properties = Properties(headers=headers, **properties)
        self.exchange, self.routing_key = exchange, routing_key
        self.deliveries, self.expires = deliveries, expires
