"""Messages that came one behind the other, by the same command and with headers of the same length.

A publisher sends the same command and header again and again, and only the body differs, or an id in the header. Such
messages are recognised by their bytes and kept together, which costs a slice or two for each. They are the same
messages as single ones: `contents`.
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
    head     the header frame of the first; `heads` that of each, where they differ
    bodies   the body frame of each
    """

    __slots__ = ("bodies", "channel", "command", "head", "heads")

    def __init__(
        self, channel: int, command: bytes, head: bytes, bodies: list[bytes], heads: list[bytes] | None = None
    ) -> None:
        self.channel = channel
        self.command = command
        self.head = head
        self.bodies = bodies
        self.heads = heads

    @property
    def sync(self) -> bool:
        """The sync flag of the command."""
        return self.command[3:4] == b"\1"

    @property
    def size(self) -> int:
        """The bytes of headers and bodies, in their frames."""
        return len(self.bodies) * len(self.head) + sum(map(len, self.bodies))  # all heads are of one length

    def content(self, place: int) -> Content:
        """One of the messages."""
        body, head = self.bodies[place], self.head if self.heads is None else self.heads[place]
        return Content(self.channel, self.command, head + body, len(body) - FRAME_HEADER)

    def contents(self) -> Iterator[Content]:
        """The messages one by one."""
        return map(self.content, range(len(self.bodies)))
