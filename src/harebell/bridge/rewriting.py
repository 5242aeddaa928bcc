"""The changes that a shovel makes to messages: none, unless its options say so.

Properties are copied byte for byte. The headers that the source queue added are removed, because they describe that
queue and not the message: x-delivery-count and x-stream-offset. The optional headers x-shovelled and
x-shovelled-timestamp have the form of RabbitMQ's shovel.
"""

from __future__ import annotations

import time
from typing import Any

from harebell.bridge.options import ShovelOptions, without_credentials
from harebell.bridge.window import InFlightMessage
from harebell.client.messages import Delivery
from harebell.protocol.v091 import Properties, Table
from harebell.protocol.v091.codec import decode_properties
from harebell.protocol.v091.splice import DELIVERY_COUNT, STREAM_OFFSET
from harebell.protocol.v091.typed_values import Int64

__all__ = ["Rewriter"]


class Rewriter:
    """Prepares deliveries for the destination, for one pair of connections.

    about  the first entries of x-shovelled, which name the shovel
    """

    def __init__(self, options: ShovelOptions, source_uri: str, destination_uri: str, about: Table) -> None:
        destination = options.destination
        self._exchange: str | None = "" if destination.queue is not None else destination.exchange
        self._key: str | None = destination.queue if destination.queue is not None else destination.key
        self._properties: dict[str, Any] = dict(destination.properties)
        self._stamps = destination.timestamp_header
        self._shovelled = _shovelled(options, source_uri, destination_uri, about)
        self._rewrites = bool(self._properties or self._stamps or destination.forward_headers)

    def prepare(self, delivery: Delivery, offset: int | None) -> InFlightMessage:
        properties = DELIVERY_COUNT.take_from(delivery.raw_properties)
        if offset is not None:
            properties = STREAM_OFFSET.take_from(properties)
        return InFlightMessage(
            delivery.delivery_tag,
            offset,
            self._rewritten(properties) if self._rewrites else properties,
            delivery.body,
            delivery.exchange if self._exchange is None else self._exchange,
            delivery.routing_key if self._key is None else self._key,
        )

    def _rewritten(self, raw: bytes) -> bytes:
        properties: Properties = decode_properties(raw, 0)
        for name, value in self._properties.items():
            setattr(properties, name, value)
        headers = dict(properties.headers or {})
        if self._shovelled:
            before = headers.get("x-shovelled")
            headers["x-shovelled"] = [dict(self._shovelled), *(before if isinstance(before, list) else [])]
        if self._stamps:
            headers["x-shovelled-timestamp"] = Int64(time.time())
        if headers:
            properties.headers = headers
        return properties.encode()


def _shovelled(options: ShovelOptions, source_uri: str, destination_uri: str, about: Table) -> Table:
    """An entry of x-shovelled; empty without forward headers."""
    source, destination = options.source, options.destination
    if not destination.forward_headers:
        return {}
    entry: Table = {
        **about,
        "src-uri": without_credentials(source_uri),
        "dest-uri": without_credentials(destination_uri),
    }
    named = {
        "src-exchange": source.exchange,
        "src-exchange-key": source.key if source.exchange is not None else None,
        "src-queue": source.queue,
        "dest-exchange": destination.exchange,
        "dest-exchange-key": destination.key,
        "dest-queue": destination.queue,
    }
    return entry | {name: value for name, value in named.items() if value is not None}
