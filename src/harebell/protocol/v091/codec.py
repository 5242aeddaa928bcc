"""Method payloads and frames, to and from bytes: the edge where malformed bytes become protocol errors.

A frame is: type octet, channel short, payload length long, payload, frame-end octet (specification 2.3.5).
A method's payload starts with its class id and method id; the first four bytes are the key of METHODS.
"""

from __future__ import annotations

from struct import Struct, error as StructError
from typing import Final

from harebell import errors
from harebell.protocol.v091.fields import skip_table
from harebell.protocol.v091.methods import FRAME_END, FRAME_HEARTBEAT, FRAME_METHOD, METHODS, Method, Properties
from harebell.protocol.v091.property_flags import FIELDS, SHORT_STRING, TABLE, UNUSED

__all__ = [
    "HEARTBEAT_FRAME",
    "PROTOCOL_HEADER",
    "check_properties",
    "decode_method",
    "decode_properties",
    "encode_frame",
    "encode_method",
    "encode_properties",
    "too_long",
]

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
PROTOCOL_HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"  # RabbitMQ accepts it as an alias of 0-9-1

FRAME_PREFIX: Final = Struct(">BHI")  # type, channel, payload length
FRAME_OVERHEAD: Final = 8  # the prefix and the frame-end octet
END: Final = bytes([FRAME_END])
HEARTBEAT_FRAME: Final = FRAME_PREFIX.pack(FRAME_HEARTBEAT, 0, 0) + END

MALFORMED: Final = (ValueError, IndexError, StructError)  # what decoding raises on malformed bytes
MISFITS: Final = (StructError, TypeError, ValueError, AttributeError)  # what encoding raises on values of a wrong type


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%b%b%b" % (FRAME_PREFIX.pack(kind, channel, len(payload)), payload, END)


def encode_method(channel: int, method: Method) -> bytes:
    """The method as one frame. LocalProtocolError when a field does not fit its type."""
    try:
        return encode_frame(FRAME_METHOD, channel, method.encode())
    except MISFITS as error:
        raise errors.LocalProtocolError(f"{method!r} on channel {channel} does not fit the wire: {error}") from None


def encode_properties(properties: Properties) -> bytes:
    """Flags and values. LocalProtocolError when a property does not fit its type."""
    try:
        return properties.encode()
    except MISFITS as error:
        raise errors.LocalProtocolError(f"{properties!r} does not fit the wire: {error}") from None


def too_long(what: str, part: str, size: int, frame_max: int) -> errors.LocalProtocolError:
    """The error for a method or message whose `part` needs a frame longer than the peer's `frame_max`."""
    return errors.LocalProtocolError(
        f"{what} with its {part} takes a frame of {size} bytes, the negotiated frame_max is {frame_max}: "
        f"shorten its {part}"
    )


def decode_method(payload: bytes, channel: int = 0) -> Method:
    """The method in the payload. Raises RemoteProtocolError: 540 for an unknown one, 502 for malformed arguments.

    For an unknown method RabbitMQ 3.10 closes the socket without connection.close; here the peer gets a reply code.
    """
    cls = METHODS.get(payload[:4])
    if cls is None:
        class_id, method_id = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
        raise errors.RemoteProtocolError(
            errors.NotImplemented, f"unknown method {class_id}.{method_id}", class_id, method_id, channel
        )
    try:
        return cls.decode(payload)
    except MALFORMED as error:
        raise errors.RemoteProtocolError(
            errors.SyntaxError, f"malformed {cls.NAME}: {error}", cls.CLASS_ID, cls.METHOD_ID, channel
        ) from None


def decode_properties(data: bytes, at: int, channel: int = 0) -> Properties:
    """The basic properties from `at` to the end. RemoteProtocolError (502) when they are malformed."""
    try:
        return Properties.decode(data, at)
    except MALFORMED as error:
        raise errors.RemoteProtocolError(
            errors.SyntaxError, f"malformed content header: {error}", 60, 0, channel
        ) from None


def check_properties(data: bytes, at: int, channel: int = 0) -> None:
    """Raise RemoteProtocolError (502) where `decode_properties` would, without building the properties."""
    start = at
    try:
        flags = data[at] << 8 | data[at + 1]
        plan = _PLANS.get(flags)
        if plan is None:
            plan = _PLANS[flags] = _plan(flags)
        at += 2
        for step in plan:
            if step == SHORT_STRING:
                at += 1 + data[at]
            elif step == TABLE:
                at = skip_table(data, at)
            else:
                at += step
        if at == len(data) and not flags & UNUSED:
            return
    except MALFORMED:
        pass
    decode_properties(data, start, channel)  # raises the error that names the problem


_PLANS: Final[dict[int, tuple[int, ...]]] = {}  # by flags: at most 65,536 entries, in practice a few


def _plan(flags: int) -> tuple[int, ...]:
    """The values behind these flags, in order: SHORT_STRING, TABLE, or a number of bytes."""
    return tuple(size for flag, _, size in FIELDS if flags & flag)
