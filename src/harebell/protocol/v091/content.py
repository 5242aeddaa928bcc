"""A message on the wire: one header frame and its body frames, stored as the bytes that were received.

Only a large body is stored in frames of full size, on one channel (`assembly`), so that nothing has to be cut later.

A Content decodes its properties at their first use. A broker passes the frames on as they are, and rewrites only a
channel number that differs; a client reads properties and body. The layout of the frames:

    header frame: 2, channel, length | class id 60, weight 0, body size (8 bytes) | flags, properties | 206
    body frames:  3, channel, length | bytes | 206     (none when the body is empty)
"""

from __future__ import annotations

from abc import abstractmethod
from struct import Struct, error as StructError
from typing import Final

from harebell.protocol.v091.codec import (
    END,
    FRAME_OVERHEAD,
    FRAME_PREFIX,
    check_properties,
    decode_method,
    decode_properties,
    encode_properties,
    too_long,
)
from harebell.protocol.v091.methods import FRAME_BODY, FRAME_HEADER, Method, Properties
from harebell.protocol.v091.property_flags import (
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    delivery_mode_at,
    expiration_at,
    headers_at,
    priority_at,
)

__all__ = ["BaseContent", "Content", "OversizedContent", "encode_content", "stored_content"]

HEADER_FIXED: Final = Struct(">HHQ")  # class id, weight, body size: what precedes the property flags
BASIC_CLASS: Final = 60
FLAGS_AT: Final = 7 + HEADER_FIXED.size  # of the property flags in the header frame
_LENGTH: Final = Struct(">I")
_CHANNEL: Final = Struct(">H")

CONTENT_HEAD: Final = Struct(">BHIHHQ")  # a header frame up to its property flags
NEXT_BODY: Final = Struct(">BBHI")  # the end of a header frame, and a body frame up to the body

# the header frame's payload length and its property flags
SIZE_AND_FLAGS: Final = Struct(">3xI12xH")
NO_PROPERTIES: Final = (HEADER_FIXED.size + 2, 0)
DELIVERY_MODE_ONLY: Final = (HEADER_FIXED.size + 3, DELIVERY_MODE)

# These four flags are in the first of the two octets.
_HEADERS, _DELIVERY_MODE, _PRIORITY, _EXPIRATION = HEADERS >> 8, DELIVERY_MODE >> 8, PRIORITY >> 8, EXPIRATION >> 8


class BaseContent:
    """A message in its frames, which a subclass has, or makes where they are asked for.

    channel    the channel number in its frames
    method     payload of the method frame that carried it (class id, method id, arguments)
    frames     header frame and body frames, as received; those of a large body may be cut otherwise
    body_size  length of the body in bytes
    """

    __slots__ = ("_properties", "body_size", "channel", "method")

    channel: int
    method: bytes
    body_size: int

    @property
    @abstractmethod
    def frames(self) -> bytes: ...

    @property
    def properties(self) -> Properties:
        """The properties, decoded at the first use. Raises RemoteProtocolError (502) when they are malformed."""
        try:
            return self._properties
        except AttributeError:
            self._properties: Properties = self.decode_properties()
            return self._properties

    def decode_method(self) -> Method:
        """The method that carried the message. Raises RemoteProtocolError (502) when its arguments are malformed."""
        return decode_method(self.method, self.channel)

    def decode_properties(self) -> Properties:
        """The properties, decoded anew: for a broker, which reads them once and stores the message for long."""
        return decode_properties(self.raw_properties, 0, self.channel)

    def checked_properties(self) -> bytes:
        """The encoded properties, checked. Raises RemoteProtocolError (502) when they are malformed.

        A broker passes properties on undecoded, and must not let malformed ones reach its consumers. The check walks
        lengths and builds nothing.
        """
        raw = self.raw_properties
        check_properties(raw, 0, self.channel)
        return raw

    @property
    def raw_properties(self) -> bytes:
        """The encoded properties (flags and values), as received."""
        frames = self.frames
        return frames[FLAGS_AT : 7 + _LENGTH.unpack_from(frames, 3)[0]]

    @property
    def raw_headers(self) -> bytes:
        """The encoded headers table, with its length; b"" where there is none or the properties are malformed."""
        frames = self.frames
        if not frames[FLAGS_AT] & _HEADERS:
            return b""
        try:
            at = headers_at(frames, FLAGS_AT)
            return frames[at : at + 4 + _LENGTH.unpack_from(frames, at)[0]]
        except (IndexError, StructError):
            return b""

    @property
    def flags(self) -> int:
        """The property flags: which properties the message has (specification 2.3.5.2)."""
        frames = self.frames
        return frames[FLAGS_AT] << 8 | frames[FLAGS_AT + 1]

    @property
    def persistent(self) -> bool:
        """True for delivery-mode 2, read without decoding the rest; malformed properties give either answer."""
        frames = self.frames
        if not frames[FLAGS_AT] & _DELIVERY_MODE:
            return False
        try:
            return frames[delivery_mode_at(frames, FLAGS_AT)] == 2
        except IndexError:
            return False

    @property
    def priority(self) -> int:
        """The priority (0: none), read without decoding the rest. The caller has checked the properties."""
        frames = self.frames
        return frames[priority_at(frames, FLAGS_AT)] if frames[FLAGS_AT] & _PRIORITY else 0

    @property
    def expiration(self) -> bytes | None:
        """The expiration's bytes, read without decoding the rest. The caller has checked the properties."""
        frames = self.frames
        if not frames[FLAGS_AT] & _EXPIRATION:
            return None
        at = expiration_at(frames, FLAGS_AT)
        return frames[at + 1 : at + 1 + frames[at]]

    def first_header(self, entry: bytes) -> int | None:
        """The int64 of the headers table's first entry, read without decoding the table.

        `entry` is that entry up to its value: length of the name, name, type letter (b"\x01nl"). None when the first
        entry is another one: then the caller decodes the table. The same bytes elsewhere in the table do not count.
        """
        frames = self.frames
        if not frames[FLAGS_AT] & _HEADERS:
            return None
        at = headers_at(frames, FLAGS_AT) + 4  # behind the table's length
        if not frames.startswith(entry, at):
            return None
        at += len(entry)
        return int.from_bytes(frames[at : at + 8], "big", signed=True)

    @property
    def body(self) -> bytes:
        """The whole body; joined at each use when it came in several frames."""
        frames, at = self.frames, self._header_end
        if self.body_size == len(frames) - at - FRAME_OVERHEAD:  # nearly always: one body frame
            return frames[at + 7 : -1]
        return body_of(frames, at)

    @property
    def _header_end(self) -> int:
        return FRAME_OVERHEAD + int(_LENGTH.unpack_from(self.frames, 3)[0])

    def frames_for(self, channel: int, frame_max: int) -> bytes:
        """The frames to send to a peer: on that channel, no frame longer than `frame_max` bytes (0: no limit).

        LocalProtocolError when the header frame is longer: it cannot be cut.
        """
        if 0 < frame_max < len(self.frames) and frame_max < self._header_end:
            raise too_long("the message", "properties", self._header_end, frame_max)
        if channel == self.channel and (not frame_max or len(self.frames) <= frame_max):
            return self.frames
        return self.recut(channel, frame_max)

    def recut(self, channel: int, frame_max: int) -> bytes:
        """The frames to store: on that channel, body frames cut to `frame_max` bytes, the header frame as it is."""
        if 0 < frame_max < len(self.frames) and self.largest_frame(self._header_end) > frame_max:
            return encode_content(channel, self.raw_properties, self.body, frame_max)
        if channel == self.channel:
            return self.frames
        frames, at, number = bytearray(self.frames), 0, _CHANNEL.pack(channel)
        while at < len(frames):
            frames[at + 1 : at + 3] = number
            at += FRAME_OVERHEAD + _LENGTH.unpack_from(frames, at + 3)[0]
        return bytes(frames)

    def largest_frame(self, at: int = 0) -> int:
        """The length of the longest frame, of those from this place on."""
        largest = 0
        while at < len(self.frames):
            size = FRAME_OVERHEAD + _LENGTH.unpack_from(self.frames, at + 3)[0]
            largest = max(largest, size)
            at += size
        return largest

    def __repr__(self) -> str:
        return f"Content(channel={self.channel}, body_size={self.body_size}, properties={self.raw_properties!r})"


class Content(BaseContent):
    """A message as it came."""

    __slots__ = ("frames",)

    frames: bytes

    def __init__(self, channel: int, method: bytes, frames: bytes, body_size: int) -> None:
        self.channel = channel
        self.method = method
        self.frames = frames
        self.body_size = body_size


class OversizedContent:
    """A header frame that announced more than `max_message_size` bytes; the engine drops the body.

    method     payload of the method frame that carried it (class id, method id, arguments)
    body_size  the announced length in bytes
    """

    __slots__ = ("body_size", "method")

    def __init__(self, method: bytes, body_size: int) -> None:
        self.method = method
        self.body_size = body_size


def body_of(frames: bytes, at: int) -> bytes:
    """The body in the body frames from `at` on."""
    view, pieces = memoryview(frames), []
    while at < len(frames):
        stop = at + 7 + _LENGTH.unpack_from(frames, at + 3)[0]
        pieces.append(view[at + 7 : stop])
        at = stop + 1
    return b"".join(pieces)


def stored_content(channel: int, frames: bytes) -> Content:
    """The Content of stored frames, which have no method; `channel` is the channel number in them."""
    return Content(channel, b"", frames, HEADER_FIXED.unpack_from(frames, FLAGS_AT - HEADER_FIXED.size)[2])


def check_frames(frames: bytes, frame_max: int) -> None:
    """Raise LocalProtocolError when a frame of the content is longer than `frame_max` bytes."""
    at = 0
    while at < len(frames):
        size = FRAME_OVERHEAD + _LENGTH.unpack_from(frames, at + 3)[0]
        if size > frame_max:
            raise too_long("a message", "body" if at else "properties", size, frame_max)
        at += size


def encode_content(channel: int, properties: Properties | bytes, body: bytes, frame_max: int) -> bytes:
    """Header frame and body frames, the body cut to frames of at most `frame_max` bytes (0: no limit).

    The header frame is as long as the properties make it: `Engine.send_message` refuses one that is too long.

    Raises LocalProtocolError when a property does not fit its type.
    """
    raw = properties if isinstance(properties, bytes) else encode_properties(properties)
    size, room = len(body), (frame_max or 1 << 31) - FRAME_OVERHEAD
    head = CONTENT_HEAD.pack(FRAME_HEADER, channel, HEADER_FIXED.size + len(raw), BASIC_CLASS, 0, size)
    if not size:
        return b"%b%b%b" % (head, raw, END)
    if size <= room:
        return b"%b%b%b%b%b" % (head, raw, NEXT_BODY.pack(206, FRAME_BODY, channel, size), body, END)
    pieces = [head, raw, END]
    for start in range(0, size, room):
        piece = body[start : start + room]
        pieces += (FRAME_PREFIX.pack(FRAME_BODY, channel, len(piece)), piece, END)
    return b"".join(pieces)
