"""Leave out headers that brokers add to a message, as far as its header frame is too long for a peer.

A queue adds the delivery count, a dead letter its deaths, a stream its offset. A message that was accepted must not
become one that fits no frame by that. So where a header frame is longer than the peer's `frame_max`, headers are left
out in this order, until it fits:

1. x-delivery-count
2. the oldest entries of x-death, all but the newest
3. x-last-death-reason, -queue and -exchange, then x-first-death-reason, -queue and -exchange
4. x-death
5. x-delay
6. x-stream-offset

Any other header is the publisher's and stays. The names decide, also where a publisher sent one of these headers. All
other entries keep their bytes and their order.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from harebell.protocol.v091.codec import FRAME_OVERHEAD
from harebell.protocol.v091.content import FLAGS_AT, HEADER_FIXED, BaseContent, Content
from harebell.protocol.v091.fields import Table, skip_value, write_table
from harebell.protocol.v091.large_frames import LARGE, Frames, LargeFrames
from harebell.protocol.v091.property_flags import HEADERS, headers_at
from harebell.protocol.v091.splice import DELIVERY_COUNT, STREAM_OFFSET, header_frame_size, replace_raw_properties

__all__ = ["fits", "fitting_frames", "shortened", "without_long_headers"]

OTHER_PROPERTIES: Final = 2700  # bytes that all properties but the headers can take, with the frame around them

_DEATHS: Final = b"x-death"
_DEATH_FACTS: Final = tuple(
    f"x-{which}-death-{what}".encode() for which in ("last", "first") for what in ("reason", "queue", "exchange")
)
_BEFORE_DEATHS: Final = (DELIVERY_COUNT.name.encode(),)
_AFTER_DEATHS: Final = (*_DEATH_FACTS, _DEATHS, b"x-delay", STREAM_OFFSET.name.encode())
_HEADERS: Final = HEADERS >> 8  # in the first octet of the flags
_LENGTH: Final = Struct(">I")


def fits(frames: bytes, frame_max: int) -> bool:
    """Whether the header frame, first in `frames`, fits a peer with this frame size (0: no limit) when shortened."""
    if not frame_max or len(frames) <= frame_max or header_frame_size(frames) <= frame_max:
        return True
    return shortened(frames, frame_max) is not None


def fitting_frames(content: BaseContent, channel: int, frame_max: int) -> Frames:
    """As `Content.frames_for`, without headers that brokers add where the header frame would be too long with them.

    LocalProtocolError when it is too long without them.
    """
    if len(content.frames) > LARGE:
        return _large_frames(content, channel, frame_max)
    if 0 < frame_max < len(content.frames) and header_frame_size(content.frames) > frame_max:
        frames = shortened(content.frames, frame_max)
        if frames is not None:
            content = Content(content.channel, content.method, frames, content.body_size)
    return content.frames_for(channel, frame_max)


def _large_frames(content: BaseContent, channel: int, frame_max: int) -> Frames:
    frames = content.frames
    if channel == content.channel and content.largest_frame() <= (frame_max or len(frames)):
        return frames
    size = header_frame_size(frames)
    head = Content(content.channel, content.method, frames[:size], content.body_size)
    header = fitting_frames(head, content.channel, frame_max)
    assert isinstance(header, bytes)  # it is not large, or it does not fit
    return LargeFrames(header, frames, size, channel, frame_max)


def shortened(frames: bytes, frame_max: int) -> bytes | None:
    """The frames (header frame first) with a header frame of at most `frame_max` bytes; None when that cannot be.

    The caller has checked the properties.
    """
    if not frames[FLAGS_AT] & _HEADERS:
        return None
    properties = frames[FLAGS_AT : header_frame_size(frames) - 1]
    at = headers_at(properties, 0)
    end = at + 4 + _LENGTH.unpack_from(properties, at)[0]
    entries = _entries(properties, at + 4, end)
    rest = len(properties) - (end - at)  # without the table
    room = frame_max - FRAME_OVERHEAD - HEADER_FIXED.size - rest - 4
    excess = sum(map(len, entries.values())) - room
    for name in _BEFORE_DEATHS:
        if excess > 0:
            excess -= len(entries.pop(name, b""))
    if excess > 0 and _DEATHS in entries:
        deaths = entries[_DEATHS]
        entries[_DEATHS] = _newest(deaths, len(deaths) - excess)
        excess -= len(deaths) - len(entries[_DEATHS])
    for name in _AFTER_DEATHS:
        if excess > 0:
            excess -= len(entries.pop(name, b""))
    if not entries and excess <= 4:  # the table goes too, with its length
        flags = bytes((properties[0] & ~_HEADERS, properties[1]))
        return replace_raw_properties(frames, flags + properties[2:at] + properties[end:])
    if excess > 0:
        return None
    table = b"".join(entries.values())
    return replace_raw_properties(frames, properties[:at] + _LENGTH.pack(len(table)) + table + properties[end:])


def without_long_headers(headers: Table, frame_max: int) -> Table:
    """The headers of a message of our own, without the longest ones as far as their frame would be too long."""
    room = frame_max - OTHER_PROPERTIES
    sizes = {name: len(write_table({name: value})) for name, value in headers.items()}
    while sum(sizes.values()) > room:
        del sizes[max(sizes, key=lambda name: sizes[name])]
    return headers if len(sizes) == len(headers) else {name: headers[name] for name in sizes}


def _entries(properties: bytes, at: int, end: int) -> dict[bytes, bytes]:
    """The encoded entries of the table between `at` and `end`, by their names; a name that is there twice is one."""
    entries: dict[bytes, bytes] = {}
    while at < end:
        start = at
        at += 1 + properties[at]
        name = properties[start + 1 : at]
        at = skip_value(properties, at)
        entries[name] = entries.get(name, b"") + properties[start:at]
    return entries


def _newest(deaths: bytes, size: int) -> bytes:
    """The entry x-death without its oldest deaths: `size` bytes long or shorter, but with the newest one."""
    value = 1 + len(_DEATHS)
    if deaths[value : value + 1] != b"A" or skip_value(deaths, value) != len(deaths):
        return deaths
    first = end = value + 5
    while end < len(deaths):
        after = skip_value(deaths, end)
        if after > size and end > first:
            break
        end = after
    return deaths[: value + 1] + _LENGTH.pack(end - first) + deaths[first:end]
