"""The messages of one level of a backlog as readers see them that each have a place of their own in it.

A reader asks for the messages from a position on, and finds them in the time of a search by halves, wherever it is; so
it can go through a million messages in as many steps as it likes. Messages come at the end. Those that have left the
queue stay until `sweep` comes to them, a few blocks at a time. A message that comes back has no place here: each reader
begins with those that came back before (`returned`), and is notified of others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.contents.backlog import Level

__all__ = ["Trail"]

BLOCK: Final = 512  # messages

_POSITION: Final = attrgetter("position")


class Trail:
    """The trail of a level; `end` is the position after the last message, `size` their number, gone ones included."""

    __slots__ = ("_blocks", "_firsts", "_level", "_swept", "end", "size")

    def __init__(self, level: Level) -> None:
        self._level = level
        self._blocks: list[list[Held]] = []  # in the order of positions
        self._firsts: list[int] = []  # the position from which on each block has the messages
        self._swept = 0  # the next block to sweep
        self.end = self.size = 0
        self._extend([*level.line.swept, *level.line.ready])

    def returned(self) -> list[Held]:
        """The messages of the level that came back and are there still."""
        return list(self._level.returned)

    def read_new(self) -> bool:
        """Take in what was published since. Returns whether there was anything."""
        line, end, new = self._level.line, self.end, list[Held]()
        last = line.last()
        if last is None or last.position < end:
            return False
        for part in (line.ready, line.swept):
            new += takewhile(lambda held: held.position >= end, reversed(part))
            if len(new) < len(line.ready):
                break
        self._extend(new[::-1])
        return True

    def _extend(self, messages: Sequence[Held]) -> None:
        blocks, at = self._blocks, 0
        if not messages:
            return
        if blocks and len(blocks[-1]) < BLOCK:
            at = BLOCK - len(blocks[-1])
            blocks[-1] += messages[:at]
        while at < len(messages):
            block = list(messages[at : at + BLOCK])
            blocks.append(block)
            self._firsts.append(block[0].position)
            at += BLOCK
        self.size += len(messages)
        self.end = messages[-1].position + 1

    def read(self, position: int) -> tuple[list[Held], int]:
        """The next ready messages from a position on, up to the end of a block, and the position to read on from."""
        blocks, firsts = self._blocks, self._firsts
        at = max(0, bisect_right(firsts, position) - 1)
        if at >= len(blocks):
            return [], self.end
        block = blocks[at]
        start = bisect_left(block, position, key=_POSITION) if position > firsts[at] else 0
        end = firsts[at + 1] if at + 1 < len(firsts) else self.end
        return [held for held in block[start:] if not held.gone], end

    def sweep(self, count: int) -> None:
        """Drop the messages that are gone from the next `count` blocks; the first ones follow the last ones."""
        blocks, firsts, at = self._blocks, self._firsts, self._swept
        for _ in range(min(count, len(blocks))):
            if at >= len(blocks):
                at = 0
            left = [held for held in blocks[at] if not held.gone]
            self.size -= len(blocks[at]) - len(left)
            if left:
                blocks[at] = left
                at += 1
            else:
                del blocks[at], firsts[at]
        self._swept = at
