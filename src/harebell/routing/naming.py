"""The names of exchanges and queues: which are the server's own, and how the server names a queue.

Rules (RabbitMQ's): a name is any text that fits a shortstr, 255 bytes of UTF-8; line ends are taken out of it. Names
that begin with "amq." are the server's: a client may declare an existing exchange of that name again, but neither
create one nor declare a queue so, other than passively.

The specifications allow fewer characters: AMQP 0-9-1 letters, digits, "-", "_", "." and ":", the draft of 2006 in an
exchange's name no dot and no dash. No such rule is checked. `wire_limits` checks what the wire can carry.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from typing import Final, Literal, NoReturn

from harebell.errors import AccessRefused, PreconditionFailed
from harebell.routing.table_values import Table

__all__ = [
    "MAX_NAME_BYTES",
    "RESERVED_PREFIX",
    "check_new_name",
    "generated_queue_name",
    "kept_from",
    "kept_name",
    "without_line_ends",
]

RESERVED_PREFIX: Final = "amq."

MAX_NAME_BYTES: Final = 255
"""Bytes of a shortstr: the longest name on the wire."""

GENERATED_PREFIX: Final = "amq.gen"

KEPT_PREFIX: Final = "amq.kept."
_KEPT: Final = re.compile(rf"{re.escape(KEPT_PREFIX)}\d+\.(.+)", re.DOTALL)

MAX_PREFIX_BYTES: Final = 64

_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def without_line_ends(name: str) -> str:
    """The name without carriage returns and line feeds, as RabbitMQ reads it."""
    return name.translate(_LINE_ENDS)


def check_new_name(kind: Literal["queue", "exchange"], name: str) -> None:
    """Raise AccessRefused when the name is the server's, so that a client may not create an object of that name."""
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def kept_name(name: str, number: int) -> str:
    """The name of a queue that keeps for a while what was in the queue of that name, or was kept of it there.

    Raises PreconditionFailed for one so long that its name does not fit: another queue would have that name cut.
    """
    kept = f"{KEPT_PREFIX}{number}.{kept_from(name) or name}"
    if len(kept.encode()) > MAX_NAME_BYTES:
        raise PreconditionFailed(f"do without `keep`: too long for a queue of what is kept is the name '{name}'")
    return kept


def kept_from(name: str) -> str | None:
    """The queue whose messages a queue of that name keeps; None for any other name.

    Whoever may use that queue may use this one, and no policy applies here: the messages stay as they are.
    """
    found = _KEPT.fullmatch(name)
    return None if found is None else found[1]


def generated_queue_name(token: bytes, arguments: Table | None = None) -> str:
    """A server's name for a queue, in RabbitMQ's form. `token`: 16 bytes that make the name unique.

    The queue's argument `x-name-prefix` replaces "amq.gen" (RabbitMQ 4.3). Raises PreconditionFailed unless it is a
    string of at most 64 bytes, and AccessRefused when it is a prefix of the server's own.
    """
    prefix = (arguments or {}).get("x-name-prefix", GENERATED_PREFIX)
    if not isinstance(prefix, str):
        _refuse("x-name-prefix", str(prefix), "must be a string")
    prefix = without_line_ends(prefix)
    length = len(prefix.encode("utf-8", "surrogateescape"))
    if length > MAX_PREFIX_BYTES:
        _refuse("x-name-prefix", prefix, f"has {length} bytes, and may have {MAX_PREFIX_BYTES}")
    if prefix != GENERATED_PREFIX:
        check_new_name("queue", prefix)
    return f"{prefix}-{urlsafe_b64encode(token).rstrip(b'=').decode()}"


def _refuse(kind: str, name: str, why: str) -> NoReturn:
    raise PreconditionFailed(f"{kind} '{name}' {why}")
