"""Messages in their frames, from one dialect to the other: the header converted once for those that have the same.

Properties are what costs (`properties`), and most messages share theirs with others. The body is copied once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from harebell.protocol import v091
from harebell.protocol.conversion.properties import from_v091, header_of
from harebell.protocol.v010.content import body_of, encode_content
from harebell.protocol.v010.frames import BODY, FRAME, FRAME_HEADER, HEADER, LARGEST_FRAME, segment_frames
from harebell.protocol.v010.shapes import MESSAGE_ID, TEXT_ID, Shape
from harebell.protocol.v091.codec import END, FRAME_OVERHEAD
from harebell.protocol.v091.content import FLAGS_AT, stored_content
from harebell.protocol.v091.property_flags import FIELDS, SHORT_STRING, TABLE

__all__ = ["Headers", "ShapeToV091", "ToV091"]

MOST: Final = 256  # headers that are remembered
MOST_BYTES: Final = 16_384  # of the properties of one; converting longer ones costs little beside sending them
_DIGITS: Final = Struct("8s4s4s4s12s")  # of a UUID
_DASHED: Final = b"%b-%b-%b-%b-%b"
_HINT: Final = b"x-amqp-0-"  # begins the names of the headers for what the other dialect cannot say
_LAST: Final = 0x07  # flags of the only frame of the last segment


class Headers:
    """The headers of AMQP 0-10 for messages of 0-9-1, with the most recent ones."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes, bytes], bytes] = {}

    def __len__(self) -> int:
        return len(self._known)

    def frames(self, channel: int, wire: bytes, exchange: str, routing_key: str, frames: bytes) -> bytes:
        """A message of 0-9-1 in frames of AMQP 0-10, of full size, on that channel.

        wire    exchange and routing key as short strings
        frames  the message in frames of 0-9-1
        """
        end = FRAME_OVERHEAD + int.from_bytes(frames[3:7], "big")  # of the header frame
        properties = frames[FLAGS_AT : end - 1]
        head = self._known.get((channel, wire, properties))
        size = len(frames) - end - FRAME_OVERHEAD
        if head is None or not 0 < size <= LARGEST_FRAME - FRAME_HEADER or size != _length(frames, end):
            return self._convert(channel, wire, exchange, routing_key, frames, properties)
        return b"%b%b%b" % (head, FRAME.pack(_LAST, BODY, FRAME_HEADER + size, 1, channel, 0), frames[end + 7 : -1])

    def _convert(
        self, channel: int, wire: bytes, exchange: str, routing_key: str, frames: bytes, properties: bytes
    ) -> bytes:
        content = stored_content(0, frames)
        header = header_of(*from_v091(exchange, routing_key, content.decode_properties()))
        if len(properties) <= MOST_BYTES:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[channel, wire, properties] = segment_frames(0, HEADER, 1, channel, header, LARGEST_FRAME)
        return encode_content(channel, header, content.body, LARGEST_FRAME)


def _length(frames: bytes, at: int) -> int:
    """The length of what the frame of 0-9-1 at that place carries."""
    return int.from_bytes(frames[at + 3 : at + 7], "big")


class ToV091:
    """What makes frames of 0-9-1 of messages of AMQP 0-10 that have the same header.

    channel     of the frames
    properties  what 0-9-1 says, encoded
    header      the header frames of these messages are so many bytes
    frame_max   the size of the largest frame
    """

    __slots__ = ("_channel", "_frame_max", "_head", "_overhead", "_properties", "_size")

    def __init__(self, channel: int, properties: bytes, header: int, frame_max: int) -> None:
        self._channel = channel
        self._properties = properties
        self._overhead = header + FRAME_HEADER
        self._frame_max = frame_max
        self._size = -1  # of the last body, ...
        self._head = b""  # ... and the frames up to it

    def properties(self, native: bytes) -> bytes:
        """What 0-9-1 says for a message with these frames of AMQP 0-10, encoded."""
        return self._properties

    def frames(self, native: bytes, size: int) -> bytes:
        """A message with a body of `size` bytes; `native` are its frames of AMQP 0-10."""
        if len(native) - size == self._overhead:  # the body is in one frame
            if size == self._size:
                return b"%b%b%b" % (self._head, native[-size:], END)
            if 0 < size <= self._frame_max - FRAME_OVERHEAD:
                frames = v091.encode_content(self._channel, self._properties, native[-size:], self._frame_max)
                self._size, self._head = size, frames[: -size - 1]
                return frames
        return v091.encode_content(self._channel, self._properties, body_of(native), self._frame_max)


class ShapeToV091:
    """As `ToV091`, for messages whose headers have one shape: the identifiers of each are put in their places.

    properties  what 0-9-1 says of the first message, encoded
    """

    __slots__ = ("_channel", "_first", "_frame_max", "_overhead", "_steps")

    def __init__(self, channel: int, properties: bytes, shape: Shape, frame_max: int) -> None:
        self._channel = channel
        self._overhead = shape.size + FRAME_HEADER
        self._frame_max = frame_max
        places = _identifiers(properties)
        ids = sorted(zip(shape.names, shape.spans, strict=True), key=lambda each: places[each[0]])
        starts = [places[name][1] for name, _ in ids]
        ends = [*(places[name][0] for name, _ in ids), len(properties)]
        self._first = properties[: ends[0]]
        # Of each identifier: its place in the header, whether it is a UUID, and the properties behind it.
        self._steps = [
            (*span, name == MESSAGE_ID, properties[start:end])
            for (name, span), start, end in zip(ids, starts, ends[1:], strict=True)
        ]

    @staticmethod
    def takes(shape: Shape, properties: bytes) -> bool:
        """Whether each identifier of the shape is a property of 0-9-1 in these, and no header says anything of it."""
        places = _identifiers(properties)
        hints = sum(part.count(_HINT) for part in shape.parts)
        return all(name in places for name in shape.names) and hints == (TEXT_ID in shape.names)

    def properties(self, native: bytes) -> bytes:
        pieces = [self._first]
        for start, end, is_id, part in self._steps:
            value = native[start:end]
            pieces += (_DASHED % _DIGITS.unpack(value.hex().encode()) if is_id else value, part)
        return b"".join(pieces)

    def frames(self, native: bytes, size: int) -> bytes:
        body = native[-size:] if size and len(native) - size == self._overhead else body_of(native)
        return v091.encode_content(self._channel, self.properties(native), body, self._frame_max)


def _identifiers(properties: bytes) -> dict[str, tuple[int, int]]:
    """As `_places`, by the names that a shape has for them."""
    places = _places(properties)
    if MESSAGE_ID in places:
        places[TEXT_ID] = places[MESSAGE_ID]
    return places


def _places(properties: bytes) -> dict[str, tuple[int, int]]:
    """Where the values of properties of 0-9-1 are: first byte, and the one behind the last."""
    flags, at = properties[0] << 8 | properties[1], 2
    found: dict[str, tuple[int, int]] = {}
    for flag, name, size in FIELDS:
        if flags & flag:
            start, end = at, at + size
            if size == SHORT_STRING:
                start, end = at + 1, at + 1 + properties[at]
            elif size == TABLE:
                end = at + 4 + int.from_bytes(properties[at : at + 4], "big")
            found[name] = (start, end)
            at = end
    return found
