"""What AMQP can carry: names and values of tables, checked where they come by another way than AMQP.

Definitions, policies, parameters and administration come as JSON or from a program. A name that no method could name,
or a value that no table could hold, is refused there, before it is stored: nobody could use it or delete it.

- A name is text of 1 to 255 bytes in UTF-8, without line ends, which a declaration takes out of a name. Keys that route
  messages may be empty, and have line ends.
- A value is null, true or false, text, a number of 64 bits, a list, or an object; nested as deep as a table may be.
  A program may also give what only tables have: bytes, decimals, timestamps.

The module does not know what the names and values are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Final

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import InvalidArgument
from harebell.printable import printable
from harebell.routing.naming import MAX_NAME_BYTES, without_line_ends

__all__ = ["check_key", "check_name", "check_table", "check_value"]

MIN_INTEGER: Final = -(1 << 63)
MAX_INTEGER: Final = (1 << 63) - 1

SHOWN: Final = 63
"""Characters of a wrong name or number in the text of a refusal."""


def check_name(name: object, what: str, *, empty: bool = False) -> None:
    """Raise InvalidArgument, which begins with `what`, unless an object may have this name."""
    text = _text(name, what, MAX_NAME_BYTES)
    if not text and not empty:
        raise InvalidArgument(f"{what}: is empty")
    if without_line_ends(text) != text:
        raise InvalidArgument(f"{what}: '{printable(text, SHOWN)}' has a line end, which no declaration can name")


def check_key(key: object, what: str) -> None:
    """Raise InvalidArgument unless this is text that can be a routing or binding key."""
    _text(key, what, MAX_NAME_BYTES)


def check_table(table: object, what: str, depth: int = 0) -> None:
    """Raise InvalidArgument unless this is an object that a table can hold."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{what}: expected an object, got {_kind(table)}")
    for name, value in table.items():
        where = f"{what}.{printable(name, SHOWN)}" if isinstance(name, str) else what
        check_key(name, where)
        check_value(value, where, depth)


def check_value(value: object, what: str, depth: int = 0) -> None:
    """Raise InvalidArgument unless a table can hold the value. `depth`: tables and lists around it."""
    match value:
        case None | bool():
            return
        case str():
            _text(value, what)
        case int():
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                raise InvalidArgument(f"{what}: {printable(_digits(value), SHOWN)} does not fit into 64 bits")
        case float():
            if not isfinite(value):
                raise InvalidArgument(f"{what}: {value} is no number of JSON")
        case Mapping() | list() | tuple():
            if depth >= MAX_TABLE_DEPTH:
                raise InvalidArgument(f"{what}: nested more than {MAX_TABLE_DEPTH} deep")
            if isinstance(value, Mapping):
                check_table(value, what, depth + 1)
            else:
                for number, item in enumerate(value):
                    check_value(item, f"{what}[{number}]", depth + 1)
        case bytes() | bytearray() | memoryview() | Decimal() | datetime():
            return
        case _:
            raise InvalidArgument(f"{what}: {_kind(value)} is no value of JSON")


def _text(value: object, what: str, most: int | None = None) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: expected a string, got {_kind(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what}: '{printable(value, SHOWN)}' has no UTF-8 form") from None
    if most is not None and size > most:
        raise InvalidArgument(f"{what}: '{printable(value, SHOWN)}' has {size} bytes, and may have {most}")
    return value


def _digits(value: int) -> str:
    """The number as text; Python refuses to write thousands of digits."""
    return hex(value) if value.bit_length() > 512 else str(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
    return type(value).__name__
