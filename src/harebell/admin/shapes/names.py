"""The parts of names: addresses of connections, and keys of bindings in URLs."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote_plus

from harebell.routing.exchanges.exchange import Binding
from harebell.routing.table_values import canonical

__all__ = ["channel_name", "properties_key", "split_address"]

HASH_BYTES: Final = 9  # 12 characters


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:5672" or "[::1]:5672"; the port is 0 for what is no such address."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()):
        return address, 0
    return host.strip("[]"), int(port)


def channel_name(connection: str, number: int) -> str:
    """A channel's name, as RabbitMQ's: that of its connection, and its number."""
    return f"{connection} ({number})"


def properties_key(binding: Binding) -> str:
    """The name of a binding among those between the same exchange and destination, for URLs.

    As RabbitMQ's: the routing key, as forms encode it, and with arguments "~" and a hash of them; "~" for neither.
    """
    key = quote_plus(binding.binding_key).replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    digest = hashlib.sha256(repr(canonical(binding.arguments)).encode("utf-8", "backslashreplace")).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest[:HASH_BYTES]).decode()}"
