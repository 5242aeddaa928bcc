"""Users and the PLAIN mechanism (RFC 4616).

There is one user, `guest`, who may come from the machine's own addresses only, as with RabbitMQ.
"""

from __future__ import annotations

import hmac
import ipaddress

__all__ = ["MECHANISMS", "Users", "read_plain"]

MECHANISMS = b"PLAIN"


class Users:
    def __init__(self) -> None:
        self._passwords = {"guest": "guest"}

    def login(self, user: str, password: str, peer_host: str) -> bool:
        """Whether the credentials are right and good for a peer at that address."""
        known = self._passwords.get(user)
        right = hmac.compare_digest((known or "").encode(), password.encode("utf-8", "surrogateescape"))
        return known is not None and right and is_loopback(peer_host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def read_plain(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response (authzid NUL user NUL password); None when it is none."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        return None
    return parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "surrogateescape")
