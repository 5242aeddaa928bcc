"""A message on the wire: the header and body frames of a transfer, stored as the bytes that were received.

A Content decodes its properties at their first use. A broker passes the frames on as they are inside the dialect, and
rewrites only a channel that differs. The header segment is a row of structs in any order, each with size and code;
those that nobody here knows are passed on with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct as Packing
from typing import Final

from harebell import errors
from harebell.protocol.v010 import structs as s
from harebell.protocol.v010.codec import decode_command, decode_struct, encode_struct
from harebell.protocol.v010.compounds import Command, Struct
from harebell.protocol.v010.frames import (
    BODY,
    FRAME,
    FRAME_HEADER,
    HEADER,
    LAST_SEGMENT,
    largest,
    payload_of,
    rechannelled,
    segment_frames,
    size_at,
)

__all__ = ["Content", "OversizedContent", "body_of", "encode_content", "encode_header"]

DELIVERY: Final = s.DeliveryProperties.CODE
FRAGMENT: Final = s.FragmentProperties.CODE
MESSAGE: Final = s.MessageProperties.CODE

_HEAD: Final = Packing(">IH")  # of a struct: size (without itself), code
_SIZE: Final = Packing(">2xH")  # of a frame
_HEADER_AND_BODY: Final = 0x03  # flags of the only frame of a header that a body follows
_LAST_WHOLE: Final = 0x07  # flags of the only frame of the last segment


class Content:
    """A message in its frames.

    channel    the channel number in its frames
    command    payload of the command segment that carried it
    frames     header frames and body frames, as received; b"" when there are none
    body_size  length of the body in bytes
    """

    __slots__ = ("_delivery", "_message", "body_size", "channel", "command", "frames")

    def __init__(self, channel: int, command: bytes, frames: bytes, body_size: int) -> None:
        self.channel = channel
        self.command = command
        self.frames = frames
        self.body_size = body_size

    def decode_command(self) -> Command:
        """The command that carried the message. Raises RemoteProtocolError (503) when its fields are malformed."""
        return decode_command(self.command, self.channel)

    @property
    def sync(self) -> bool:
        """The sync flag of the command, read without decoding the rest."""
        return self.command[3:4] == b"\1"

    @property
    def header(self) -> bytes:
        """The header segment: structs, each with its size and code; b"" where there is none."""
        frames = self.frames
        return payload_of(frames, 0, _header_end(frames))

    @property
    def header_size(self) -> int:
        """The bytes of the header frames."""
        return _header_end(self.frames)

    @property
    def body(self) -> bytes:
        """The whole body; joined at each use when it came in several frames."""
        return body_of(self.frames)

    def raw(self, code: int) -> bytes:
        """The struct of that code in the header: packing flags and fields; b"" where there is none.

        It is found without decoding anything, so it can be the key of a cache. Raises RemoteProtocolError (503) when
        the header is malformed.
        """
        for found, raw in self.structs():
            if found == code:
                return raw
        return b""

    def structs(self) -> Iterator[tuple[int, bytes]]:
        """Code, and packing flags with fields, of each struct in the header. Raises as `raw`."""
        header = self.header
        at, end = 0, len(header)
        while at < end:
            if end - at < 8:
                raise self._malformed(f"{end - at} octets at {at} are no struct")
            size, code = _HEAD.unpack_from(header, at)
            after = at + 4 + size
            if size < 4 or after > end:
                raise self._malformed(f"a struct at octet {at} has {size} octets")
            yield code, header[at + 6 : after]
            at = after

    def check(self) -> None:
        """Raise RemoteProtocolError (503) when header or properties are malformed, or a struct is there twice.

        A broker passes the header on, and must not let a malformed one reach its consumers.
        """
        seen = set()
        for code, raw in self.structs():
            if code in seen:
                raise self._malformed(f"two structs of code {code:#06x}")
            seen.add(code)
            if code == FRAGMENT:
                decode_struct(s.FragmentProperties, raw, self.channel)
        self.delivery_properties  # noqa: B018  decoded for the error; stored for the next reader
        self.message_properties  # noqa: B018

    @property
    def delivery_properties(self) -> s.DeliveryProperties:
        """The delivery properties, decoded at the first use; empty ones where there are none. Raises as `raw`."""
        try:
            return self._delivery
        except AttributeError:
            raw = self.raw(DELIVERY) or b"\0\0"
            self._delivery: s.DeliveryProperties = decode_struct(s.DeliveryProperties, raw, self.channel)
            return self._delivery

    @property
    def message_properties(self) -> s.MessageProperties:
        """The message properties, decoded at the first use; empty ones where there are none. Raises as `raw`."""
        try:
            return self._message
        except AttributeError:
            raw = self.raw(MESSAGE) or b"\0\0"
            self._message: s.MessageProperties = decode_struct(s.MessageProperties, raw, self.channel)
            return self._message

    def with_delivery(self, raw: bytes, max_frame_size: int) -> Content:
        """The same message with other delivery properties, given as packing flags and fields.

        The other structs stay as they are, byte for byte. Raises as `raw`.
        """
        new = b"%b%b" % (_HEAD.pack(2 + len(raw), DELIVERY), raw)
        pieces, placed = [], False
        for code, own in self.structs():
            if code == DELIVERY:
                pieces.append(new)
                placed = True
            else:
                pieces.append(b"%b%b" % (_HEAD.pack(2 + len(own), code), own))
        if not placed:
            pieces.insert(0, new)
        frames, end = self.frames, _header_end(self.frames)
        place = 0 if end < len(frames) else LAST_SEGMENT
        head = segment_frames(place, HEADER, 1, self.channel, b"".join(pieces), max_frame_size)
        return Content(self.channel, self.command, head + frames[end:] if end else head + frames, self.body_size)

    def frames_for(self, channel: int, max_frame_size: int) -> bytes:
        """The frames to send to a peer: on that channel, none longer than `max_frame_size`."""
        frames = self.frames
        if len(frames) > max_frame_size and largest(frames) > max_frame_size:
            return encode_content(channel, self.header, self.body, max_frame_size)
        if channel == self.channel:
            return frames
        return rechannelled(frames, channel)

    def _malformed(self, said: str) -> errors.RemoteProtocolError:
        said = f"malformed header segment: {said}"
        return errors.RemoteProtocolError(errors.CommandInvalid, said, 4, 1, self.channel, "channel")

    def __repr__(self) -> str:
        return f"Content(channel={self.channel}, body_size={self.body_size}, header={self.header!r})"


class OversizedContent:
    """A transfer whose header or body is longer than the limits; the engine drops it.

    command  payload of the command segment that carried it
    limit    the limit in bytes that it exceeds
    """

    __slots__ = ("command", "limit")

    def __init__(self, command: bytes, limit: int) -> None:
        self.command = command
        self.limit = limit


def _header_end(frames: bytes) -> int:
    """The end of the header frames."""
    at = 0
    while at < len(frames) and frames[at + 1] == HEADER:
        at += size_at(frames, at)
    return at


def body_of(frames: bytes) -> bytes:
    """The body in the frames of a message."""
    at = _SIZE.unpack_from(frames)[0] if frames[1:2] == b"\2" else 0  # nearly always one frame of header, one of body
    if frames[at + 1 : at + 2] == b"\3" and at + _SIZE.unpack_from(frames, at)[0] == len(frames):
        return frames[at + FRAME_HEADER :]
    return payload_of(frames, _header_end(frames))


def encode_header(structs: Sequence[Struct]) -> bytes:
    """The header segment of these structs. LocalProtocolError when a field does not fit its type."""
    return b"".join([encode_struct(struct) for struct in structs])


def encode_content(channel: int, header: bytes, body: bytes, max_frame_size: int) -> bytes:
    """Header frames and body frames. An empty header or body has no frame; b"" for both: the command stands alone."""
    size, length = FRAME_HEADER + len(header), FRAME_HEADER + len(body)
    if header and body and size <= max_frame_size and length <= max_frame_size:
        return b"%b%b%b%b" % (
            FRAME.pack(_HEADER_AND_BODY, HEADER, size, 1, channel, 0),
            header,
            FRAME.pack(_LAST_WHOLE, BODY, length, 1, channel, 0),
            body,
        )
    frames = b""
    if header:
        frames = segment_frames(0 if body else LAST_SEGMENT, HEADER, 1, channel, header, max_frame_size)
    if body:
        frames += segment_frames(LAST_SEGMENT, BODY, 1, channel, body, max_frame_size)
    return frames
