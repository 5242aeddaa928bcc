"""The expiration of a message: what is allowed, and RabbitMQ's texts for what is not."""

from __future__ import annotations

from harebell.defaults import MAX_TIME
from harebell.errors import PreconditionFailed

__all__ = ["milliseconds_of"]


def milliseconds_of(expiration: str) -> int:
    """An expiration property in milliseconds. PreconditionFailed, with RabbitMQ's text, for an invalid one."""
    if expiration.isascii() and expiration.isdecimal() and int(expiration) <= MAX_TIME:
        return int(expiration)
    digits = expiration[1:] if expiration[:1] in ("-", "+") else expiration
    number = ""
    for character in digits:
        if not ("0" <= character <= "9"):
            break
        number += character
    rest = digits[len(number) :]
    if not number:
        problem = "no_integer"
    elif rest:
        quoted = rest.replace("\\", "\\\\").replace('"', '\\"')
        problem = f'{{leftover_string,"{quoted}"}}'
    else:
        value = -int(number) if expiration[0] == "-" else int(number)
        if 0 <= value <= MAX_TIME:
            return value
        problem = f"{{{'value_negative' if value < 0 else 'value_too_large'},{value}}}"
    raise PreconditionFailed(f"invalid expiration '{expiration}': {problem}")
