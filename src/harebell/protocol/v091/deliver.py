"""The frames of basic.deliver and basic.get-ok, which carry messages to a client, joined from cached bytes.

A basic.deliver frame is in three pieces, so that a delivery is a join of cached bytes around its tag.

    prefix (cached per consumer and length of the end)  | delivery tag | end (cached per address and redelivered flag)
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from harebell.protocol.v091.codec import FRAME_PREFIX
from harebell.protocol.v091.fields import write_shortstr
from harebell.protocol.v091.methods import FRAME_END, FRAME_METHOD

__all__ = ["DeliverPrefixes", "encode_get_ok", "pack_tag"]

_DELIVER: Final = b"\0\x3c\0\x3c"  # class 60, method 60
pack_tag: Final[Callable[[int], bytes]] = Struct(">Q").pack


_GET_OK: Final = Struct(">BHIIQB")  # frame type, channel, length | class 60, method 71 | delivery tag, redelivered
_COUNT_AND_END: Final = Struct(">IB")


def encode_get_ok(channel: int, tag: int, redelivered: bool, address: bytes, message_count: int) -> bytes:
    """The frame of basic.get-ok; `address` is exchange and routing key as short strings."""
    size = _GET_OK.size - 7 + len(address) + 4
    front = _GET_OK.pack(FRAME_METHOD, channel, size, 0x3C0047, tag, redelivered)
    return b"%b%b%b" % (front, address, _COUNT_AND_END.pack(message_count, FRAME_END))


class DeliverPrefixes(dict[int, bytes]):
    """For one consumer: length of the frame's end -> the frame up to the delivery tag. At most 513 entries."""

    __slots__ = ("_channel", "_tag")

    def __init__(self, channel: int, consumer_tag: str) -> None:
        super().__init__()
        self._channel = channel
        self._tag = write_shortstr(consumer_tag, "consumer_tag")

    def __missing__(self, end_length: int) -> bytes:
        payload = len(_DELIVER) + len(self._tag) + 8 + end_length - 1  # the frame-end octet is not payload
        prefix = FRAME_PREFIX.pack(FRAME_METHOD, self._channel, payload) + _DELIVER + self._tag
        self[end_length] = prefix
        return prefix
