"""Method payloads and frames, to and from bytes: the edge where malformed bytes become protocol errors.

A frame is: type octet, channel short, payload length long, payload, frame-end octet (specification 2.3.5).
A method's payload starts with its class id and method id; the first four bytes are the key of METHODS.
"""

from __future__ import annotations

from struct import Struct, error as StructError
from typing import Final

from warren import errors
from warren.protocol.v091.fields import skip_table
from warren.protocol.v091.methods import FRAME_END, FRAME_HEARTBEAT, FRAME_METHOD, METHODS, Method, Properties

__all__ = [
    "HEARTBEAT_FRAME",
    "PROTOCOL_HEADER",
    "check_properties",
    "decode_method",
    "decode_properties",
    "encode_frame",
    "encode_method",
    "encode_properties",
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


def decode_method(payload: bytes, channel: int = 0) -> Method:
    """The method in the payload. RemoteProtocolError: 540 for an unknown one, 502 for malformed arguments.

    RabbitMQ 3.10 drops the connection without a word when the method is unknown; a reply code is kinder.
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
    """Raises what `decode_properties` would, without building what it would."""
    start = at
    try:
        flags = data[at] << 8 | data[at + 1]
        at += 2
        if flags & 0x8000:  # content-type
            at += 1 + data[at]
        if flags & 0x4000:  # content-encoding
            at += 1 + data[at]
        if flags & 0x2000:
            at = skip_table(data, at)
        at += _OCTETS[flags >> 11 & 3]
        if flags & 0x07FC:
            for flag in _SHORT_STRINGS_AND_TIMESTAMP:
                if flags & flag:
                    at += 8 if flag == 0x0040 else 1 + data[at]
        if at == len(data) and not flags & 3:
            return
    except MALFORMED:
        pass
    decode_properties(data, start, channel)  # which says what is wrong


_OCTETS: Final = (0, 1, 1, 2)  # delivery-mode, priority: how many bytes for which of their two flags
_SHORT_STRINGS_AND_TIMESTAMP: Final = (0x0400, 0x0200, 0x0100, 0x0080, 0x0040, 0x0020, 0x0010, 0x0008, 0x0004)
