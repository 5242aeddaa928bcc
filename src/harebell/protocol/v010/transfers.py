"""Messages that came one behind the other, by the same command and with the same header.

A publisher sends the same command and header again and again, and only the body differs. Such messages are recognised
by their bytes and kept together, which costs a slice for each. They are the same messages as single ones: `contents`.
"""

from __future__ import annotations

from collections.abc import Iterator

from harebell.protocol.v010.content import Content
from harebell.protocol.v010.frames import FRAME_HEADER

__all__ = ["Transfers"]


class Transfers:
    """Two messages or more.

    channel  the channel number in their frames
    command  payload of the command segment that carried each
    head     the header frame of each
    bodies   the body frame of each
    """

    __slots__ = ("bodies", "channel", "command", "head")

    def __init__(self, channel: int, command: bytes, head: bytes, bodies: list[bytes]) -> None:
        self.channel = channel
        self.command = command
        self.head = head
        self.bodies = bodies

    @property
    def sync(self) -> bool:
        """The sync flag of the command."""
        return self.command[3:4] == b"\1"

    @property
    def size(self) -> int:
        """The bytes of headers and bodies, in their frames."""
        return len(self.bodies) * len(self.head) + sum(map(len, self.bodies))

    def content(self, place: int) -> Content:
        """One of the messages."""
        body = self.bodies[place]
        return Content(self.channel, self.command, self.head + body, len(body) - FRAME_HEADER)

    def contents(self) -> Iterator[Content]:
        """The messages one by one."""
        return map(self.content, range(len(self.bodies)))
