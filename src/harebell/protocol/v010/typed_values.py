"""Values of a map, a list or an array that remember their type on the wire, where it is not Python's own.

As in every Qpid client an int is written as int64, a float as double, a str as str16 and bytes as vbin16. A value that
came in another type is read as one of these classes and written as it was, so that a map which is read and written
again has the same bytes. They are ints, floats, strs and bytes in every other respect; arithmetic gives plain ones. A
program gives one where the receiver expects that type.
"""

from __future__ import annotations

from decimal import Decimal
from struct import Struct
from typing import ClassVar, Final, TypeAlias

__all__ = [
    "Array",
    "Bit",
    "Char",
    "CharUtf32",
    "Decimal64",
    "FixedBinary",
    "Float32",
    "Int8",
    "Int16",
    "Int32",
    "Latin8",
    "Latin16",
    "NUMBERS",
    "Str8",
    "StructValue",
    "TEXTS",
    "TypedNumber",
    "TypedText",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "UnknownValue",
    "Utf16Str8",
    "Utf16Str16",
    "Vbin8",
    "Vbin32",
]


class Int8(int):
    __slots__ = ()
    code: ClassVar[int] = 0x01
    packing: ClassVar[Struct] = Struct(">b")


class UInt8(int):
    __slots__ = ()
    code: ClassVar[int] = 0x02
    packing: ClassVar[Struct] = Struct(">B")


class Char(int):
    """One octet that is a character, as a number."""

    __slots__ = ()
    code: ClassVar[int] = 0x04
    packing: ClassVar[Struct] = Struct(">B")


class Int16(int):
    __slots__ = ()
    code: ClassVar[int] = 0x11
    packing: ClassVar[Struct] = Struct(">h")


class UInt16(int):
    __slots__ = ()
    code: ClassVar[int] = 0x12
    packing: ClassVar[Struct] = Struct(">H")


class Int32(int):
    __slots__ = ()
    code: ClassVar[int] = 0x21
    packing: ClassVar[Struct] = Struct(">i")


class UInt32(int):
    __slots__ = ()
    code: ClassVar[int] = 0x22
    packing: ClassVar[Struct] = Struct(">I")


class Float32(float):
    __slots__ = ()
    code: ClassVar[int] = 0x23
    packing: ClassVar[Struct] = Struct(">f")


class CharUtf32(int):
    """A character as the number of its code point, which need not be one that Unicode has."""

    __slots__ = ()
    code: ClassVar[int] = 0x27
    packing: ClassVar[Struct] = Struct(">I")


class UInt64(int):
    __slots__ = ()
    code: ClassVar[int] = 0x32
    packing: ClassVar[Struct] = Struct(">Q")


class Str8(str):
    """Text of at most 255 bytes of UTF-8."""

    __slots__ = ()
    code: ClassVar[int] = 0x85
    width: ClassVar[int] = 1
    coding: ClassVar[tuple[str, str]] = ("utf-8", "surrogateescape")


class Latin8(str):
    __slots__ = ()
    code: ClassVar[int] = 0x84
    width: ClassVar[int] = 1
    coding: ClassVar[tuple[str, str]] = ("latin-1", "strict")


class Utf16Str8(str):
    __slots__ = ()
    code: ClassVar[int] = 0x86
    width: ClassVar[int] = 1
    coding: ClassVar[tuple[str, str]] = ("utf-16-be", "surrogatepass")


class Latin16(str):
    __slots__ = ()
    code: ClassVar[int] = 0x94
    width: ClassVar[int] = 2
    coding: ClassVar[tuple[str, str]] = ("latin-1", "strict")


class Utf16Str16(str):
    __slots__ = ()
    code: ClassVar[int] = 0x96
    width: ClassVar[int] = 2
    coding: ClassVar[tuple[str, str]] = ("utf-16-be", "surrogatepass")


class Vbin8(bytes):
    """At most 255 bytes."""

    __slots__ = ()


class Vbin32(bytes):
    """Bytes with a length of 32 bits, also where 16 would do."""

    __slots__ = ()


class FixedBinary(bytes):
    """1, 2, 4, 8, 16, 32, 64, 128, 5 or 9 bytes: bin8 to bin1024, bin40, bin72."""

    __slots__ = ()


class Decimal64(Decimal):
    """A decimal with 64 bits of digits, also where 32 would do."""

    __slots__ = ()


class Bit:
    """A value of the type bit, which has no bytes: its presence is its value. All are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bit)

    def __hash__(self) -> int:
        return hash(Bit)

    def __repr__(self) -> str:
        return "Bit()"


class Array(list["object"]):
    """Values that all have one type; `code` is the type's code on the wire.

    An Array equals any list of the same values. One without a code (None) takes the type of its first value.
    """

    __slots__ = ("code",)

    def __init__(self, values: object = (), code: int | None = None) -> None:
        super().__init__(values)  # type: ignore[call-overload]
        self.code = code

    def __repr__(self) -> str:
        return f"Array({super().__repr__()}, {self.code if self.code is None else hex(self.code)})"


class StructValue:
    """A struct with its code, undecoded: `codec.unpack_struct` gives the object.

    code  class code and struct code as one number: 0x0604 is dtx.xid
    raw   packing flags and fields
    """

    __slots__ = ("code", "raw")

    def __init__(self, code: int, raw: bytes) -> None:
        self.code = code
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructValue) and (self.code, self.raw) == (other.code, other.raw)

    def __hash__(self) -> int:
        return hash((self.code, self.raw))

    def __repr__(self) -> str:
        return f"StructValue({self.code:#06x}, {self.raw!r})"


class UnknownValue:
    """A value of a type that the specification does not name. Its code tells its length, so it can be passed on.

    raw  the bytes of the value, with its length where it has one
    """

    __slots__ = ("code", "raw")

    def __init__(self, code: int, raw: bytes) -> None:
        self.code = code
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnknownValue) and (self.code, self.raw) == (other.code, other.raw)

    def __hash__(self) -> int:
        return hash((self.code, self.raw))

    def __repr__(self) -> str:
        return f"UnknownValue({self.code:#04x}, {self.raw!r})"


TypedNumber: TypeAlias = "type[Int8 | UInt8 | Char | Int16 | UInt16 | Int32 | UInt32 | Float32 | CharUtf32 | UInt64]"
TypedText: TypeAlias = "type[Str8 | Latin8 | Utf16Str8 | Latin16 | Utf16Str16]"

NUMBERS: Final[tuple[TypedNumber, ...]] = (
    Int8, UInt8, Char, Int16, UInt16, Int32, UInt32, Float32, CharUtf32, UInt64,
)  # fmt: skip
TEXTS: Final[tuple[TypedText, ...]] = (Str8, Latin8, Utf16Str8, Latin16, Utf16Str16)
