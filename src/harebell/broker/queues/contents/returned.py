"""The messages of a queue, or of a level of it, that came back, in the order of their places.

They are in sorted blocks, so that a place is found in the middle of a million others as fast as at their ends: for one
who browses, whose selector looks at some, or who takes a certain message. One that has left from the middle is marked
as gone, and stays until it comes to the head, or until a sweep comes to its block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from harebell.broker.message import Held
from harebell.broker.swept import STEP

__all__ = ["Returned"]

BLOCK: Final = 512  # messages; twice as many are two blocks

_POSITION: Final = attrgetter("position")


def _first(block: deque[Held]) -> int:
    return block[0].position


class Returned:
    """The messages. `blocks` are sorted, and so is each; there are none without a message. `len`: the gone ones too."""

    __slots__ = ("_count", "_looked", "_swept", "blocks")

    def __init__(self) -> None:
        self.blocks: list[deque[Held]] = []
        self._count = 0
        self._swept = 0  # the next block to sweep ...
        self._looked = 0  # ... when so many messages may be looked at

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        """Those that are not gone."""
        return (held for block in self.blocks for held in block if not held.gone)

    def push(self, held: Held) -> None:
        """Add one that came back."""
        blocks, position = self.blocks, held.position
        self._count += 1
        if not blocks or blocks[-1][-1].position <= position:
            if blocks and len(blocks[-1]) < BLOCK:
                blocks[-1].append(held)
            else:
                blocks.append(deque((held,)))
        elif position < blocks[0][0].position:
            if len(blocks[0]) < BLOCK:
                blocks[0].appendleft(held)
            else:
                blocks.insert(0, deque((held,)))
                self._swept += self._swept > 0
        else:
            self._insert(held, position)

    def _insert(self, held: Held, position: int) -> None:
        blocks = self.blocks
        at = bisect_right(blocks, position, key=_first) - 1
        block = blocks[at]
        block.insert(bisect_right(block, position, key=_POSITION), held)
        if len(block) >= 2 * BLOCK:
            blocks.insert(at, deque([block.popleft() for _ in range(BLOCK)]))
            self._swept += at < self._swept

    def first(self) -> Held | None:
        """The first one that is not gone."""
        while self.blocks:
            held = self.blocks[0][0]
            if not held.gone:
                return held
            self.pop()
        return None

    def pop(self) -> Held:
        """Take the first one, gone or not."""
        blocks = self.blocks
        block = blocks[0]
        self._count -= 1
        held = block.popleft()
        if not block:
            del blocks[0]
            self._swept -= self._swept > 0
        return held

    def since(self, position: int, count: int) -> list[Held]:
        """The first `count` from that place on that are not gone."""
        blocks = self.blocks
        at = max(0, bisect_left(blocks, position, key=_first) - 1)
        found = list[Held]()
        while at < len(blocks) and len(found) < count:
            block = blocks[at]
            skip = bisect_left(block, position, key=_POSITION) if block[0].position < position else 0
            found += islice((held for held in islice(block, skip, None) if not held.gone), count - len(found))
            at += 1
        return found

    def drop_gone(self, limit: int = STEP) -> None:
        """Clear the first ones that are gone, `limit` at most."""
        for _ in range(limit):
            if not self.blocks or not self.blocks[0][0].gone:
                return
            self.pop()

    def sweep(self, limit: int = STEP) -> bool:
        """Clear what is gone among the next `limit`, a block at a time. Returns whether those were the last ones."""
        blocks, at = self.blocks, self._swept
        self._looked += limit
        if at < len(blocks):
            if self._looked < len(blocks[at]):
                return False
            left = deque([held for held in blocks[at] if not held.gone])
            self._count -= len(blocks[at]) - len(left)
            if left and (not at or len(blocks[at - 1]) + len(left) > BLOCK):
                blocks[at] = left
                self._swept = at + 1
            else:
                if left:
                    blocks[at - 1].extend(left)
                del blocks[at]
        self._looked = 0
        if self._swept < len(blocks):
            return False
        self._swept = 0
        return True
