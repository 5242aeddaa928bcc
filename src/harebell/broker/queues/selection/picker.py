"""What one selector has looked at in a queue, for all consumers that have it.

It goes through the messages of each level once, from the first to the last, and looks at each when a consumer has room
for it; what it does not want, it never looks at again. Messages that came back go behind no place: it looks at them
again, because they may have changed (JMSRedelivered).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.selection.trail import Trail
from harebell.broker.swept import SLACK, Heap
from harebell.routing.selectors import Facts, Selector

__all__ = ["Picker"]

BLOCKS: Final = 4  # blocks of a trail in which there may be nothing, until others have their turn
BACK: Final = 64  # messages that came back which are read ahead


class _Place:
    """A place in a trail: all messages before position `_at` are in `_ahead`, or were looked at.

    Of those that came back, all before position `_back_at` are in `_back`, or were looked at, or came back after that:
    these are in `_again`.
    """

    __slots__ = ("_again", "_ahead", "_at", "_back", "_back_at", "_kept", "_more_back", "_trail")

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._at = self._back_at = 0
        self._ahead: deque[Held] = deque()
        self._back: deque[Held] = deque()
        self._more_back = True  # there may be some from `_back_at` on
        self._again: Heap[Held] = Heap(self._is_gone)
        self._kept = set[Held]()  # those in the heap: a message may come back again and again

    def _is_gone(self, held: Held) -> bool:
        if held.gone:
            self._kept.discard(held)  # the heap drops it
        return held.gone

    def put_back(self, held: Held, most: int) -> None:
        """Note that a message came back; the queue has `most` messages."""
        if held.position >= self._back_at:
            self._more_back = True
        elif held not in self._kept:
            if len(self._again) > 2 * most + SLACK:
                self._again.sweep()
            self._again.push(held)
            self._kept.add(held)

    def first_returned(self) -> float:
        """The position of the first message that came back, and was not looked at since."""
        held = self._first_back()
        return inf if held is None else held.position

    def _first_back(self) -> Held | None:
        back = self._back
        while back and back[0].gone:
            back.popleft()
        if not back and self._more_back:
            back.extend(self._trail.returned(self._back_at, BACK))
            self._more_back = len(back) == BACK
            if back:
                self._back_at = back[-1].position + 1
        again = self._again.first()
        if again is None or (back and not again < back[0]):
            return back[0] if back else None
        return again

    def _take_back(self, held: Held) -> None:
        """Take the first message that came back."""
        if self._back and self._back[0] is held:
            self._back.popleft()
        else:
            self._kept.discard(self._again.pop())

    def next(self) -> tuple[Held | None, bool]:
        """The next message to look at, which counts as looked at; and whether there may be more."""
        back, ahead = self._first_back(), self._ahead
        for _ in range(BLOCKS):
            while ahead and ahead[0].gone:
                ahead.popleft()
            if ahead or self._at >= self._trail.end:
                break
            found, self._at = self._trail.read(self._at)
            ahead.extend(found)
        if back is not None and (not ahead or back < ahead[0]):
            self._take_back(back)
            return back, True
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

    def has_returned_before(self, position: int) -> bool:
        """Whether a message that came back, and is not looked at yet, was before that position."""
        return any(place.first_returned() < position for place in self._places)

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
