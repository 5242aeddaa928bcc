"""The field types of AMQP 0-9-1: short and long strings, timestamps, and tables with RabbitMQ's type letters.

Readers take (data, at) and give (value, next at). On malformed bytes they raise ValueError, IndexError or
struct.error, which `codec` turns into a protocol error once, at its edge. Writers raise LocalProtocolError for
what the wire cannot hold.

Type letters are RabbitMQ's, which differ from the specification's (its errata): t bool; b, B, s, u, I, i, l int8,
uint8, int16, uint16, int32, uint32, int64 (L read as int64 too); f, d float, double; D decimal; S long string;
A array; T timestamp in seconds; F table; V void; x byte array. A value whose type is not the one that its Python type
is written as is read as one of the classes of `typed_values`: writing a table that was read gives the same bytes again,
except that a key that came twice is there once, and that every true bool is 1.

A short string is text in UTF-8. Bytes that are not UTF-8 survive a round trip as surrogate escapes; `client_text` says
where a client may send them. A long string in a table is str when it is UTF-8 and bytes when it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from struct import Struct, error as StructError
from typing import Any, Final, TypeAlias

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import LocalProtocolError
from harebell.protocol.v091.typed_values import TYPED, FarSeconds, Int64, LongString, TypedNumber

__all__ = ["FieldValue", "Table", "TableLike", "Timestamp", "read_table", "write_table"]

FieldValue: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | datetime | list[FieldValue] | dict[str, FieldValue] | None"
)
Table: TypeAlias = "dict[str, FieldValue]"
# A table that a caller gives: any mapping. Its values are checked when it is written, because for a type checker no
# dict[str, int] is a dict[str, FieldValue].
TableLike: TypeAlias = Mapping[str, object]
Timestamp: TypeAlias = datetime | int

KEYS_REMEMBERED: Final = 1024  # keys of tables, ready for the wire: 256 bytes each at most

_B, _I, _i, _Q, _q, _d = Struct(">B"), Struct(">I"), Struct(">i"), Struct(">Q"), Struct(">q"), Struct(">d")


_EPOCH = datetime.fromtimestamp(0, UTC)
_SECOND = timedelta(seconds=1)


def check_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after the last field" if at < len(data) else "fields end too early")


def read_shortstr(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    if end > len(data):
        raise ValueError("short string ends too early")
    return data[at + 1 : end].decode("utf-8", "surrogateescape"), end


def write_shortstr(value: str, name: str) -> bytes:
    raw = _utf8(value, name)
    if len(raw) > 255:
        raise LocalProtocolError(f"{name} is {len(raw)} bytes long; a short string holds at most 255")
    return _B.pack(len(raw)) + raw


def _utf8(value: str, name: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{name} {value!r} has no UTF-8 form: {error.reason}") from None


def read_longstr(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + _I.unpack_from(data, at)[0]
    if end > len(data):
        raise ValueError("long string ends too early")
    return data[start:end], end


def write_longstr(value: bytes) -> bytes:
    return _I.pack(len(value)) + value


def write_octet(value: int, name: str) -> bytes:
    if not 0 <= value <= 255:
        raise LocalProtocolError(f"{name} is {value}; an octet holds 0 to 255")
    return _B.pack(value)


def read_timestamp(data: bytes, at: int) -> tuple[Timestamp, int]:
    seconds = _Q.unpack_from(data, at)[0]
    try:
        return datetime.fromtimestamp(seconds, UTC), at + 8
    except (ValueError, OverflowError, OSError):
        return FarSeconds(seconds), at + 8  # some publishers send milliseconds


def write_timestamp(value: Timestamp) -> bytes:
    if isinstance(value, int):
        seconds = value
    elif value.tzinfo is None:
        raise LocalProtocolError(f"timestamp {value!r} has no time zone: use datetime.now(UTC) or astimezone()")
    else:
        seconds = (value - _EPOCH) // _SECOND
    if not 0 <= seconds < 1 << 64:
        raise LocalProtocolError(f"timestamp {value!r} is outside of 0 to 2**64 - 1 seconds")
    return _Q.pack(seconds)


def read_table(data: bytes, at: int, depth: int = 0) -> tuple[Table, int]:
    if depth > MAX_TABLE_DEPTH:
        raise ValueError(f"tables nested more than {MAX_TABLE_DEPTH} deep")
    end = at + 4 + _I.unpack_from(data, at)[0]
    if end > len(data):
        raise ValueError("table ends too early")
    at += 4
    table: Table = {}
    while at < end:
        name, at = read_shortstr(data, at)
        table[name], at = _read_value(data, at, depth)
    if at != end:
        raise ValueError("table entry runs past the table's end")
    return table, at


def write_table(table: TableLike | None, depth: int = 0) -> bytes:
    if depth > MAX_TABLE_DEPTH:
        raise LocalProtocolError(f"tables nested more than {MAX_TABLE_DEPTH} deep")
    if not table:
        return b"\0\0\0\0"
    pieces = []
    for name, value in table.items():
        pieces.append(_write_key(name))
        pieces.append(_write_value(value, depth))
    raw = b"".join(pieces)
    return _I.pack(len(raw)) + raw


@lru_cache(KEYS_REMEMBERED)
def _write_key(name: str) -> bytes:
    return write_shortstr(name, "table key")


def _read_value(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    letter = data[at]
    at += 1
    if letter == 0x53:  # S, first because most values are strings
        raw, at = read_longstr(data, at)
        try:
            return raw.decode(), at
        except UnicodeDecodeError:
            return LongString(raw), at
    if letter == 0x74:  # t
        return data[at] != 0, at + 1
    if letter == 0x49:  # I
        whole: int = _i.unpack_from(data, at)[0]
        return whole, at + 4
    if letter == 0x64:  # d
        real: float = _d.unpack_from(data, at)[0]
        return real, at + 8
    typed = _TYPED.get(letter)
    if typed is not None:
        number = typed.packing
        value: int | float = number.unpack_from(data, at)[0]
        if typed is Int64 and not -0x8000_0000 <= value < 0x8000_0000:
            return value, at + 8  # written as l in any case
        return typed(value), at + number.size
    if letter == 0x54:  # T
        return read_timestamp(data, at)
    if letter == 0x46:  # F
        return read_table(data, at, depth + 1)
    if letter == 0x41:  # A
        return _read_array(data, at, depth + 1)
    if letter == 0x56:  # V
        return None, at
    if letter == 0x78:  # x
        return read_longstr(data, at)
    if letter == 0x44:  # D
        scale, unscaled = data[at], _i.unpack_from(data, at + 1)[0]
        # from a text, which is exact whatever the caller's decimal context
        return Decimal(f"{unscaled}E-{scale}"), at + 5
    raise ValueError(f"unknown field type {chr(letter)!r}")


_TYPED: Final[dict[int, TypedNumber]] = {ord(kind.letter): kind for kind in TYPED}


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[FieldValue], int]:
    if depth > MAX_TABLE_DEPTH:
        raise ValueError(f"arrays nested more than {MAX_TABLE_DEPTH} deep")
    end = at + 4 + _I.unpack_from(data, at)[0]
    if end > len(data):
        raise ValueError("array ends too early")
    at += 4
    values: list[FieldValue] = []
    while at < end:
        value, at = _read_value(data, at, depth)
        values.append(value)
    if at != end:
        raise ValueError("array element runs past the array's end")
    return values, at


def _write_value(value: object, depth: int) -> bytes:
    if isinstance(value, str):
        raw = _utf8(value, "table value")
        return b"S" + _I.pack(len(raw)) + raw
    if isinstance(value, bool):  # before int: True is an int too
        return b"t\1" if value else b"t\0"
    if type(value) in _WRITTEN_AS_TYPED:
        return _write_typed(value)
    if isinstance(value, FarSeconds):
        return b"T" + write_timestamp(value)
    if isinstance(value, int):
        if -0x8000_0000 <= value < 0x8000_0000:
            return b"I" + _i.pack(value)
        if -(1 << 63) <= value < 1 << 63:
            return b"l" + _q.pack(value)
        raise LocalProtocolError(f"{value} does not fit into 64 bits")
    if value is None:
        return b"V"
    if isinstance(value, float):
        return b"d" + _d.pack(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return (b"S" if isinstance(value, LongString) else b"x") + write_longstr(bytes(value))
    if isinstance(value, datetime):
        return b"T" + write_timestamp(value)
    if isinstance(value, dict):
        return b"F" + write_table(value, depth + 1)
    if isinstance(value, list | tuple):
        if depth >= MAX_TABLE_DEPTH:
            raise LocalProtocolError(f"arrays nested more than {MAX_TABLE_DEPTH} deep")
        raw = b"".join([_write_value(element, depth + 1) for element in value])
        return b"A" + _I.pack(len(raw)) + raw
    if isinstance(value, Decimal):
        return b"D" + _write_decimal(value)
    raise LocalProtocolError(
        f"{type(value).__name__} {value!r} has no AMQP field type; use str, bytes, int, float, "
        "bool, None, Decimal, datetime, list or dict"
    )


def _write_typed(value: Any) -> bytes:
    try:
        raw: bytes = value.letter + value.packing.pack(value)
    except (StructError, OverflowError):
        raise LocalProtocolError(f"{value} does not fit {type(value).__name__}") from None
    return raw


_WRITTEN_AS_TYPED: Final = frozenset(TYPED)


def _write_decimal(value: Decimal) -> bytes:
    sign, digits, power = value.as_tuple()
    if isinstance(power, str):
        raise LocalProtocolError(f"{value} is not a finite decimal")
    exponent = int(power)
    # by its digits: arithmetic would round to the caller's decimal context, or build a number of 10**9 digits
    unscaled = int("".join(map(str, digits[:11])))
    if unscaled == 0:
        exponent = min(max(exponent, -255), 0)
    if len(digits) > 10 or not -255 <= exponent <= 9:
        raise LocalProtocolError(_DECIMAL_MISFIT.format(value))
    unscaled = (-unscaled if sign else unscaled) * 10 ** max(0, exponent)
    if not -0x8000_0000 <= unscaled < 0x8000_0000:
        raise LocalProtocolError(_DECIMAL_MISFIT.format(value))
    return _B.pack(max(0, -exponent)) + _i.pack(unscaled)


_DECIMAL_MISFIT: Final = "{} does not fit an AMQP decimal (8-bit scale, 32-bit digits)"


# -- checking without decoding -----------------------------------------------------------------------------------

# bytes of a value after its type letter
_WIDTHS: Final = {letter: kind.packing.size for letter, kind in _TYPED.items()} | {
    0x49: 4, 0x64: 8, 0x74: 1, 0x44: 5, 0x54: 8, 0x56: 0,
}  # fmt: skip


def skip_table(data: bytes, at: int, depth: int = 0, named: bool = True) -> int:
    """The end of the table (or, without names, the array) at `at`; raises where reading it would raise.

    The loop needs no check for overruns: `at` only grows, so that after an overrun it differs from `end`.
    """
    if depth > MAX_TABLE_DEPTH:
        raise ValueError("nested too deep")
    end = at + 4 + _I.unpack_from(data, at)[0]
    if end > len(data):
        raise ValueError("ends too early")
    at += 4
    while at < end:
        if named:
            at += 1 + data[at]
        letter = data[at]
        at += 1
        if letter == 0x53 or letter == 0x78:  # S, x
            at += 4 + _I.unpack_from(data, at)[0]
        elif letter == 0x46 or letter == 0x41:  # F, A
            at = skip_table(data, at, depth + 1, letter == 0x46)
        else:
            width = _WIDTHS.get(letter)
            if width is None:
                raise ValueError("unknown field type")
            at += width
    if at != end:
        raise ValueError("runs past its end")
    return at


def skip_value(data: bytes, at: int) -> int:
    """The end of the value whose type letter is at `at`, in a table that `skip_table` has checked."""
    letter = data[at]
    if letter == 0x53 or letter == 0x78 or letter == 0x46 or letter == 0x41:  # S, x, F, A
        return at + 5 + int(_I.unpack_from(data, at + 1)[0])
    return at + 1 + _WIDTHS[letter]


def read_value(data: bytes, at: int) -> FieldValue:
    """The value whose type letter is at `at`, in a table that `skip_table` has checked."""
    return _read_value(data, at, 0)[0]
