"""Controls, commands and structs, to and from bytes: the edge where malformed bytes become protocol errors.

What is wrong with a control ends the connection (501), because connection.close has no other code for it. What is wrong
with a command ends its session alone (scope "channel"): 503 for malformed fields, 540 for a command that nobody knows.
The text names the field and its place.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Final, TypeVar

from harebell import errors
from harebell.protocol.v010 import structs as s, values as v
from harebell.protocol.v010.commands import COMMANDS
from harebell.protocol.v010.compounds import Command, Compound, Control, Struct, read_struct
from harebell.protocol.v010.controls import CONTROLS
from harebell.protocol.v010.typed_values import StructValue

__all__ = [
    "decode_command",
    "decode_control",
    "decode_struct",
    "encode_command",
    "encode_control",
    "encode_struct",
    "unpack_struct",
]

MALFORMED: Final = (ValueError, IndexError, StructError)  # what decoding raises on malformed bytes
MISFITS: Final = (StructError, TypeError, ValueError, AttributeError)  # what encoding raises on values of a wrong type

_FIXED: Final = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "sequence-no": 4, "datetime": 8, "uuid": 16}
_READERS: Final[dict[str, Callable[[bytes, int], tuple[object, int]]]] = {
    "str8": v.read_str8,
    "str16": v.read_str16,
    "vbin8": v.read_vbin8,
    "vbin16": v.read_vbin16,
    "vbin32": v.read_vbin32,
    "map": v.read_map,
    "array": v.read_array,
    "str16-array": v.read_array,
    "sequence-set": v.read_sequence_set,
    "struct32": v.read_struct32,
}
_STRUCTS: Final[dict[str, type[Struct]]] = {cls.NAME: cls for cls in (s.ReplyTo, s.Xid)}

S = TypeVar("S", bound=Struct)


def encode_control(control: Control) -> bytes:
    """The payload of a control's segment. LocalProtocolError when a field does not fit its type."""
    try:
        return control.encode()
    except MISFITS as error:
        raise errors.LocalProtocolError(f"{control!r} does not fit the wire: {error}") from None


def encode_command(command: Command) -> bytes:
    """The payload of a command's segment. LocalProtocolError when a field does not fit its type."""
    try:
        return command.encode()
    except MISFITS as error:
        raise errors.LocalProtocolError(f"{command!r} does not fit the wire: {error}") from None


def encode_struct(struct: Struct) -> bytes:
    """A struct as it stands in a header segment: size, code, itself. LocalProtocolError when a field does not fit."""
    try:
        return v.write_struct32(struct.packed(), struct.NAME)
    except MISFITS as error:
        raise errors.LocalProtocolError(f"{struct!r} does not fit the wire: {error}") from None


def decode_control(payload: bytes, channel: int = 0) -> Control:
    """The control in a payload. Raises RemoteProtocolError (501) for an unknown or malformed one."""
    cls = CONTROLS.get(payload[:2])
    if cls is None:
        raise errors.RemoteProtocolError(errors.FrameError, f"unknown control {payload[:2].hex()}", channel=channel)
    try:
        return cls.decode(payload)
    except MALFORMED as error:
        said = f"malformed {cls.NAME}: {_explain(cls, payload, 2, error)}"
        raise errors.RemoteProtocolError(errors.FrameError, said, cls.KEY[0], cls.KEY[1], channel) from None


def decode_command(payload: bytes, channel: int = 0) -> Command:
    """The command in a payload. Raises RemoteProtocolError for the session: 540 unknown, 503 malformed."""
    cls = COMMANDS.get(payload[:2])
    if cls is None:
        class_code, code = (payload[0], payload[1]) if len(payload) > 1 else (0, 0)
        raise _command_error(errors.NotImplemented, f"unknown command {payload[:2].hex()}", class_code, code, channel)
    try:
        return cls.decode(payload)
    except MALFORMED as error:
        said = f"malformed {cls.NAME}: {_explain(cls, payload, 4, error)}"
        raise _command_error(errors.CommandInvalid, said, cls.KEY[0], cls.KEY[1], channel) from None


def decode_struct(cls: type[S], raw: bytes, channel: int = 0) -> S:
    """The struct in its packing flags and fields. Raises RemoteProtocolError for the session: 503 malformed."""
    try:
        return cls.decode(raw)
    except MALFORMED as error:
        said = f"malformed {cls.NAME}: {_explain(cls, raw, 0, error)}"
        raise _command_error(errors.CommandInvalid, said, cls.CODE >> 8, cls.CODE & 255, channel) from None


def unpack_struct(value: StructValue, channel: int = 0) -> Struct | StructValue:
    """The struct in a value; the value itself when its code is unknown. Raises as `decode_struct`."""
    cls = s.STRUCTS.get(value.code)
    return value if cls is None else decode_struct(cls, value.raw, channel)


def _command_error(
    cls: type[errors.AmqpError], said: str, class_code: int, code: int, channel: int
) -> errors.RemoteProtocolError:
    return errors.RemoteProtocolError(cls, said, class_code, code, channel, "channel")


def _explain(cls: type[Compound], data: bytes, at: int, error: Exception) -> str:
    """What is wrong with the fields whose packing flags are at `at`, by a second, slower look."""
    if len(data) < at + 2:
        return "it ends before its packing flags"
    flags = data[at] | data[at + 1] << 8
    at += 2
    for index, (name, kind) in enumerate(cls.LAYOUT):
        if kind == "bit" or not flags >> index & 1:
            continue
        wrong = "it ends too early"
        end = len(data) + 1
        try:
            end = _end_of(kind, data, at)
        except ValueError as cause:
            wrong = str(cause)
        except (IndexError, StructError):
            pass
        if end > len(data):
            return f"field {name} ({kind}) at octet {at}: {wrong}"
        at = end
    return str(error)


def _end_of(kind: str, data: bytes, at: int) -> int:
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind in _STRUCTS:
        return read_struct(_STRUCTS[kind], data, at)[1]
    return _READERS[kind](data, at)[1]
