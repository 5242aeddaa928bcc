"""The frames of many transfers at once.

`encode_content` makes the frames of one message; these make thousands, and a message makes no object but its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final

from harebell.protocol.v010.content import encode_content
from harebell.protocol.v010.frames import (
    BODY,
    FRAME,
    FRAME_HEADER,
    HEADER,
    command_frames,
)

__all__ = ["encode_transfers"]

_FOLLOWED: Final = 0x03  # flags of the only frame of a header that a body follows
_LAST: Final = 0x07  # flags of the only frame of the last segment


def encode_transfers(
    channel: int, commands: bytes | Sequence[bytes], headers: Sequence[bytes], bodies: Sequence[bytes], most: int
) -> list[bytes]:
    """The frames of each transfer: its command, its header and its body, none longer than `most` octets.

    commands  the payload of the command, one for all or one for each
    """
    room = most - FRAME_HEADER
    opened: dict[tuple[bytes, int], bytes] = {}  # by command and length of the header: there are few
    heads: dict[int, bytes] = {}
    found = []
    each = repeat(commands, len(bodies)) if isinstance(commands, bytes) else commands
    for command, header, body in zip(each, headers, bodies, strict=True):
        length, size = len(header), len(body)
        if not 0 < length <= room or not 0 < size <= room:
            content = encode_content(channel, header, body, most)
            found.append(command_frames(channel, command, most, bool(content)) + content)
            continue
        opening = opened.get((command, length))
        if opening is None:
            start = FRAME.pack(_FOLLOWED, HEADER, FRAME_HEADER + length, 1, channel, 0)
            opening = opened[command, length] = command_frames(channel, command, most, content=True) + start
        head = heads.get(size)
        if head is None:
            head = heads[size] = FRAME.pack(_LAST, BODY, FRAME_HEADER + size, 1, channel, 0)
        found.append(b"%b%b%b%b" % (opening, header, head, body))
    return found
