"""Events that stand for many: what a client sends again and again, read at once.

A publisher sends messages with the same method and properties one after the other, and a consumer acknowledges one
delivery after the other. The bytes that are the same are compared once, and the broker does once what they share.
"""

from __future__ import annotations

from harebell.protocol.v091.content import Content

__all__ = ["AckRun", "ContentRun"]


class ContentRun:
    """Messages that came one after the other on a channel with the same method and the same properties.

    method    payload of the method frame that each of them had
    contents  the messages, two or more
    """

    __slots__ = ("contents", "method")

    def __init__(self, method: bytes, contents: list[Content]) -> None:
        self.method = method
        self.contents = contents

    @property
    def size(self) -> int:
        """The bytes of all frames."""
        return sum(len(content.frames) for content in self.contents)


class AckRun:
    """Two or more basic.ack that came one after the other on a channel, each for one delivery: their tags, in order."""

    __slots__ = ("tags",)

    def __init__(self, tags: list[int]) -> None:
        self.tags = tags
