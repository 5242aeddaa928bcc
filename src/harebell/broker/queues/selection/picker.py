"""What one selector has looked at in a queue, for all consumers that have it.

It goes through the messages of each level once, from the first to the last, and looks at each when a consumer has room
for it; what it does not want, it never looks at again. Messages that came back go behind no place: it looks at them
again, because they may have changed (JMSRedelivered).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.selection.trail import Trail
from harebell.routing.selectors import Facts, Selector

__all__ = ["Picker"]

BLOCKS: Final = 4  # blocks of a trail in which there may be nothing, until others have their turn
SLACK: Final = 64  # messages that came back and have left, before they are forgotten


class _Place:
    """A place in a trail: all messages before position `_at` are in `_ahead`, or were looked at."""

    __slots__ = ("_ahead", "_at", "_kept", "_returned", "_trail")

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._at = 0
        self._ahead: deque[Held] = deque()
        self._keep(trail.returned())

    def _keep(self, returned: list[Held]) -> None:
        self._returned = returned  # a heap by position
        heapq.heapify(returned)
        self._kept = set(returned)

    def put_back(self, held: Held, most: int) -> None:
        """Note that a message came back; the queue has `most` messages."""
        if held in self._kept:
            return
        if len(self._returned) > 2 * most + SLACK:
            self._keep([each for each in self._returned if not each.gone])
        heapq.heappush(self._returned, held)
        self._kept.add(held)

    def next(self) -> tuple[Held | None, bool]:
        """The next message to look at, which counts as looked at; and whether there may be more."""
        returned, ahead = self._returned, self._ahead
        while returned and returned[0].gone:
            self._kept.discard(heapq.heappop(returned))
        for _ in range(BLOCKS):
            while ahead and ahead[0].gone:
                ahead.popleft()
            if ahead or self._at >= self._trail.end:
                break
            found, self._at = self._trail.read(self._at)
            ahead.extend(found)
        if returned and (not ahead or returned[0] < ahead[0]):
            held = heapq.heappop(returned)
            self._kept.discard(held)
            return held, True
        return (ahead.popleft(), True) if ahead else (None, self._at < self._trail.end)


class Picker:
    """The messages for one selector. `users` are the consumers that have it."""

    def __init__(self, selector: Selector, trails: Iterable[Trail]) -> None:
        self.selector = selector
        self.users = 0
        self.restart(trails)

    def restart(self, trails: Iterable[Trail]) -> None:
        """Begin anew: the levels are others, or empty."""
        self._places = [_Place(trail) for trail in trails]
        self.idle = False

    def put_back(self, held: Held, most: int) -> None:
        self._places[held.priority].put_back(held, most)
        self.idle = False

    def next(self, order: Iterable[int], facts: Callable[[Held], Facts], most: int) -> tuple[Held | None, int]:
        """The next message that the selector wants, among the next `most`, and how many were looked at.

        `order`: the levels, the first one first. `idle` afterwards: there is nothing more to look at.
        """
        looked = 0
        wants = self.selector.wants
        for level in order:
            place, more = self._places[level], True
            while more:
                if looked >= most:
                    return None, looked
                held, more = place.next()
                looked += 1
                if held is not None and wants(facts(held)):
                    return held, looked
        self.idle = True
        return None, looked
