"""The messages of one level of a backlog as readers see them that each have a place of their own in it.

A reader asks for the messages from a position on, and finds them in the time of a search by halves, wherever it is; so
it can go through a million messages in as many steps as it likes. Messages come at the end. Those that have left the
queue stay until `sweep` comes to them, a few blocks at a time. A message that comes back has no place here: each reader
goes through those too (`returned`), and is notified of others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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

    __slots__ = ("_blocks", "_firsts", "_level", "_swept", "_uncut", "end", "size")

    def __init__(self, level: Level) -> None:
        self._level = level
        self._uncut = level.line.ready.copy()  # the last messages, which no reader has come to
        if level.line.swept:
            self._uncut.extendleft(reversed(level.line.swept))
        self._blocks: list[list[Held]] = []  # those before them, in the order of positions
        self._firsts: list[int] = []  # the position from which on each block has the messages
        self._swept = 0  # the next block to sweep
        self.size = len(self._uncut)
        self.end = self._uncut[-1].position + 1 if self._uncut else 0

    def returned(self, position: int, count: int) -> list[Held]:
        """The first messages of the level from a position on that came back and are there still."""
        return self._level.returned.since(position, count)

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
        self._uncut.extend(reversed(new))
        self.size += len(new)
        self.end = last.position + 1
        return True

    def _cut(self) -> bool:
        """Fill the last block, or make one more. Returns False when no reader has to come to any message."""
        uncut, blocks = self._uncut, self._blocks
        if not uncut:
            return False
        if not blocks or len(blocks[-1]) >= BLOCK:
            blocks.append([])
            self._firsts.append(uncut[0].position)
        block = blocks[-1]
        block += [uncut.popleft() for _ in range(min(BLOCK - len(block), len(uncut)))]
        return True

    def read(self, position: int) -> tuple[list[Held], int]:
        """The next ready messages from a position on, up to the end of a block, and the position to read on from."""
        blocks, firsts = self._blocks, self._firsts
        while self._uncut and position >= self._uncut[0].position:
            self._cut()
        at = max(0, bisect_right(firsts, position) - 1)
        if at >= len(blocks) and not self._cut():
            return [], self.end
        block = blocks[at]
        start = bisect_left(block, position, key=_POSITION) if position > firsts[at] else 0
        if at + 1 < len(firsts):
            end = firsts[at + 1]
        else:
            end = self._uncut[0].position if self._uncut else self.end
        return [held for held in block[start:] if not held.gone], end

    def sweep(self, count: int) -> None:
        """Drop the messages that are gone from the next `count` blocks; the first ones follow the last ones."""
        blocks, firsts = self._blocks, self._firsts
        for _ in range(count):
            if self._swept >= len(blocks) and not self._cut():
                self._swept = 0
                return
            at = min(self._swept, len(blocks) - 1)
            left = [held for held in blocks[at] if not held.gone]
            self.size -= len(blocks[at]) - len(left)
            if at and len(blocks[at - 1]) + len(left) <= BLOCK:
                blocks[at - 1] += left
                del blocks[at], firsts[at]
            else:
                blocks[at] = left
                self._swept = at + 1
