"""The sequence header of a queue: each message gets its number in the queue, from 1 (`x-sequence-header`).

A consumer of a queue that drops its oldest messages sees by the gap how many it has missed. The header is a signed
integer of 64 bits, and replaces one of the same name. A message whose properties would not fit a frame then goes
without it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from harebell.broker.message import MarkedMessage, Message
from harebell.protocol.v091 import Content
from harebell.protocol.v091.content import FLAGS_AT
from harebell.protocol.v091.splice import LongHeader, header_frame_size, replace_raw_properties

__all__ = ["numbered"]

MAX_HEADER: Final = 128 << 10  # bytes of a header frame that any client takes


def numbered(message: Message, name: str, number: int) -> Message:
    """The message with this header."""
    header, source = _header(name), message.content
    frames = source.frames
    if header.may_be_in(frames):
        properties = frames[FLAGS_AT : header_frame_size(frames) - 1]
        frames = replace_raw_properties(frames, header.take_from(properties))
    frames = header.put_into(frames, number)
    if header_frame_size(frames) > MAX_HEADER:
        return message
    content = Content(source.channel, source.method, frames, source.body_size)
    if type(message) is Message:
        return Message(message.address, content)
    return MarkedMessage(
        message.address, content, message.keys, message.bcc,
        died=message.died, ttl=message.ttl, number=message.number,
    )  # fmt: skip


@cache
def _header(name: str) -> LongHeader:
    return LongHeader(name)
