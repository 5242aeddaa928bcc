"""The types of AMQP 0-10: strings, binaries, times, sets of command ids, and maps, lists and arrays of any of them.

Readers take (data, at) and give (value, next at). On malformed bytes they raise ValueError, IndexError or struct.error,
or give a next position behind the end of the data, which the caller checks once for all fields (`check_end`). `codec`
makes protocol errors of these, at its edge. Writers raise LocalProtocolError for what the wire cannot hold.

- A map is its size, a count, and entries of str8 key, type code, value; a list is the same without keys; an array is
  its size, one type code, a count, and values. As Qpid's peers do, an empty one may come as size 0 without a count.
- A type that the specification does not name is read as UnknownValue: the high digit of its code tells its length.
- Text is UTF-8. Bytes that are not UTF-8 survive a round trip as surrogate escapes.
- A set of command ids is a tuple of (lowest, highest) pairs of 32-bit numbers, as on the wire; `serial` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct, error as StructError
from typing import Any, Final, TypeAlias
from uuid import UUID

from harebell.defaults import MAX_TABLE_DEPTH
from harebell.errors import LocalProtocolError
from harebell.protocol.v010.typed_values import (
    NUMBERS,
    TEXTS,
    Array,
    Bit,
    Decimal64,
    FixedBinary,
    StructValue,
    UInt64,
    UnknownValue,
    Vbin8,
    Vbin32,
)

__all__ = ["FieldValue", "Map", "MapLike", "Ranges", "Timestamp", "read_map", "write_map"]

FieldValue: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | datetime | UUID | list[FieldValue] | Array | dict[str, FieldValue]"
    " | StructValue | UnknownValue | Bit | None"
)
Map: TypeAlias = "dict[str, FieldValue]"
MapLike: TypeAlias = Mapping[str, object]
Ranges: TypeAlias = "tuple[tuple[int, int], ...]"
Timestamp: TypeAlias = datetime | int

MAX_RANGES: Final = 8191  # of a sequence-set: its size has 16 bits
MAX_WEIGHTLESS: Final = 1024  # values without bytes in one array: their count costs the sender nothing

_B, _H, _I, _Q = Struct(">B"), Struct(">H"), Struct(">I"), Struct(">Q")
_q, _d = Struct(">q"), Struct(">d")
_II = Struct(">II")
_EPOCH = datetime.fromtimestamp(0, UTC)
_SECOND = timedelta(seconds=1)
_HEAD: Final = {1: _B, 2: _H, 4: _I}


def check_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError(f"{len(data) - at} octets after the last field" if at < len(data) else "ends too early")


# -- fields of commands and structs ----------------------------------------------------------------------------------


def read_str8(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode("utf-8", "surrogateescape"), end


def read_str16(data: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + _H.unpack_from(data, at)[0]
    return data[at + 2 : end].decode("utf-8", "surrogateescape"), end


def read_vbin8(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end], end


def read_vbin16(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + _H.unpack_from(data, at)[0]
    return data[at + 2 : end], end


def read_vbin32(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + _I.unpack_from(data, at)[0]
    return data[at + 4 : end], end


def read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return UUID(bytes=data[at : at + 16]), at + 16


class FarSeconds(int):
    """A time in seconds that no datetime can hold; it is written as it was read."""

    __slots__ = ()


def read_datetime(data: bytes, at: int) -> tuple[Timestamp, int]:
    seconds = _Q.unpack_from(data, at)[0]
    try:
        return datetime.fromtimestamp(seconds, UTC), at + 8
    except (ValueError, OverflowError, OSError):
        return FarSeconds(seconds), at + 8


def read_sequence_set(data: bytes, at: int) -> tuple[Ranges, int]:
    end = at + 2 + _H.unpack_from(data, at)[0]
    return tuple(_II.iter_unpack(data[at + 2 : end])), end


def read_struct32(data: bytes, at: int) -> tuple[StructValue, int]:
    end = at + 4 + _I.unpack_from(data, at)[0]
    if end < at + 6:
        raise ValueError("a struct has no code")
    return StructValue(_H.unpack_from(data, at + 4)[0], data[at + 6 : end]), end


def write_str8(value: str, name: str) -> bytes:
    raw = _utf8(value, name)
    if len(raw) > 255:
        raise _too_long(name, len(raw), "a str8", 255)
    return _B.pack(len(raw)) + raw


def write_str16(value: str, name: str) -> bytes:
    raw = _utf8(value, name)
    if len(raw) > 65_535:
        raise _too_long(name, len(raw), "a str16", 65_535)
    return _H.pack(len(raw)) + raw


def write_vbin8(value: bytes, name: str) -> bytes:
    if len(value) > 255:
        raise _too_long(name, len(value), "a vbin8", 255)
    return _B.pack(len(value)) + value


def write_vbin16(value: bytes, name: str) -> bytes:
    if len(value) > 65_535:
        raise _too_long(name, len(value), "a vbin16", 65_535)
    return _H.pack(len(value)) + value


def write_vbin32(value: bytes, name: str) -> bytes:
    return _I.pack(len(value)) + value


def write_uuid(value: UUID, name: str) -> bytes:
    return value.bytes


def write_number(value: int, packing: Struct, name: str) -> bytes:
    try:
        return packing.pack(value)
    except StructError:
        raise LocalProtocolError(f"{name} is {value!r}; it holds 0 to 2**{8 * packing.size} - 1") from None


def write_datetime(value: Timestamp, name: str) -> bytes:
    if isinstance(value, int):
        seconds = value
    elif value.tzinfo is None:
        raise LocalProtocolError(f"{name} {value!r} has no time zone: use datetime.now(UTC) or astimezone()")
    else:
        seconds = (value - _EPOCH) // _SECOND
    if not 0 <= seconds < 1 << 64:
        raise LocalProtocolError(f"{name} {value!r} is outside of 0 to 2**64 - 1 seconds")
    return _Q.pack(seconds)


def write_sequence_set(value: Ranges, name: str) -> bytes:
    if len(value) == 1:
        return b"\0\x08" + _II.pack(*value[0])
    if len(value) > MAX_RANGES:
        raise LocalProtocolError(f"{name} has {len(value)} ranges; a sequence-set holds {MAX_RANGES}: send several")
    return _H.pack(8 * len(value)) + b"".join([_II.pack(low, high) for low, high in value])


def write_struct32(value: StructValue, name: str) -> bytes:
    return _I.pack(2 + len(value.raw)) + _H.pack(value.code) + value.raw


def _utf8(value: str, name: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{name} {value!r} has no UTF-8 form: {error.reason}") from None


def _too_long(name: str, size: int, kind: str, most: int) -> LocalProtocolError:
    return LocalProtocolError(f"{name} is {size} bytes long; {kind} holds at most {most}")


# -- maps, lists, arrays ---------------------------------------------------------------------------------------------


def read_map(data: bytes, at: int, depth: int = 0) -> tuple[Map, int]:
    at, end, count = _open(data, at, depth, "map")
    found: Map = {}
    for _ in range(count):
        if at >= end:
            raise ValueError(f"a map of {count} entries has fewer")
        stop = at + 1 + data[at]
        key = data[at + 1 : stop].decode("utf-8", "surrogateescape")
        found[key], at = _READERS[data[stop]](data, stop + 1, depth)
    if at != end:
        raise ValueError("the entries of a map do not end where the map does")
    return found, at


def read_list(data: bytes, at: int, depth: int = 0) -> tuple[list[FieldValue], int]:
    at, end, count = _open(data, at, depth, "list")
    found: list[FieldValue] = []
    for _ in range(count):
        if at >= end:
            raise ValueError(f"a list of {count} values has fewer")
        value, at = _READERS[data[at]](data, at + 1, depth)
        found.append(value)
    if at != end:
        raise ValueError("the values of a list do not end where the list does")
    return found, at


def read_array(data: bytes, at: int, depth: int = 0) -> tuple[Array, int]:
    start = at + 4
    at, end, count = _open(data, at, depth, "array", 1)
    if not count:
        if at != end:
            raise ValueError("an array without values has octets")
        return Array((), data[start] if end > start else None), end
    code = data[start]
    if code >= 0xF0 and count > MAX_WEIGHTLESS:
        raise ValueError(f"an array of {count} values without octets; at most {MAX_WEIGHTLESS}")
    read, found = _READERS[code], Array((), code)
    for _ in range(count):
        value, at = read(data, at, depth)
        if at > end:
            raise ValueError(f"an array of {count} values has fewer")
        found.append(value)
    if at != end:
        raise ValueError("the values of an array do not end where the array does")
    return found, at


def _open(data: bytes, at: int, depth: int, kind: str, before: int = 0) -> tuple[int, int, int]:
    """(position of the first entry, end, count); `before` octets stand between the size and the count."""
    if depth > MAX_TABLE_DEPTH:
        raise ValueError(f"maps, lists and arrays nested more than {MAX_TABLE_DEPTH} deep")
    size = _I.unpack_from(data, at)[0]
    at += 4
    end = at + size
    if end > len(data):
        raise ValueError(f"a {kind} of {size} octets ends too early")
    if not size:
        return at, end, 0
    at += before + 4
    if at > end:
        raise ValueError(f"a {kind} of {size} octets has no count")
    return at, end, _I.unpack_from(data, at - 4)[0]


def write_map(value: MapLike | None, name: str = "a map", depth: int = 0) -> bytes:
    if not value:
        return b"\0\0\0\4\0\0\0\0"
    _check_depth(depth)
    pieces = []
    for key, entry in value.items():
        code, raw = _written(entry, depth + 1)
        pieces.append(b"%b%c%b" % (write_str8(key, "a map's key"), code, raw))
    body = b"".join(pieces)
    return b"%b%b%b" % (_I.pack(4 + len(body)), _I.pack(len(value)), body)


def write_list(value: Iterable[object], depth: int = 0) -> bytes:
    _check_depth(depth)
    pieces = [b"%c%b" % _written(entry, depth + 1) for entry in value]
    body = b"".join(pieces)
    return b"%b%b%b" % (_I.pack(4 + len(body)), _I.pack(len(pieces)), body)


def write_array(value: Iterable[object], name: str = "an array", depth: int = 0, default: int = 0xF0) -> bytes:
    """An array of values that have one type; `default` is the type of an empty one without a code."""
    _check_depth(depth)
    code = value.code if isinstance(value, Array) else None
    pieces = []
    for entry in value:
        own, raw = _written(entry, depth + 1)
        if code is None:
            code = own
        if own != code:
            raise LocalProtocolError(f"{name} has values of types {code:#04x} and {own:#04x}; an array has one")
        pieces.append(raw)
    body = b"".join(pieces)
    return b"%b%c%b%b" % (_I.pack(5 + len(body)), default if code is None else code, _I.pack(len(pieces)), body)


def write_str16_array(value: Iterable[object], name: str) -> bytes:
    return write_array(value, name, 0, 0x95)


def _check_depth(depth: int) -> None:
    if depth > MAX_TABLE_DEPTH:
        raise LocalProtocolError(f"maps, lists and arrays nested more than {MAX_TABLE_DEPTH} deep")


# -- values with a type code -----------------------------------------------------------------------------------------

_Reader: TypeAlias = "Callable[[bytes, int, int], tuple[FieldValue, int]]"


def _number(kind: Any, packing: Struct) -> _Reader:
    unpack, size = packing.unpack_from, packing.size

    def read(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
        return kind(unpack(data, at)[0]), at + size

    return read


def _text(kind: Any, width: int, encoding: str, errors: str) -> _Reader:
    unpack = _HEAD[width].unpack_from

    def read(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
        start = at + width
        end = start + unpack(data, at)[0]
        return kind(data[start:end].decode(encoding, errors)), end

    return read


def _binary(kind: Any, width: int) -> _Reader:
    unpack = _HEAD[width].unpack_from

    def read(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
        start = at + width
        end = start + unpack(data, at)[0]
        return kind(data[start:end]), end

    return read


def _fixed(size: int) -> _Reader:
    def read(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
        return FixedBinary(data[at : at + size]), at + size

    return read


def _unknown(code: int, width: int, size: int) -> _Reader:
    def read(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
        end = at + width + (int(_HEAD[width].unpack_from(data, at)[0]) if width else size)
        return UnknownValue(code, data[at:end]), end

    return read


def _illegal(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    raise ValueError(f"type code {data[at - 1]:#04x} has no known length")


def _read_uint64(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    value = _Q.unpack_from(data, at)[0]
    return (UInt64(value) if value < 1 << 63 else value), at + 8


def _read_vbin32(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    raw, end = read_vbin32(data, at)
    return (Vbin32(raw) if len(raw) <= 65_535 else raw), end


def _read_decimal32(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    # from a text, which is exact whatever the caller's decimal context
    return Decimal(f"{int.from_bytes(data[at + 1 : at + 5], 'big', signed=True)}E-{data[at]}"), at + 5


def _read_decimal64(data: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    return Decimal64(f"{int.from_bytes(data[at + 1 : at + 9], 'big', signed=True)}E-{data[at]}"), at + 9


_FIXED_SIZES: Final = {
    0x00: 1, 0x10: 2, 0x20: 4, 0x30: 8, 0x40: 16, 0x50: 32, 0x60: 64, 0x70: 128, 0xC0: 5, 0xD0: 9,
}  # fmt: skip
_FIXED_CODES: Final = {size: code for code, size in _FIXED_SIZES.items()}
_LENGTHS: Final = {0x8: 1, 0x9: 2, 0xA: 4}  # octets of the length before a value, by the high digit of the code
_SIZES: Final = {high: 1 << high for high in range(8)} | {0xC: 5, 0xD: 9, 0xF: 0}


def _readers() -> list[_Reader]:
    table: list[_Reader] = []
    for code in range(256):
        high = code >> 4
        if high in _LENGTHS:
            table.append(_unknown(code, _LENGTHS[high], 0))
        else:
            table.append(_unknown(code, 0, _SIZES[high]) if high in _SIZES else _illegal)
    for number in NUMBERS:
        table[number.code] = _number(number, number.packing)
    for text in TEXTS:
        table[text.code] = _text(text, text.width, *text.coding)
    for code, size in _FIXED_SIZES.items():
        table[code] = _fixed(size)
    table[0x08] = lambda data, at, depth: (data[at] != 0, at + 1)
    table[0x31] = _number(int, _q)
    table[0x32] = _read_uint64
    table[0x33] = _number(float, _d)
    table[0x38] = lambda data, at, depth: read_datetime(data, at)
    table[0x48] = lambda data, at, depth: read_uuid(data, at)
    table[0x80] = _binary(Vbin8, 1)
    table[0x90] = _binary(bytes, 2)
    table[0x95] = _text(str, 2, "utf-8", "surrogateescape")
    table[0xA0] = _read_vbin32
    table[0xA8] = lambda data, at, depth: read_map(data, at, depth + 1)
    table[0xA9] = lambda data, at, depth: read_list(data, at, depth + 1)
    table[0xAA] = lambda data, at, depth: read_array(data, at, depth + 1)
    table[0xAB] = lambda data, at, depth: read_struct32(data, at)
    table[0xC8] = _read_decimal32
    table[0xD8] = _read_decimal64
    table[0xF0] = lambda data, at, depth: (None, at)
    table[0xF1] = lambda data, at, depth: (Bit(), at)
    return table


_READERS: Final = _readers()
_NUMBERS: Final = frozenset(NUMBERS)
_TEXTS: Final = frozenset(TEXTS)


def _written(value: object, depth: int) -> tuple[int, bytes]:
    """The type code of a value, and its bytes."""
    kind: Any = type(value)
    if kind in _NUMBERS:
        try:
            return kind.code, kind.packing.pack(value)
        except (StructError, OverflowError):
            raise LocalProtocolError(f"{value!r} does not fit {kind.__name__}") from None
    if kind in _TEXTS:
        return kind.code, _text_of(kind, value)
    if isinstance(value, str):
        raw = _utf8(value, "a value")
        return (0x95, _H.pack(len(raw)) + raw) if len(raw) <= 65_535 else (0xA0, _I.pack(len(raw)) + raw)
    if isinstance(value, bool):  # before int: True is an int too
        return 0x08, b"\1" if value else b"\0"
    if isinstance(value, FarSeconds):
        return 0x38, _Q.pack(value)
    if isinstance(value, int):
        if -1 << 63 <= value < 1 << 63:
            return 0x31, _q.pack(value)
        if 0 <= value < 1 << 64:
            return 0x32, _Q.pack(value)
        raise LocalProtocolError(f"{value} does not fit into 64 bits")
    if value is None:
        return 0xF0, b""
    if isinstance(value, float):
        return 0x33, _d.pack(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _written_bytes(bytes(value) if not isinstance(value, bytes) else value)
    if isinstance(value, Mapping):
        return 0xA8, write_map(value, "a map", depth)
    if isinstance(value, Array):
        return 0xAA, write_array(value, "an array", depth)
    if isinstance(value, list | tuple):
        return 0xA9, write_list(value, depth)
    return _written_rarely(value)


def _text_of(kind: Any, value: object) -> bytes:
    try:
        raw = str.encode(str(value), *kind.coding)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{value!r} has no form in {kind.coding[0]}: {error.reason}") from None
    if len(raw) >= 1 << 8 * kind.width:
        raise _too_long("a value", len(raw), kind.__name__, (1 << 8 * kind.width) - 1)
    return bytes(_HEAD[kind.width].pack(len(raw)) + raw)


def _written_bytes(value: bytes) -> tuple[int, bytes]:
    if isinstance(value, Vbin8):
        return 0x80, write_vbin8(value, "a value")
    if isinstance(value, FixedBinary):
        code = _FIXED_CODES.get(len(value))
        if code is None:
            raise LocalProtocolError(f"no fixed binary has {len(value)} octets; {sorted(_FIXED_CODES)} are possible")
        return code, bytes(value)
    if isinstance(value, Vbin32) or len(value) > 65_535:
        return 0xA0, _I.pack(len(value)) + value
    return 0x90, _H.pack(len(value)) + value


def _written_rarely(value: object) -> tuple[int, bytes]:
    if isinstance(value, datetime):
        return 0x38, write_datetime(value, "a value")
    if isinstance(value, UUID):
        return 0x48, value.bytes
    if isinstance(value, Decimal):
        return _written_decimal(value)
    if isinstance(value, StructValue):
        return 0xAB, write_struct32(value, "a value")
    if isinstance(value, UnknownValue):
        return value.code, value.raw
    if isinstance(value, Bit):
        return 0xF1, b""
    raise LocalProtocolError(
        f"{type(value).__name__} {value!r} has no AMQP type; use str, bytes, int, float, bool, None, Decimal, "
        "datetime, UUID, list or dict"
    )


def _written_decimal(value: Decimal) -> tuple[int, bytes]:
    sign, digits, power = value.as_tuple()
    if isinstance(power, str):
        raise LocalProtocolError(f"{value} is not a finite decimal")
    exponent = int(power)
    # by its digits: arithmetic would round to the caller's decimal context
    unscaled = int("".join(map(str, digits[:20])))
    if not unscaled:
        exponent = min(max(exponent, -255), 0)
    if len(digits) <= 20 and -255 <= exponent <= 19:
        unscaled = (-unscaled if sign else unscaled) * 10 ** max(0, exponent)
        scale = _B.pack(max(0, -exponent))
        if -1 << 31 <= unscaled < 1 << 31 and not isinstance(value, Decimal64):
            return 0xC8, scale + unscaled.to_bytes(4, "big", signed=True)
        if -1 << 63 <= unscaled < 1 << 63:
            return 0xD8, scale + unscaled.to_bytes(8, "big", signed=True)
    raise LocalProtocolError(f"{value} does not fit an AMQP decimal (8-bit scale, 64-bit digits)")
