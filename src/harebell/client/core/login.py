"""The login of either dialect: the first SASL mechanism that both sides know, and its response."""

from __future__ import annotations

from collections.abc import Collection

from harebell import errors
from harebell.client.url import ConnectionParameters, Mechanism
from harebell.protocol.v091.fields import write_table

__all__ = ["choose"]


def choose(parameters: ConnectionParameters, offered: Collection[str]) -> tuple[Mechanism, bytes]:
    """The mechanism and its response. AccessRefused when none that was asked for is offered."""
    for mechanism in parameters.mechanisms:
        if mechanism in offered:
            return mechanism, _response(parameters, mechanism)
    raise errors.AccessRefused(
        f"no common login mechanism: the broker offers {' '.join(offered) or 'none'}, "
        f"asked for is {', '.join(parameters.mechanisms)}"
    )


def _response(parameters: ConnectionParameters, mechanism: Mechanism) -> bytes:
    user, password = parameters.username, parameters.password
    if mechanism == "PLAIN":
        return f"\0{user}\0{password}".encode()
    if mechanism == "AMQPLAIN":
        return write_table({"LOGIN": user, "PASSWORD": password})[4:]  # the fields without the table's length
    if mechanism == "ANONYMOUS":
        return b"anonymous"  # RFC 4505: for the broker's log
    return b""  # EXTERNAL: the certificate says who it is
