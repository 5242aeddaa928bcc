"""What the basic properties of a message may be, and in words what is wrong with those that are something else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from harebell import errors
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.codec import MISFITS
from harebell.protocol.v091.fields import write_shortstr, write_table, write_timestamp

__all__ = ["PLAIN", "misfit"]

PLAIN: Final = frozenset((str, int, bool, float, bytes, type(None)))
"""Types of header values that always fit, but for numbers beyond 64 bits."""

TEXTS: Final = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
    "app_id",
)  # fmt: skip
HINTS: Final = {
    "expiration": "milliseconds as text, for example '5000'",
    "correlation_id": "text, for example str(number)",
    "message_id": "text, for example str(uuid4())",
    "user_id": "the name of the connection's user, as text",
}


def misfit(properties: Properties) -> str | None:
    """What is wrong with the first property that does not fit its type; None when all fit."""
    for name in TEXTS:
        value = getattr(properties, name)
        if value is None:
            continue
        if not isinstance(value, str):
            return _wrong(name, value, HINTS.get(name, "text"))
        try:
            write_shortstr(value, name)
        except errors.LocalProtocolError as error:
            return str(error)
    mode, priority = properties.delivery_mode, properties.priority
    if mode is not None and (not _is_number(mode) or mode not in (1, 2)):
        return _wrong("delivery_mode", mode, "1 (transient) or 2 (persistent)")
    if priority is not None and (not _is_number(priority) or not 0 <= priority <= 255):
        return _wrong("priority", priority, "a whole number from 0 to 255")
    timestamp = properties.timestamp
    if timestamp is not None:
        if not (_is_number(timestamp) or isinstance(timestamp, datetime)):
            return _wrong("timestamp", timestamp, "a datetime with a time zone, or whole seconds since 1970")
        try:
            write_timestamp(timestamp)
        except errors.LocalProtocolError as error:
            return str(error)
    return _misfit_of_headers(properties.headers)


def _misfit_of_headers(headers: object) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        return _wrong("headers", headers, "a dictionary by name")
    for name, value in headers.items():
        if not isinstance(name, str):
            return _wrong("the name of a header", name, "text")
        try:
            write_table({name: value})
        except errors.LocalProtocolError as error:
            return f"header {name!r}: {error}"
        except MISFITS as error:
            return f"header {name!r} does not fit the wire: {error}"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(name: str, value: object, needed: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"{name} is {shown} ({type(value).__name__}): {needed} is needed"
