"""Put entries into the headers of a message, or take one out, without decoding the rest of it.

A stream queue adds its offset to every message, a queue adds the delivery count to a redelivery and the deaths to a
dead letter. Decoding and encoding all headers for that would cost more than everything else a queue does, so these
functions splice the encoded entries into the header frame. A shovel takes offset and delivery count out again before it
publishes the message to another broker. `replace_reply_to` changes the reply_to of a request in the same way, and
`header` reads one entry alone.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from harebell.protocol.v091.codec import FRAME_OVERHEAD, encode_properties
from harebell.protocol.v091.content import FLAGS_AT, HEADER_FIXED
from harebell.protocol.v091.fields import FieldValue, Table, read_table, read_value, skip_value
from harebell.protocol.v091.methods import Properties
from harebell.protocol.v091.property_flags import (
    EXPIRATION,
    HEADERS,
    REPLY_TO,
    expiration_at,
    headers_at,
    reply_to_at,
)  # fmt: skip

__all__ = [
    "DELIVERY_COUNT",
    "DELIVERY_COUNTS",
    "STREAM_OFFSET",
    "LongHeader",
    "append_headers",
    "header",
    "header_frame_size",
    "replace_properties",
    "replace_raw_properties",
    "replace_reply_to",
    "take_headers",
    "with_headers",
    "without_expiration",
]

_HEADERS, _REPLY_TO, _EXPIRATION = HEADERS >> 8, REPLY_TO >> 8, EXPIRATION >> 8  # in the first octet of the flags
_LENGTH: Final = Struct(">I")
_WITH_HEADERS: Final = [bytes((flags | _HEADERS,)) for flags in range(256)]  # by the first octet of the flags


def header_frame_size(frames: bytes) -> int:
    """The length of the header frame at the start of a content's frames."""
    return FRAME_OVERHEAD + int(_LENGTH.unpack_from(frames, 3)[0])


class LongHeader:
    """A header with a 64-bit integer value; `name` is its key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._key = bytes([len(name)]) + name.encode()
        self._table = Struct(f">I{len(self._key)}scq")  # the length of a table; key, type letter, value
        self._grown = self._table.size - 4

    def may_be_in(self, frames: bytes) -> bool:
        """False when the header frame does not hold this header. True may be wrong: this only searches the bytes."""
        return frames[FLAGS_AT] & _HEADERS > 0 and frames.find(self._key, FLAGS_AT, header_frame_size(frames)) >= 0

    def put_into(self, frames: bytes, value: int) -> bytes:
        """The frames (header frame first) with this header and the value added, as the first of their headers.

        The caller has checked the properties, and that they do not hold the header already.
        """
        return b"".join(self.pieces(frames, value))

    def pieces(self, frames: bytes, value: int) -> tuple[bytes, ...]:
        """The pieces that `put_into` joins, for a caller that joins them with others."""
        flags, at, grown = frames[FLAGS_AT], headers_at(frames, FLAGS_AT), self._grown
        size: int = _LENGTH.unpack_from(frames, 3)[0]
        if flags & _HEADERS:
            table = self._table.pack(grown + _LENGTH.unpack_from(frames, at)[0], self._key, b"l", value)
            return frames[:3], _LENGTH.pack(size + grown), frames[7:at], table, frames[at + 4 :]
        table = self._table.pack(grown, self._key, b"l", value)
        return (
            frames[:3], _LENGTH.pack(size + grown + 4), frames[7:FLAGS_AT], _WITH_HEADERS[flags],
            frames[FLAGS_AT + 1 : at], table, frames[at:],
        )  # fmt: skip

    def take_from(self, properties: bytes) -> bytes:
        """The properties (flags and values, well formed) without this header; the same object when they lack it."""
        if self._key not in properties or not properties[0] & _HEADERS:
            return properties
        start = headers_at(properties, 0)
        at = start + 4
        end = at + _LENGTH.unpack_from(properties, start)[0]
        while at < end:
            key = at
            at = skip_value(properties, at + 1 + properties[at])
            if properties.startswith(self._key, key):
                rest = properties[start + 4 : key] + properties[at:end]
                if rest:
                    return properties[:start] + _LENGTH.pack(len(rest)) + rest + properties[end:]
                flags = bytes((properties[0] & ~_HEADERS, properties[1]))
                return flags + properties[2:start] + properties[end:]
        return properties


def replace_properties(frames: bytes, properties: Properties) -> bytes:
    """The frames (header frame first) with these properties; the body frames stay as they are.

    Raises LocalProtocolError when a property does not fit its type.
    """
    return replace_raw_properties(frames, encode_properties(properties))


def replace_raw_properties(frames: bytes, raw: bytes) -> bytes:
    """The frames (header frame first) with these properties, given as flags and values."""
    size = _LENGTH.pack(HEADER_FIXED.size + len(raw))
    return b"".join((frames[:3], size, frames[7:FLAGS_AT], raw, frames[header_frame_size(frames) - 1 :]))


def replace_reply_to(frames: bytes, old: bytes, new: bytes) -> bytes | None:
    """The frames (header frame first) with `new` as their reply_to; None when their reply_to is not `old`.

    The caller has checked the properties. `old` and `new` are encoded short strings.
    """
    if not frames[FLAGS_AT] & _REPLY_TO:
        return None
    at = reply_to_at(frames, FLAGS_AT)
    if not frames.startswith(old, at):
        return None
    size = _LENGTH.pack(_LENGTH.unpack_from(frames, 3)[0] + len(new) - len(old))
    return b"".join((frames[:3], size, frames[7:at], new, frames[at + len(old) :]))


def header(properties: bytes, name: bytes) -> FieldValue:
    """The header with this name in the properties (flags and values, well formed); None where it is missing.

    Of a name that is there twice the last one counts, as where all headers are decoded.
    """
    found = None
    if properties[0] & _HEADERS and name in properties:
        start = headers_at(properties, 0)
        at = start + 4
        end = at + _LENGTH.unpack_from(properties, start)[0]
        while at < end:
            key = at
            at += 1 + properties[at]
            if at - key - 1 == len(name) and properties.startswith(name, key + 1):
                found = read_value(properties, at)
            at = skip_value(properties, at)
    return found


def take_headers(properties: bytes, names: frozenset[bytes]) -> tuple[Table, bytes]:
    """The headers with these names, and the encoded entries of all others (the properties are well formed)."""
    if not properties[0] & _HEADERS:
        return {}, b""
    start = headers_at(properties, 0)
    at = kept = start + 4
    end = at + _LENGTH.unpack_from(properties, start)[0]
    if not any(name in properties for name in names):
        return {}, properties[at:end]
    taken, others = [], []
    while at < end:
        key = at
        at += 1 + properties[at]
        name = properties[key + 1 : at]
        at = skip_value(properties, at)
        if name in names:
            taken.append(properties[key:at])
            others.append(properties[kept:key])
            kept = at
    others.append(properties[kept:end])
    entries = b"".join(taken)
    return read_table(_LENGTH.pack(len(entries)) + entries, 0)[0], b"".join(others)


def with_headers(properties: bytes, entries: bytes) -> bytes:
    """The properties (flags and values, well formed) with these encoded entries as their headers."""
    at = headers_at(properties, 0)
    end = at + 4 + _LENGTH.unpack_from(properties, at)[0] if properties[0] & _HEADERS else at
    flags = _WITH_HEADERS[properties[0]]
    return b"".join((flags, properties[1:at], _LENGTH.pack(len(entries)), entries, properties[end:]))


def without_expiration(properties: bytes) -> bytes:
    """The properties (flags and values, well formed) without an expiration."""
    if not properties[0] & _EXPIRATION:
        return properties
    at = expiration_at(properties, 0)
    flags = bytes((properties[0] & ~_EXPIRATION,))
    return flags + properties[1:at] + properties[at + 1 + properties[at] :]


def append_headers(frames: bytes, entries: bytes) -> bytes:
    """The frames (header frame first) with encoded table entries as the last of their headers.

    The caller has checked the properties, and that they hold none of these headers already.
    """
    at = headers_at(frames, FLAGS_AT)
    end = at + 4 + _LENGTH.unpack_from(frames, at)[0] if frames[FLAGS_AT] & _HEADERS else at
    return _spliced(frames, at, end, entries)


def _spliced(frames: bytes, table: int, at: int, entries: bytes) -> bytes:
    """The frames with `entries` inserted at `at` into the headers table at `table`, or as a new table there."""
    size, flags, grown = _LENGTH.unpack_from(frames, 3)[0], frames[FLAGS_AT], len(entries)
    if flags & _HEADERS:
        length, old = grown + _LENGTH.unpack_from(frames, table)[0], frames[table + 4 : at]
    else:
        length, old, at = grown, b"", table
        grown += 4
    return b"".join(
        (
            frames[:3],
            _LENGTH.pack(size + grown),
            frames[7:FLAGS_AT],
            bytes((flags | _HEADERS,)),
            frames[FLAGS_AT + 1 : table],
            _LENGTH.pack(length),
            old,
            entries,
            frames[at:],
        )
    )


STREAM_OFFSET: Final = LongHeader("x-stream-offset")
DELIVERY_COUNT: Final = LongHeader("x-delivery-count")
DELIVERY_COUNTS: Final = (DELIVERY_COUNT.name, "x-acquired-count")
"""Headers that a broker adds when it delivers again; they are no part of the message."""
