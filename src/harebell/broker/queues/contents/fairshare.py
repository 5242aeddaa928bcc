"""A fair share for the lower priorities of a queue: at most so many messages of one level in a row.

The argument `x-fairshare` says how many of each level, 0 for any number (Qpid's C++ broker: `qpid.fairshare`). In one
pass each level gets its share, the highest first; when no level has any share left, the next pass begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harebell.broker.message import Held
from harebell.broker.queues.contents.backlog import Backlog

__all__ = ["FairBacklog"]


class FairBacklog(Backlog):
    """A backlog whose levels have `shares`, by level."""

    def __init__(self, top: int, shares: Sequence[int]) -> None:
        super().__init__(top)
        self._shares = shares
        self._taken: dict[int, int] = {}  # by level, in this pass

    def first(self) -> Held | None:
        priority = self._next_level()
        return None if priority is None else self.levels[priority].first()

    def pop(self) -> Held | None:
        priority = self._next_level()
        if priority is None:
            return None
        self._taken[priority] = self._taken.get(priority, 0) + 1
        return self.pop_of(priority)

    def pop_many(self, count: int, size: int) -> list[Held]:
        taken, taken_bytes = list[Held](), 0
        while len(taken) < count and taken_bytes <= size and (held := self.pop()) is not None:
            taken_bytes += held.message.content.body_size
            taken.append(held)
        return taken

    def take_out(self, held: Held) -> Held:
        share, taken = self._share(held.priority), self._taken.get(held.priority, 0)
        if share and taken >= share:  # no other level had what was wanted: the next pass begins
            self._taken.clear()
            taken = 0
        self._taken[held.priority] = taken + 1
        return super().take_out(held)

    def order(self) -> Iterator[int]:
        later = list[int]()
        for priority in super().order():
            share = self._share(priority)
            if not share or self._taken.get(priority, 0) < share:
                yield priority
            else:
                later.append(priority)
        yield from later

    def _share(self, priority: int) -> int:
        return self._shares[priority] if priority < len(self._shares) else 0

    def _next_level(self) -> int | None:
        """The level of the next message."""
        busy, highest = self.busy, None
        while busy:
            priority = busy.bit_length() - 1
            busy ^= 1 << priority
            if self.levels[priority].first() is None:
                self.has_no_work(priority)
                continue
            share = self._share(priority)
            if not share or self._taken.get(priority, 0) < share:
                return priority
            highest = priority if highest is None else highest
        if highest is not None:
            self._taken.clear()
        return highest
