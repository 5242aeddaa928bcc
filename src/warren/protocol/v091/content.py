"""A message on the wire: one header frame and its body frames, kept as the bytes they came in.

Nothing is decoded until somebody asks. A broker passes the frames on as they are (only a channel number that differs
is rewritten); a client asks for properties and body. Frames are laid out as

    header frame: 2, channel, length | class id 60, weight 0, body size (8 bytes) | flags, properties | 206
    body frames:  3, channel, length | bytes | 206     (none when the body is empty)
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from warren.protocol.v091.codec import END, FRAME_OVERHEAD, FRAME_PREFIX, decode_properties
from warren.protocol.v091.methods import FRAME_BODY, FRAME_HEADER, Properties

__all__ = ["Content", "OversizedContent", "encode_content"]

HEADER_FIXED: Final = Struct(">HHQ")  # class id, weight, body size: what precedes the property flags
BASIC_CLASS: Final = 60
FLAGS_AT: Final = 7 + HEADER_FIXED.size  # of the property flags in the header frame
_LENGTH: Final = Struct(">I")
_CHANNEL: Final = Struct(">H")

_DELIVERY_MODE, _BEFORE_DELIVERY_MODE = 0x1000, 0xE000  # content-type, content-encoding and headers precede it


class Content:
    """A message as it crossed the wire.

    channel    the channel number in its frames
    method     payload of the method frame that carried it (class id, method id, arguments)
    frames     header frame and body frames, as they came
    body_size  length of the body in bytes
    """

    __slots__ = ("_properties", "body_size", "channel", "frames", "method")

    def __init__(self, channel: int, method: bytes, frames: bytes, body_size: int) -> None:
        self.channel = channel
        self.method = method
        self.frames = frames
        self.body_size = body_size

    @property
    def properties(self) -> Properties:
        """Decoded at the first use and kept. RemoteProtocolError (502) when malformed."""
        try:
            return self._properties
        except AttributeError:
            self._properties: Properties = self.decode_properties()
            return self._properties

    def decode_properties(self) -> Properties:
        """As `properties`, but not kept: for a broker that looks once and stores the message for long."""
        return decode_properties(self.raw_properties, 0, self.channel)

    @property
    def raw_properties(self) -> bytes:
        """Property flags and values as they came."""
        return self.frames[FLAGS_AT : self._header_end - 1]

    @property
    def persistent(self) -> bool:
        """delivery-mode 2, read without decoding the rest where nothing stands before it."""
        frames = self.frames
        flags = frames[FLAGS_AT] << 8 | frames[FLAGS_AT + 1]
        if not flags & _DELIVERY_MODE:
            return False
        if not flags & _BEFORE_DELIVERY_MODE:
            return frames[FLAGS_AT + 2] == 2
        return self.decode_properties().delivery_mode == 2

    @property
    def body(self) -> bytes:
        frames, at = self.frames, self._header_end
        if self.body_size == len(frames) - at - FRAME_OVERHEAD:  # nearly always: one body frame
            return frames[at + 7 : -1]
        pieces = []
        while at < len(frames):
            stop = at + 7 + _LENGTH.unpack_from(frames, at + 3)[0]
            pieces.append(frames[at + 7 : stop])
            at = stop + 1
        return b"".join(pieces)

    @property
    def _header_end(self) -> int:
        return FRAME_OVERHEAD + int(_LENGTH.unpack_from(self.frames, 3)[0])

    def frames_for(self, channel: int, frame_max: int) -> bytes:
        """The frames for another connection: on that channel, none larger than `frame_max` bytes."""
        if len(self.frames) > frame_max and self._largest_frame() > frame_max:
            return encode_content(channel, self.raw_properties, self.body, frame_max)
        if channel == self.channel:
            return self.frames
        frames, at, number = bytearray(self.frames), 0, _CHANNEL.pack(channel)
        while at < len(frames):
            frames[at + 1 : at + 3] = number
            at += FRAME_OVERHEAD + _LENGTH.unpack_from(frames, at + 3)[0]
        return bytes(frames)

    def _largest_frame(self) -> int:
        largest = at = 0
        while at < len(self.frames):
            size = FRAME_OVERHEAD + _LENGTH.unpack_from(self.frames, at + 3)[0]
            largest = max(largest, size)
            at += size
        return largest

    def __repr__(self) -> str:
        return f"Content(channel={self.channel}, body_size={self.body_size}, properties={self.properties!r})"


class OversizedContent:
    """A header frame that announced more than `max_message_size` bytes; its body will be thrown away."""

    __slots__ = ("body_size", "method")

    def __init__(self, method: bytes, body_size: int) -> None:
        self.method = method
        self.body_size = body_size


def encode_content(channel: int, properties: Properties | bytes, body: bytes, frame_max: int) -> bytes:
    """Header frame and body frames, none larger than `frame_max` bytes (0: no limit)."""
    raw = properties if isinstance(properties, bytes) else properties.encode()
    size, room = len(body), (frame_max or 1 << 31) - FRAME_OVERHEAD
    head = b"%b%b%b%b" % (
        FRAME_PREFIX.pack(FRAME_HEADER, channel, HEADER_FIXED.size + len(raw)),
        HEADER_FIXED.pack(BASIC_CLASS, 0, size),
        raw,
        END,
    )
    if not size:
        return head
    if size <= room:
        return b"%b%b%b%b" % (head, FRAME_PREFIX.pack(FRAME_BODY, channel, size), body, END)
    pieces = [head]
    for start in range(0, size, room):
        piece = body[start : start + room]
        pieces += (FRAME_PREFIX.pack(FRAME_BODY, channel, len(piece)), piece, END)
    return b"".join(pieces)
