"""Frames: a header of 12 octets and a part of a segment.

    flags, type, size (with the header), track (0 controls, 1 commands), channel, 4 octets of zero

A command with its header and body is a series of segments, each in one frame or more. The flags say where a frame is in
its segment, and where the segment is in the series. Frames of one track of one channel do not mix; others may. A
segment that is longer than the peer's max-frame-size allows is cut, so there is nothing that does not fit a frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["PROTOCOL_HEADER", "channel_of", "command_frames", "control_frames", "payload_of", "rechannelled"]

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x00\x0a"
FRAME: Final = Struct(">BBHHHI")
FRAME_HEADER: Final = 12
LARGEST_FRAME: Final = 65_535  # its size has 16 bits

FIRST_SEGMENT: Final = 0x08
LAST_SEGMENT: Final = 0x04
FIRST_FRAME: Final = 0x02
LAST_FRAME: Final = 0x01
ALONE: Final = 0x0F  # the only frame of the only segment
BEGINS: Final = 0x0A  # in each first frame of a first segment
OPENING: Final = 0x0B  # a command's only frame; a header or a body follows

CONTROL: Final = 0  # types of segments
COMMAND: Final = 1
HEADER: Final = 2
BODY: Final = 3

_CHANNEL: Final = Struct(">H")
_SIZE: Final = Struct(">H")


def control_frames(channel: int, payload: bytes, max_frame_size: int) -> bytes:
    """The frames of a control."""
    return segment_frames(FIRST_SEGMENT | LAST_SEGMENT, CONTROL, 0, channel, payload, max_frame_size)


def command_frames(channel: int, payload: bytes, max_frame_size: int, content: bool = False) -> bytes:
    """The frames of a command; with `content`, a header or a body follows."""
    place = FIRST_SEGMENT if content else FIRST_SEGMENT | LAST_SEGMENT
    return segment_frames(place, COMMAND, 1, channel, payload, max_frame_size)


def segment_frames(place: int, kind: int, track: int, channel: int, payload: bytes, max_frame_size: int) -> bytes:
    """The frames of a segment whose place in the series is given by the flags FIRST_SEGMENT and LAST_SEGMENT."""
    size = len(payload)
    room = max_frame_size - FRAME_HEADER
    if size <= room:
        flags = place | FIRST_FRAME | LAST_FRAME
        return FRAME.pack(flags, kind, FRAME_HEADER + size, track, channel, 0) + payload
    pieces: list[bytes] = []
    for start in range(0, size, room):
        piece = payload[start : start + room]
        flags = place | (0 if start else FIRST_FRAME) | (LAST_FRAME if start + room >= size else 0)
        pieces += (FRAME.pack(flags, kind, FRAME_HEADER + len(piece), track, channel, 0), piece)
    return b"".join(pieces)


def size_at(frames: bytes, at: int) -> int:
    """The size of the frame at `at`, with its header."""
    size: int = _SIZE.unpack_from(frames, at + 2)[0]
    return size


def channel_of(frames: bytes) -> int:
    """The channel that the first frame is on."""
    channel: int = _CHANNEL.unpack_from(frames, 6)[0]
    return channel


def payload_of(frames: bytes, at: int = 0, end: int | None = None) -> bytes:
    """What the frames between `at` and `end` carry, joined."""
    stop = len(frames) if end is None else end
    if at < stop and at + size_at(frames, at) == stop:  # nearly always
        return frames[at + FRAME_HEADER : stop]
    view, pieces = memoryview(frames), []
    while at < stop:
        after = at + size_at(frames, at)
        pieces.append(view[at + FRAME_HEADER : after])
        at = after
    return b"".join(pieces)


def rechannelled(frames: bytes, channel: int) -> bytes:
    """The same frames on another channel."""
    number, at = _CHANNEL.pack(channel), 0
    end = size_at(frames, 0) if frames else 0
    if end and end < len(frames) and end + size_at(frames, end) == len(frames):  # nearly always two
        return b"%b%b%b%b%b" % (frames[:6], number, frames[8 : end + 6], number, frames[end + 8 :])
    pieces: list[bytes] = []
    while at < len(frames):
        after = at + size_at(frames, at)
        pieces += (frames[at : at + 6], number, frames[at + 8 : after])
        at = after
    return b"".join(pieces)


def largest(frames: bytes) -> int:
    """The size of the largest frame."""
    most, at = 0, 0
    while at < len(frames):
        size = size_at(frames, at)
        most = max(most, size)
        at += size
    return most
