"""Put entries into the headers of a message, or take one out, without decoding the rest of it.

A stream queue stamps every message with its offset, a redelivery says how often it was delivered, a dead letter where
it died. Decoding and encoding all headers for that would cost more than everything else a queue does, so the entries
are spliced into the bytes of the header frame. Who hands such a message on to another broker takes the entry out again.
The same is done to the reply_to of a request, which says where its direct reply goes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from warren.protocol.v091.codec import FRAME_OVERHEAD
from warren.protocol.v091.content import FLAGS_AT
from warren.protocol.v091.fields import skip_value

__all__ = [
    "DELIVERY_COUNT",
    "STREAM_OFFSET",
    "LongHeader",
    "Stamp",
    "append_headers",
    "header_frame_size",
    "replace_reply_to",
]

# in the first octet of the property flags
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE = 0x80, 0x40, 0x20, 0x10
_PRIORITY, _CORRELATION_ID, _REPLY_TO = 0x08, 0x04, 0x02
_LENGTH: Final = Struct(">I")
_SIZE_AT: Final = FLAGS_AT - 8  # of the body's size in the header frame
_PER_MESSAGE: Final = b"\x04\xc0"  # correlation-id, message-id, timestamp: no other message has the same
MAX_KNOWN: Final = 32  # different properties that are known
MAX_KNOWN_SIZE: Final = 512  # bytes of a header frame with them
pack_value: Final[Callable[[int], bytes]] = Struct(">q").pack


def header_frame_size(frames: bytes) -> int:
    """The length of the header frame that frames of a content begin with: where a search of its bytes ends."""
    return FRAME_OVERHEAD + int(_LENGTH.unpack_from(frames, 3)[0])


class LongHeader:
    """A header with a 64-bit integer value; `name` is its key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._key = bytes([len(name)]) + name.encode()
        self._entry = Struct(f">{len(self._key)}scq")  # key, type letter, value
        self.value_at = len(self._key) + 1  # in the entry

    def may_be_in(self, frames: bytes) -> bool:
        """Whether the header frame may hold the header: a search of its bytes, which can only err towards True."""
        return frames.find(self._key, FLAGS_AT, header_frame_size(frames)) >= 0

    def put_into(self, frames: bytes, value: int) -> bytes:
        """The frames (header frame first) with this as the first of their headers.

        The caller has checked the properties, and that they do not hold the header already.
        """
        at = _table_at(frames)
        return _spliced(frames, at, at + 4, self._entry.pack(self._key, b"l", value))

    def take_from(self, properties: bytes) -> bytes:
        """The properties (flags and values, well formed) without this header; the same object when they lack it."""
        if self._key not in properties or not properties[0] & _HEADERS:
            return properties
        start = 2
        if properties[0] & _CONTENT_TYPE:
            start += 1 + properties[start]
        if properties[0] & _CONTENT_ENCODING:
            start += 1 + properties[start]
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


class Stamp:
    """`header`, put into messages of which many have the same properties: these are taken apart once.

    The pieces of a message are its frames up to the body's size, that size, what follows up to the value, the value,
    the rest of the header frame, and the body frames.
    """

    __slots__ = ("_header", "_known")

    def __init__(self, header: LongHeader) -> None:
        self._header = header
        self._known: dict[bytes, tuple[bytes, bytes, bytes]] = {}

    def pieces(self, frames: bytes, value: int) -> tuple[bytes, ...] | None:
        """What `put_into` would join; None where the header may be there already.

        All frames given to one Stamp are on the same channel, and their properties have been checked.
        """
        end = 8 + _LENGTH.unpack_from(frames, 3)[0]
        properties = frames[FLAGS_AT : end - 1]
        known = self._known.get(properties)
        if known is None:
            if self._header.may_be_in(frames):
                return None
            stamped = self._header.put_into(frames[:end], 0)
            at = _table_at(stamped) + 4 + self._header.value_at
            known = stamped[:_SIZE_AT], stamped[FLAGS_AT:at], stamped[at + 8 :]
            if not properties[1] & _PER_MESSAGE[1] and not properties[0] & _PER_MESSAGE[0] and end <= MAX_KNOWN_SIZE:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[properties] = known
        start, middle, rest = known
        return start, frames[_SIZE_AT:FLAGS_AT], middle, pack_value(value), rest, frames[end:]


def replace_reply_to(frames: bytes, old: bytes, new: bytes) -> bytes | None:
    """The frames (header frame first) with `new` as their reply_to; None where it is not `old` now.

    The caller has checked the properties. Both are short strings as they stand on the wire.
    """
    flags = frames[FLAGS_AT]
    if not flags & _REPLY_TO:
        return None
    at = _table_at(frames)
    if flags & _HEADERS:
        at += 4 + _LENGTH.unpack_from(frames, at)[0]
    if flags & _DELIVERY_MODE:
        at += 1
    if flags & _PRIORITY:
        at += 1
    if flags & _CORRELATION_ID:
        at += 1 + frames[at]
    if not frames.startswith(old, at):
        return None
    size = _LENGTH.pack(_LENGTH.unpack_from(frames, 3)[0] + len(new) - len(old))
    return b"".join((frames[:3], size, frames[7:at], new, frames[at + len(old) :]))


def append_headers(frames: bytes, entries: bytes) -> bytes:
    """The frames (header frame first) with encoded table entries as the last of their headers.

    The caller has checked the properties, and that they hold none of these headers already.
    """
    at = _table_at(frames)
    end = at + 4 + _LENGTH.unpack_from(frames, at)[0] if frames[FLAGS_AT] & _HEADERS else at
    return _spliced(frames, at, end, entries)


def _table_at(frames: bytes) -> int:
    """Where the headers are, or would be."""
    flags, at = frames[FLAGS_AT], FLAGS_AT + 2
    if flags & _CONTENT_TYPE:
        at += 1 + frames[at]
    if flags & _CONTENT_ENCODING:
        at += 1 + frames[at]
    return at


def _spliced(frames: bytes, table: int, at: int, entries: bytes) -> bytes:
    """The frames with `entries` put in `at` of the headers table that begins at `table`, if there is one."""
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
