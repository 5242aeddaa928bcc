"""Put one entry into the headers of a message without decoding the rest of it.

A stream queue stamps every message with its offset. Decoding and encoding all headers for that would cost more than
everything else the queue does, so the entry is spliced into the bytes of the header frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from warren.protocol.v091.codec import FRAME_OVERHEAD
from warren.protocol.v091.content import FLAGS_AT

__all__ = ["OFFSET_HEADER", "holds_offset_header", "with_offset_header"]

OFFSET_HEADER: Final = "x-stream-offset"
_KEY: Final = bytes([len(OFFSET_HEADER)]) + OFFSET_HEADER.encode()

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20  # in the first octet of the property flags
_LENGTH: Final = Struct(">I")
_ENTRY: Final = Struct(f">{len(_KEY)}scq")  # key, type letter, int64: 25 bytes
_TABLE_ENTRY: Final = Struct(f">I{len(_KEY)}scq")


def with_offset_header(frames: bytes, offset: int) -> bytes:
    """The frames (header frame first) with `x-stream-offset` as the first of their headers.

    The caller has checked the properties, and that they do not hold the header already.
    """
    size = _LENGTH.unpack_from(frames, 3)[0]
    flags = frames[FLAGS_AT]
    at = FLAGS_AT + 2
    if flags & _CONTENT_TYPE:
        at += 1 + frames[at]
    if flags & _CONTENT_ENCODING:
        at += 1 + frames[at]
    if flags & _HEADERS:
        table = _LENGTH.unpack_from(frames, at)[0]
        insert = _LENGTH.pack(table + _ENTRY.size) + _ENTRY.pack(_KEY, b"l", offset)
        resume, grown = at + 4, _ENTRY.size
    else:
        insert = _TABLE_ENTRY.pack(_ENTRY.size, _KEY, b"l", offset)
        resume, grown = at, _TABLE_ENTRY.size
    return b"".join(
        (
            frames[:3],
            _LENGTH.pack(size + grown),
            frames[7:FLAGS_AT],
            bytes((flags | _HEADERS,)),
            frames[FLAGS_AT + 1 : at],
            insert,
            frames[resume:],
        )
    )


def holds_offset_header(frames: bytes) -> bool:
    """Whether the header frame may hold the header: a search of its bytes, which can only err towards True."""
    return frames.find(_KEY, FLAGS_AT, FRAME_OVERHEAD + _LENGTH.unpack_from(frames, 3)[0]) >= 0
