"""What addresses the machine of the tests has."""

from __future__ import annotations

import socket


def has_ipv6() -> bool:
    """Whether ::1 can be listened on."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
