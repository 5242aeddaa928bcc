"""Values of AMQP 0-10's maps as values of 0-9-1's tables, and back.

What both dialects have keeps its type, width and sign. Where 0-9-1 has no such type the value is kept and its type is
not: `to_table` says so, because then the same bytes cannot come back.

    0-10                                        0-9-1           back
    int8 ... int32, uint8 ... uint32, int64     b s I, B u i, l the same
    float, double, boolean, void, datetime      f, d, t, V, T   the same
    str16, map, list, dec32, vbin16             S, F, A, D, x   the same; S over 65,535 bytes: vbin32
    str8, other texts; vbin8, vbin32, binN      S; x            str16; vbin16
    uuid, struct32, unknown types               x               vbin16
    char; array; bit                            S; A; t         str16; list; boolean
    uint64, dec64                               l, D, else S    int64, dec32, str16
    text that is not UTF-8                      S               vbin16
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from harebell.protocol.v010 import typed_values as t10, values as v10
from harebell.protocol.v010.values import Map
from harebell.protocol.v091 import FieldValue, Table, typed_values as t91

__all__ = ["to_map", "to_table", "utf8"]

MOST_INT64: Final = (1 << 63) - 1
_D_DIGITS: Final = 1 << 31  # what fits the digits of 0-9-1's decimals

_NUMBERS: Final[dict[type, Any]] = {  # those whose width and sign both dialects have
    t10.Int8: t91.Int8,
    t10.UInt8: t91.UInt8,
    t10.Int16: t91.Int16,
    t10.UInt16: t91.UInt16,
    t10.Int32: int,
    t10.UInt32: t91.UInt32,
    t10.Float32: t91.Float32,
    v10.FarSeconds: t91.FarSeconds,
}
_BACK: Final[dict[type, Any]] = {
    t91.Int8: t10.Int8,
    t91.UInt8: t10.UInt8,
    t91.Int16: t10.Int16,
    t91.UInt16: t10.UInt16,
    t91.UInt32: t10.UInt32,
    t91.Int64: int,
    t91.Int64L: int,
    t91.Float32: t10.Float32,
    t91.FarSeconds: v10.FarSeconds,
}


def utf8(value: str) -> bool:
    """Whether the text came as UTF-8: other bytes are surrogate escapes in it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_table(given: Mapping[str, object]) -> tuple[Table, bool]:
    """The map as a table, and whether `to_map` gives the same map, type by type."""
    convert = _ToTable()
    return convert.table(given), convert.exact


class _ToTable:
    """One conversion. `exact` until a value is met whose type 0-9-1 does not have."""

    def __init__(self) -> None:
        self.exact = True

    def table(self, given: Mapping[str, object]) -> Table:
        return {name: self._value(value) for name, value in given.items()}

    def _value(self, value: Any) -> FieldValue:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int:  # int64, and uint64 above its range
            return t91.Int64(value) if value <= MOST_INT64 else self._inexact(str(value))
        if kind in (bool, float, type(None), bytes, datetime):
            return value  # type: ignore[no-any-return]
        if kind is dict:
            return self.table(value)
        if kind is list:
            return [self._value(each) for each in value]
        number = _NUMBERS.get(kind)
        if number is not None:
            return number(value)  # type: ignore[no-any-return]
        if kind is Decimal:
            return value  # type: ignore[no-any-return]  # dec32
        return self._inexact(self._only_here(value))

    def _text(self, value: str) -> FieldValue:
        if utf8(value):
            return value
        return self._inexact(t91.LongString(value.encode("utf-8", "surrogateescape")))

    def _only_here(self, value: Any) -> FieldValue:
        """A value of a type that 0-9-1 does not have."""
        if isinstance(value, t10.UInt64):
            return t91.Int64(value)
        if isinstance(value, (t10.Char, t10.CharUtf32)):
            return chr(value) if value < 0x11_0000 and not 0xD800 <= value < 0xE000 else str(int(value))
        if isinstance(value, str):
            text = str(value)
            return text if utf8(text) else t91.LongString(text.encode("utf-8", "surrogatepass"))
        if isinstance(value, bytes):
            return bytes(value)
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, list):  # an array
            return [self._value(each) for each in value]
        if isinstance(value, Decimal):  # dec64
            digits = value.as_tuple()
            small = abs(int("".join(map(str, digits.digits)))) < _D_DIGITS
            return Decimal(value) if small else str(value)
        if isinstance(value, t10.StructValue):
            return value.code.to_bytes(2, "big") + value.raw
        if isinstance(value, t10.UnknownValue):
            return value.raw
        return True  # a bit

    def _inexact(self, value: FieldValue) -> FieldValue:
        self.exact = False
        return value


def to_map(table: Mapping[str, object]) -> Map:
    """The table as a map."""
    return {name: _to_v010(value) for name, value in table.items()}


def _to_v010(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return t10.Int32(value) if -0x8000_0000 <= value < 0x8000_0000 else value
    if isinstance(value, dict):
        return to_map(value)
    if isinstance(value, list):
        return [_to_v010(each) for each in value]
    back = _BACK.get(kind)
    if back is not None:
        return back(value)
    return bytes(value) if kind is t91.LongString else value
