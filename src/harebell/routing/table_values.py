"""The values of an AMQP table, as routing compares them and as RabbitMQ's error texts name them.

Rules:

- A table is a `Mapping[str, object]` whose values are what the codec decodes: None, bool, int, float, Decimal,
  str, bytes, datetime, list and dict. Any other object is an InvalidArgument.
- Equality follows RabbitMQ 4: integers of every width are one type, a bool is never an integer, an integer is
  never a float, a string is never a number. A long string and a byte array of the same octets are equal, and so
  are a timestamp and its seconds, because RabbitMQ compares values without their type letters.
- Values that remember their type on the wire (`protocol.v091.typed_values`) are equal to plain ones.
- `type_name` and `erlang_term` exist for error texts alone.

The module does not encode or decode, and knows no exchange.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from harebell.errors import InvalidArgument
from harebell.protocol.v091.typed_values import Float32, Int8, Int16, Int64, Int64L, LongString, UInt8, UInt16, UInt32

__all__ = ["Table", "canonical", "display", "erlang_term", "type_class", "type_name"]

Table = Mapping[str, object]

_TYPED_NAMES: Final[Mapping[type, str]] = {
    Int8: "byte",
    UInt8: "unsignedbyte",
    Int16: "short",
    UInt16: "unsignedshort",
    UInt32: "unsignedint",
    Int64: "long",
    Int64L: "long",
    Float32: "float",
    LongString: "longstr",
}
_INTEGERS: Final = frozenset({"byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long"})


def canonical(value: object) -> Hashable:
    """A hashable stand-in for a table value: two values are equal on the wire when their stand-ins are equal.

    Raises InvalidArgument for an object that no AMQP table can hold.
    """
    match value:
        case str():
            return ("octets", value.encode("utf-8", "surrogateescape"))
        case bool():
            return ("bool", value)
        case int():
            return ("int", int(value))
        case None:
            return ("void",)
        case float():
            return ("float", value if value == value else "nan")
        case bytes() | bytearray() | memoryview():
            return ("octets", bytes(value))
        case datetime():
            return ("int", _seconds(value))
        case Decimal():
            return ("decimal", *_decimal_parts(value))
        case Mapping():
            return ("table", tuple(sorted((key, canonical(item)) for key, item in value.items())))
        case Sequence():
            return ("array", tuple(canonical(item) for item in value))
    raise InvalidArgument(f"{type(value).__name__} is not a value of an AMQP table")


def type_name(value: object) -> str:
    """RabbitMQ's name of the value's type on the wire, e.g. "longstr"."""
    typed = _TYPED_NAMES.get(type(value))
    if typed is not None:
        return typed
    match value:
        case str():
            return "longstr"
        case bool():
            return "bool"
        case int():
            return "signedint" if -(2**31) <= value < 2**31 else "long"
        case None:
            return "void"
        case float():
            return "double"
        case bytes() | bytearray() | memoryview():
            return "binary"
        case datetime():
            return "timestamp"
        case Decimal():
            return "decimal"
        case Mapping():
            return "table"
        case Sequence():
            return "array"
    raise InvalidArgument(f"{type(value).__name__} is not a value of an AMQP table")


def type_class(value: object) -> str:
    """The type for the comparison of arguments: "int" for every integer, otherwise the type's own name."""
    name = type_name(value)
    return "int" if name in _INTEGERS else "double" if name == "float" else name


def display(value: object) -> str:
    """The value as "received '...' but current is '...'" shows it: strings bare, the rest as Erlang terms."""
    return value if isinstance(value, str) else erlang_term(value)


def erlang_term(value: object) -> str:
    """The value as RabbitMQ prints it inside an error text, e.g. `<<"zz">>` for the string zz."""
    match value:
        case str():
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            if not value:
                return "<<>>"
            return f'<<"{quoted}">>' if value.isascii() else f'<<"{quoted}"/utf8>>'
        case bool():
            return "true" if value else "false"
        case None:
            return "undefined"
        case bytes() | bytearray() | memoryview():
            octets = bytes(value)
            if octets.isascii() and octets.decode("ascii").isprintable():
                return erlang_term(octets.decode("ascii"))
            return f"<<{','.join(str(octet) for octet in octets)}>>"
        case datetime():
            return str(_seconds(value))
        case Decimal():
            scale, unscaled = _decimal_parts(value)
            return f"{{{scale},{unscaled}}}"
        case Mapping():
            rows = (f"{{{erlang_term(key)},{type_name(item)},{erlang_term(item)}}}" for key, item in value.items())
            return f"[{','.join(rows)}]"
        case Sequence():
            return f"[{','.join(f'{{{type_name(item)},{erlang_term(item)}}}' for item in value)}]"
    return str(value)


def _seconds(value: datetime) -> int:
    """Seconds since the epoch; a datetime without a zone is taken as UTC, whatever zone the machine is in."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp())


def _decimal_parts(value: Decimal) -> tuple[int, int]:
    """The wire's (scale, unscaled integer); an infinity or NaN has none and is an InvalidArgument."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidArgument(f"decimal {value} has no AMQP form")
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return (-exponent, unscaled) if exponent <= 0 else (0, unscaled * 10**exponent)
