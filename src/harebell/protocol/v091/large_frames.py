"""The frames of a large message for one peer, as views of the stored ones: its body is not copied.

A copy of 128 MiB takes a tenth of a second, in which nobody else is served, and as much memory for each peer. The
stored body frames keep their bounds, and are cut where a peer takes shorter ones.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from harebell.protocol.v091.codec import END, FRAME_OVERHEAD, FRAME_PREFIX
from harebell.protocol.v091.methods import FRAME_BODY

__all__ = ["LARGE", "Frames", "LargeFrames"]

LARGE: Final = 1 << 20  # bytes of frames above which they are not copied
_LENGTH: Final = Struct(">I")


class LargeFrames:
    """The frames in order, in `pieces`; `len` is their size in bytes.

    header     the header frame, which fits the peer
    stored     stored frames, of which those from `at` on are the body's
    channel    the channel to send them on
    frame_max  the longest frame that the peer takes, in bytes; 0: no limit
    """

    __slots__ = ("_size", "pieces")

    def __init__(self, header: bytes, stored: bytes, at: int, channel: int, frame_max: int) -> None:
        first = header[:1] + channel.to_bytes(2, "big") + header[3:]
        room, view, end = (frame_max or 1 << 31) - FRAME_OVERHEAD, memoryview(stored), len(stored)
        pieces: list[bytes | memoryview] = []
        size, before = len(first), first
        while at < end:
            stop = at + 7 + _LENGTH.unpack_from(stored, at + 3)[0]
            for start in range(at + 7, stop, room):
                body = view[start : min(start + room, stop)]
                pieces += (before + FRAME_PREFIX.pack(FRAME_BODY, channel, len(body)), body)
                size += FRAME_OVERHEAD + len(body)
                before = END
            at = stop + 1
        pieces.append(before if pieces else first)
        self.pieces, self._size = pieces, size

    def __len__(self) -> int:
        return self._size


Frames: TypeAlias = bytes | LargeFrames
"""The frames of a message, to send."""
