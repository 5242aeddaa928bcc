"""What controls, commands and structs have in common; the generated classes derive from these.

On the wire each is a code, two octets of packing flags and the fields that are set, in order. A flag says whether its
field is there; a bit field is its flag. An absent field is None; one that the specification requires has its zero value
instead, because many peers leave required fields out. Those whose absence means something may be None all the same:
`OPTIONAL` in tools/generate_v010.py.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from harebell.protocol.v010.typed_values import StructValue
from harebell.protocol.v010.values import check_end

__all__ = ["Command", "Compound", "Control", "Struct"]

_SECRETS: Final = frozenset({"response", "challenge"})  # passwords must not get into a log

S = TypeVar("S", bound="Struct")


class Compound:
    """The base of all: name, fields, `encode` and `decode`, equality by value.

    LAYOUT  name and type of each field, in the order of their flags
    """

    __slots__: tuple[str, ...] = ()
    NAME: ClassVar[str]
    LAYOUT: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return all(getattr(self, name) == getattr(other, name) for name in self.fields())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        """All fields but those with passwords."""
        shown = (f"{name}={'...' if name in _SECRETS else repr(getattr(self, name))}" for name in self.fields())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return tuple([name for name, _ in cls.LAYOUT])


class Control(Compound):
    """A control of the connection or of a session. KEY: class code and control code, the first octets of a payload."""

    __slots__ = ()
    KEY: ClassVar[bytes]

    def encode(self) -> bytes:
        """The payload of the control's segment."""
        raise NotImplementedError

    @classmethod
    def decode(cls, data: bytes) -> Control:
        raise NotImplementedError


class Command(Compound):
    """A command of a session. KEY: class code and command code, the first octets of a payload.

    sync  the receiver is to send session.completed as soon as the command is complete
    """

    __slots__ = ("sync",)
    KEY: ClassVar[bytes]
    sync: bool

    def encode(self) -> bytes:
        """The payload of the command's segment."""
        raise NotImplementedError

    @classmethod
    def decode(cls, data: bytes) -> Command:
        raise NotImplementedError

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return (*super().fields(), "sync")


class Struct(Compound):
    """A struct. CODE: class code and struct code as one number; 0 for one that stands in fields alone."""

    __slots__ = ()
    CODE: ClassVar[int] = 0

    def encode(self) -> bytes:
        """Packing flags and fields, without size and code."""
        raise NotImplementedError

    @classmethod
    def decode(cls: type[S], data: bytes, at: int = 0) -> S:
        """The struct whose packing flags are at `at`; it ends with the data."""
        raise NotImplementedError

    def packed(self) -> StructValue:
        """The struct as a value of a field, an array or a map."""
        return StructValue(self.CODE, self.encode())


def read_struct(cls: type[S], data: bytes, at: int) -> tuple[S, int]:
    """A struct in a field: its length (2 octets for one without a code, else 4 and the code), then itself.

    In the specification without Qpid's errata, dtx.xid has no code and a length of 2 octets: that form is read too.
    """
    if cls.CODE and not (data[at] or data[at + 1]):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        at += 4
        if int.from_bytes(data[at : at + 2], "big") != cls.CODE:
            raise ValueError(f"a struct of code {data[at : at + 2].hex()} in place of {cls.NAME}")
    else:
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data):
        raise ValueError(f"{cls.NAME} ends too early")
    return cls.decode(data[at + 2 : end]), end


def write_struct(value: Struct, name: str) -> bytes:
    raw = value.encode()
    if not value.CODE:
        return len(raw).to_bytes(2, "big") + raw
    return b"%b%b%b" % ((2 + len(raw)).to_bytes(4, "big"), value.CODE.to_bytes(2, "big"), raw)


def read_sync(data: bytes) -> bool:
    """The flag in session.header, the struct between a command's code and its arguments."""
    if data[2] != 1 or data[3] > 1:
        raise ValueError(f"session.header is {data[2:4].hex()} in place of 0100 or 0101")
    return data[3] == 1


def refuse(flags: int, known: int, data: bytes, at: int) -> None:
    """Raise the ValueError for packing flags that no field has, or for fields that do not end with the data."""
    if flags & ~known:
        raise ValueError(f"packing flags {flags:#06x}; the fields have {known:#06x}")
    check_end(data, at)
