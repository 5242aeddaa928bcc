"""The deadlines of a queue's messages, earliest first.

Deadlines that arrive in order, as those of a queue's TTL do, are in a line of their own and cost O(1); the others are
in a heap. A message that leaves the queue keeps its entry until a sweep or its turn drops it, and has only that one
when it comes back.
"""

from __future__ import annotations

from typing import TypeAlias

from harebell.broker.message import Held
from harebell.broker.queues.contents.removed import Container
from harebell.broker.swept import PART, SLACK, STEP, Heap, Line

__all__ = ["Deadlines"]

_Entry: TypeAlias = "tuple[int, int, Held]"


class Deadlines:
    """Entries of messages that wait, and of some that do not. `used`: there may be some."""

    __slots__ = ("_gone", "_others", "_timely", "used")

    def __init__(self) -> None:
        self.used = False
        self._gone = 0  # upper bound of the entries of messages that do not wait, since the last sweep
        self._timely: Line[Held] = Line(_leaves)
        self._others: Heap[_Entry] = Heap(_entry_leaves)

    def __len__(self) -> int:
        return len(self._timely) + len(self._others)

    def add(self, held: Held) -> None:
        """Add a message, which has a deadline."""
        if held.listed is self:
            return
        held.listed, self.used = self, True
        timely, deadline = self._timely, held.deadline
        if line := timely.ready or timely.swept:
            last = line[-1]
            if last.deadline > deadline or (last.deadline == deadline and last.position > held.position):
                self._others.push((deadline, held.position, held))
                return
        timely.ready.append(held)

    def lost(self, count: int) -> None:
        """Note that so many messages have left the queue, or fewer."""
        timely, others = self._timely, self._others
        self._gone += count
        limit = STEP * count
        timely.drop_gone(limit)
        others.drop_gone(limit)
        if self._gone > len(self) // PART + SLACK:
            swept_timely, swept_others = timely.sweep(limit), others.sweep(limit)
            if swept_timely if len(timely) >= len(others) else swept_others:
                self._gone = 0

    def first(self) -> int:
        """The earliest deadline; 0 when there is none."""
        held = self._timely.first()
        entry = self._others.first() if self._others.entries else None
        if entry is None:
            return 0 if held is None else held.deadline
        return entry[0] if held is None else min(entry[0], held.deadline)

    def pop_due(self, now: int) -> Held | None:
        """Take the message with the earliest deadline, if that has passed."""
        held = self._timely.first()
        entry = self._others.first() if self._others.entries else None
        if entry is not None and (held is None or entry[:2] < (held.deadline, held.position)):
            if entry[0] > now:
                return None
            held = self._others.pop()[2]
        elif held is None or held.deadline > now:
            return None
        else:
            self._timely.popleft()
        held.listed = None
        return held

    def containers(self) -> tuple[Container, ...]:
        """What has the entries, for one who takes all of them."""
        return *self._timely.containers(), *self._others.containers()


def _leaves(held: Held) -> bool:
    if held.gone:
        held.listed = None
        return True
    return False


def _entry_leaves(entry: _Entry) -> bool:
    return _leaves(entry[2])
