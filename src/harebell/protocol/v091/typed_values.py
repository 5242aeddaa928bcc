"""Values of a field table that remember their type on the wire, where it is not the one that Python's type means.

An int is written as I, or as l when it needs 64 bits; a float as d; bytes as x. A table that was read may hold the same
values in other types: a Java client writes a Long as l however small it is, and casts what it gets to Long. So the
reader gives such a value as one of these classes, and the writer writes it as it was: a table that is read, changed in
one entry and written again has all its other entries byte for byte. They are ints, floats and bytes in every other
respect; arithmetic with them gives plain ones. A program gives one where the receiver expects that type.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final, TypeAlias

__all__ = [
    "TYPED",
    "FarSeconds",
    "Float32",
    "Int8",
    "Int16",
    "Int64",
    "Int64L",
    "LongString",
    "TypedNumber",
    "UInt8",
    "UInt16",
    "UInt32",
]


class FarSeconds(int):
    """A timestamp in seconds that no datetime can hold; it is written as the timestamp that it was read as."""


class Int8(int):
    """An integer of 8 bits, type b."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"b"
    packing: ClassVar[Struct] = Struct(">b")


class UInt8(int):
    """An unsigned integer of 8 bits, type B."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"B"
    packing: ClassVar[Struct] = Struct(">B")


class Int16(int):
    """An integer of 16 bits, type s."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"s"
    packing: ClassVar[Struct] = Struct(">h")


class UInt16(int):
    """An unsigned integer of 16 bits, type u."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"u"
    packing: ClassVar[Struct] = Struct(">H")


class UInt32(int):
    """An unsigned integer of 32 bits, type i."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"i"
    packing: ClassVar[Struct] = Struct(">I")


class Int64(int):
    """An integer of 64 bits, type l, also where 32 bits would hold it."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"l"
    packing: ClassVar[Struct] = Struct(">q")


class Int64L(int):
    """An integer of 64 bits under the specification's letter L, which RabbitMQ does not know."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"L"
    packing: ClassVar[Struct] = Struct(">q")


class Float32(float):
    """A number of 32 bits with a fraction, type f."""

    __slots__ = ()
    letter: ClassVar[bytes] = b"f"
    packing: ClassVar[Struct] = Struct(">f")


class LongString(bytes):
    """A long string, type S, that is not UTF-8."""

    __slots__ = ()


TypedNumber: TypeAlias = "type[Int8 | UInt8 | Int16 | UInt16 | UInt32 | Int64 | Int64L | Float32]"

TYPED: Final[tuple[TypedNumber, ...]] = (Int8, UInt8, Int16, UInt16, UInt32, Int64, Int64L, Float32)
