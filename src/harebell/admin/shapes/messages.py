"""A message in RabbitMQ's form."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final

from harebell.broker.message import Held
from harebell.broker.operations.definitions import json_table
from harebell.protocol.v091 import Properties

__all__ = ["message", "payload_of", "properties_of"]

NAMES: Final = tuple(name for name in Properties.__slots__ if name != "reserved")


def message(held: Held, left: int, encoding: str, cut: int | None, *, redelivered: bool) -> dict[str, Any]:
    """A message that was got while `left` were behind it.

    `encoding`: "auto" gives a text where the body is one, "base64" never; `cut` is the number of bytes of it to show.
    """
    address, body = held.message.address, held.message.content.body
    return {
        "payload_bytes": len(body),
        "redelivered": redelivered,
        "exchange": address.exchange,
        "routing_key": address.routing_key,
        "message_count": left,
        "properties": properties_of(held.message.content.decode_properties()) or [],
        **payload_of(body if cut is None else body[:cut], encoding),
    }


def payload_of(body: bytes, encoding: str) -> dict[str, str]:
    """The body, and how it is encoded: "string" or "base64"."""
    if encoding != "base64":
        try:
            return {"payload": body.decode(), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


def properties_of(properties: Properties) -> dict[str, Any]:
    """The properties that are set, by name; a timestamp in seconds since 1970."""
    found: dict[str, Any] = {}
    for name in NAMES:
        value = getattr(properties, name)
        if value is not None:
            found[name] = int(value.timestamp()) if isinstance(value, datetime) else value
    if properties.headers:
        found["headers"] = json_table(properties.headers)
    return found
