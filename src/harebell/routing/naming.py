"""The names of exchanges, queues and exchange types, and routing keys: which are allowed, by one of three rule sets.

Rules:

- RabbitMQ's, the default (`"rabbitmq"`): a name is any text that fits a shortstr, 255 bytes of UTF-8. Line ends are
  taken out of it. Names that begin with "amq." are the server's: a client may declare an existing object of that name
  again, but not create one.
- The 2006 draft's (`"draft"`, sections 2.2.3 and 2.2.4): an exchange name has 1 to 127 characters, a queue name 1 to
  255 and begins with a letter, a digit or "_".
- The same to the letter (`"strict"`): an exchange name has letters, digits and "_" only, words of topic keys letters
  and digits only, and a type of exchange that is not the standard's begins with "x-". The draft's own amq.direct has a
  dot and would not pass; so names that begin with "amq." are left to the rule of the server's names.

Letters and digits are those of ASCII. The module checks neither uniqueness nor permissions.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from re import ASCII, compile as pattern
from typing import Final, Literal, NoReturn

from harebell.errors import AccessRefused, PreconditionFailed
from harebell.routing.table_values import Table

__all__ = [
    "MAX_NAME_BYTES",
    "RESERVED_PREFIX",
    "Naming",
    "check_exchange_name",
    "check_exchange_type",
    "check_new_name",
    "check_queue_name",
    "check_topic_key",
    "generated_queue_name",
    "without_line_ends",
]

RESERVED_PREFIX: Final = "amq."

MAX_NAME_BYTES: Final = 255
"""Bytes of a shortstr: the longest name on the wire."""

GENERATED_PREFIX: Final = "amq.gen"

MAX_PREFIX_BYTES: Final = 64

MAX_EXCHANGE_NAME: Final = 127

STANDARD_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers", "system"})

Naming = Literal["rabbitmq", "draft", "strict"]

_WORD: Final = pattern(r"\w+", ASCII)
_LINE_ENDS: Final = str.maketrans("", "", "\r\n")
_TOPIC_WORD: Final = pattern(r"[A-Za-z0-9]*")


def without_line_ends(name: str) -> str:
    """The name without carriage returns and line feeds, as RabbitMQ reads it."""
    return name.translate(_LINE_ENDS)


def check_new_name(kind: Literal["queue", "exchange"], name: str) -> None:
    """Raise AccessRefused when the name is the server's, so that a client may not create an object of that name."""
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def check_exchange_name(name: str, naming: Naming = "rabbitmq") -> None:
    """Raise PreconditionFailed unless an exchange may have this name."""
    _check_length("exchange", name)
    if naming == "rabbitmq" or name.startswith(RESERVED_PREFIX):
        return
    if not 1 <= len(name) <= MAX_EXCHANGE_NAME:
        _refuse("exchange name", name, f"has {len(name)} characters, and may have 1 to {MAX_EXCHANGE_NAME}")
    if naming == "strict" and not _WORD.fullmatch(name):
        _refuse("exchange name", name, "may have letters, digits and '_' only")


def check_queue_name(name: str, naming: Naming = "rabbitmq") -> None:
    """Raise PreconditionFailed unless a queue may have this name.

    Only the draft's rules refuse the empty name; by the others it asks the server for a name.
    """
    _check_length("queue", name)
    if naming != "rabbitmq" and not _WORD.match(name):
        _refuse("queue name", name, "must begin with a letter, a digit or '_'")


def check_exchange_type(type: str, naming: Naming = "rabbitmq") -> None:
    """Raise PreconditionFailed unless an exchange type may have this name; only strict naming refuses any."""
    if naming == "strict" and type not in STANDARD_TYPES and not type.startswith("x-"):
        _refuse("exchange type", type, "is not the standard's and must begin with 'x-'")


def check_topic_key(key: str, naming: Naming = "rabbitmq", *, binding: bool = False) -> None:
    """Raise PreconditionFailed unless a topic exchange may get this key; only strict naming refuses any.

    With `binding`, the key is a pattern: "*" and "#" may be words of it.
    """
    if naming != "strict":
        return
    for word in key.split("."):
        if not _TOPIC_WORD.fullmatch(word) and not (binding and word in ("*", "#")):
            _refuse("binding key" if binding else "routing key", key, f"has the word '{word}': letters and digits only")


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


def _check_length(kind: str, name: str) -> None:
    length = len(name.encode("utf-8", "surrogateescape"))
    if length > MAX_NAME_BYTES:
        _refuse(f"{kind} name", name, f"has {length} bytes, and may have {MAX_NAME_BYTES}")


def _refuse(kind: str, name: str, why: str) -> NoReturn:
    raise PreconditionFailed(f"{kind} '{name}' {why}")
