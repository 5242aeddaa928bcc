"""What headers have in common that differ in identifiers alone: message-id, correlation-id and timestamp.

A message-id of 0-9-1 that is no UUID is a header; it is an identifier where it is the last one.

A publisher that gives each message an id of its own sends the same header otherwise. Its bytes without the ids are its
shape: what is known of one message is true of all with that shape, as long as it does not depend on the ids. A
correlation-id of another length makes another shape, and one that is no short text makes none: 0-9-1 cannot hold it.
"""

from __future__ import annotations

from struct import Struct as Packing, error as StructError
from typing import Final

from harebell.protocol.v010.content import DELIVERY, FRAGMENT, MESSAGE
from harebell.protocol.v010.frames import FRAME_HEADER

__all__ = ["CORRELATION_ID", "MESSAGE_ID", "TEXT_ID", "TIMESTAMP", "Shape", "shape_of"]

MESSAGE_ID: Final = "message_id"
CORRELATION_ID: Final = "correlation_id"
TIMESTAMP: Final = "timestamp"
TEXT_ID: Final = "x-amqp-0-9-1.message-id"

_WHOLE: Final = frozenset({b"\x03\x02", b"\x07\x02"})  # flags and type of the only frame of a header
_HEAD: Final = Packing(">IHH")  # of a struct: size without itself, code, packing flags, low octet first
_SIZE: Final = Packing(">H")
_UUID: Final = 16
_TIME: Final = 8
_SHORT: Final = 255  # bytes of a short string of 0-9-1
_TEXT_ID_ENTRY: Final = bytes([len(TEXT_ID)]) + TEXT_ID.encode() + b"\x95"  # up to its length; 0x95: str16
_FIXED: Final = ((0x0800, 1), (0x1000, 1), (0x2000, 8))  # fields of delivery-properties before timestamp: flag and size


class Shape:
    """A header frame of `size` bytes.

    names  the identifiers in it, in their order
    spans  the places of these in the frame: first byte, and the one behind the last
    parts  what is between them, one more than there are identifiers
    """

    __slots__ = ("_checks", "_texts", "names", "parts", "size", "spans")

    def __init__(self, frame: bytes, names: tuple[str, ...], spans: tuple[tuple[int, int], ...]) -> None:
        self.size = len(frame)
        self.names = names
        self.spans = spans
        starts = (0, *(end for _, end in spans))
        ends = (*(start for start, _ in spans), len(frame))
        self.parts = tuple([frame[start:end] for start, end in zip(starts, ends, strict=True)])
        self._checks = tuple(zip(self.parts, starts, strict=True))
        self._texts = [spans[names.index(name)] for name in (CORRELATION_ID, TEXT_ID) if name in names]

    def fits(self, frames: bytes) -> bool:
        """Whether a message with these frames has a header of this shape."""
        for part, at in self._checks:
            if not frames.startswith(part, at):
                return False
        return all(_is_text(frames[start:end]) for start, end in self._texts)

    def values(self, frames: bytes) -> list[bytes]:
        """The identifiers of a message whose header fits."""
        return [frames[start:end] for start, end in self.spans]

    def filled(self, values: list[bytes]) -> bytes:
        """The header frame of this shape with these identifiers."""
        parts = self.parts
        if len(values) == 1:
            return b"%b%b%b" % (parts[0], values[0], parts[1])
        pieces = list(parts) + values
        pieces[::2], pieces[1::2] = parts, values
        return b"".join(pieces)


def shape_of(frames: bytes) -> Shape | None:
    """The shape of a message's header; None where it has no identifiers, or is not in one frame, or is malformed."""
    if frames[:2] not in _WHOLE:
        return None
    names: list[str] = []
    spans: list[tuple[int, int]] = []
    try:
        at, end = FRAME_HEADER, _SIZE.unpack_from(frames, 2)[0]
        while at < end:
            length, code, flags = _HEAD.unpack_from(frames, at)
            after = at + 4 + length
            if code == FRAGMENT or length < 4 or after > end:
                return None
            found = _delivery(flags, at + 8) if code == DELIVERY else ()
            if code == MESSAGE:
                found = (*_message(frames, flags, at + 8), *_text_id(frames, flags, at + 8, after))
            for name, start, stop in found:
                if stop > after or name in names:
                    return None
                names.append(name)
                spans.append((start, stop))
            at = after
    except StructError:
        return None
    if not spans:
        return None
    shape = Shape(frames[:end], tuple(names), tuple(spans))
    return shape if shape.fits(frames) else None


def _delivery(flags: int, at: int) -> tuple[tuple[str, int, int], ...]:
    if not flags & 0x4000:
        return ()
    at += sum(size for flag, size in _FIXED if flags & flag)
    return ((TIMESTAMP, at, at + _TIME),)


def _message(frames: bytes, flags: int, at: int) -> tuple[tuple[str, int, int], ...]:
    found: tuple[tuple[str, int, int], ...] = ()
    if flags & 0x0100:  # content_length
        at += 8
    if flags & 0x0200:
        found = ((MESSAGE_ID, at, at + _UUID),)
        at += _UUID
    if flags & 0x0400:
        size = _SIZE.unpack_from(frames, at)[0]
        found += ((CORRELATION_ID, at + 2, at + 2 + size),)
    return found


def _text_id(frames: bytes, flags: int, at: int, after: int) -> tuple[tuple[str, int, int], ...]:
    """A message-id in the last header. The same bytes elsewhere at the end look like one: the caller has to try it."""
    if not flags & 0x0001 or flags & 0x0200:  # no application-headers, or a UUID, on which it then depends
        return ()
    place = frames.rfind(_TEXT_ID_ENTRY, at, after)
    start = place + len(_TEXT_ID_ENTRY) + _SIZE.size
    if place < 0 or start >= after or start + _SIZE.unpack_from(frames, start - _SIZE.size)[0] != after:
        return ()
    return ((TEXT_ID, start, after),)


def _is_text(value: bytes) -> bool:
    if len(value) > _SHORT:
        return False
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
