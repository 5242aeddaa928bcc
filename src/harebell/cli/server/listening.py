"""The error line of a server that cannot use an address."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from harebell.broker.net.listening import ListenError
from harebell.errors import HarebellError

__all__ = ["Unusable", "explain_listening"]


class Unusable(HarebellError):
    """The broker cannot use an address, the data folder or a file; the text says what to do."""


def explain_listening(error: ListenError, option: str, own: Mapping[str, int]) -> str:
    """The error line for an address that cannot be listened on; `option` names the flag of its port.

    own  the ports that the broker listens on already, by their flags
    """
    host, port = error.host, error.port
    if error.errno == errno.EADDRINUSE and port in own.values():
        flag = next(name for name, number in own.items() if number == port)
        return f"port {port} of {host} is this broker's own {flag}: give another port with {option}; 0 takes a free one"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another broker: stop that one, "
            f"or give another port with {option}; 0 takes a free one"
        )
    if error.errno in (errno.EACCES, errno.EPERM) and 0 < port < 1024:
        return f"port {port} is reserved for root: take one above 1023, such as {option} 5672"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return f"{host} is not an address of this machine: use --host localhost, or '*' for all of its addresses"
    return str(error.strerror)
