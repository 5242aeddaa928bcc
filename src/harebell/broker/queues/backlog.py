"""The backlog of a queue from whose middle messages may leave: by priority, by deadline, by limits.

A plain queue needs none of this: a deque is enough for it (`contents.PlainContents`). Here a message costs a `Held`,
and in return each of these is O(1), or O(log n) with a deadline: push, pop of the first message of the highest
priority, return to the old place, removal anywhere. What is removed is marked as gone and stays in its line until it
comes to the head, or until half of the line is gone. Deadlines that come in order, as those of a queue's TTL do, stand
in a line of their own and cost O(1).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.consumer import OUTPUT_BYTES
from harebell.broker.queues.turns import Consumers
from harebell.broker.store.journal import Journal

__all__ = ["SLACK", "Backlog", "Level"]

SLACK: Final = 64  # entries of messages that are gone, before it is worth while to clear them away


class Level:
    """The messages of one priority: those in their places, and those that came back. Positions are the order."""

    __slots__ = ("busy", "gone", "ready", "returned")

    def __init__(self) -> None:
        self.busy = False  # it stands in the backlog's heap of levels that may hold something
        self.gone = 0  # at most so many of those in `ready` are
        self.ready: deque[Held] = deque()
        self.returned: list[Held] = []

    def first(self) -> Held | None:
        returned, ready = self.returned, self.ready
        while returned and returned[0].gone:
            heapq.heappop(returned)
        while ready and ready[0].gone:
            ready.popleft()
        head = ready[0] if ready else None
        if returned and (head is None or returned[0] < head):  # not always: levels may have been merged meanwhile
            return returned[0]
        return head

    def pop(self) -> Held | None:
        held = self.first()
        if held is not None:
            if self.returned and self.returned[0] is held:
                heapq.heappop(self.returned)
            else:
                self.ready.popleft()
        return held

    def lost_one(self) -> None:
        """One of the messages was marked as gone."""
        self.gone += 1
        if self.gone > len(self.ready) // 2 + SLACK:
            self.ready = deque(held for held in self.ready if not held.gone)
            self.gone = 0

    def __iter__(self) -> Iterator[Held]:
        returned = sorted(held for held in self.returned if not held.gone)
        yield from heapq.merge(returned, (held for held in self.ready if not held.gone))


class Backlog:
    """`count` messages of together `bytes` bytes of body, on levels of priority 0 to `top`.

    `levels` are by priority; `end` is the position that the next message will have, `journal` where the messages are on
    disk.
    """

    def __init__(self, top: int = 0) -> None:
        self.end = 0
        self.journal: Journal | None = None
        self._empty(top)

    def _empty(self, top: int) -> None:
        self.count = self.bytes = 0
        self.levels = [Level() for _ in range(top + 1)]
        self._busy: list[int] = []  # heap of -priority of levels that may hold something
        self._timely: deque[Held] = deque()  # by deadline and position
        self._deadlines: list[tuple[int, int, Held]] = []  # a heap: of those that came out of that order

    @property
    def top(self) -> int:
        return len(self.levels) - 1

    def push(self, held: Held) -> None:
        """A new message, at the end of its level."""
        level = self.levels[held.priority]
        self.count += 1
        self.bytes += held.message.content.body_size
        if not level.busy:
            self._has_work(level, held.priority)
        deadline = held.deadline
        if deadline:
            timely = self._timely
            if len(timely) > 2 * self.count + SLACK:
                self._forget_gone()
            if not timely or timely[-1].deadline <= deadline:
                timely.append(held)
            else:
                self._add_deadline(held)
        level.ready.append(held)

    def put_back(self, held: Held) -> None:
        """A message that was taken: to the place that it had."""
        held.gone = False
        self.count += 1
        self.bytes += held.message.content.body_size
        level = self.levels[held.priority]
        if not level.busy:
            self._has_work(level, held.priority)
        if held.deadline:
            self._add_deadline(held)
        heapq.heappush(level.returned, held)

    def _has_work(self, level: Level, priority: int) -> None:
        level.busy = True
        heapq.heappush(self._busy, -priority)

    def _add_deadline(self, held: Held) -> None:
        if len(self._deadlines) > 2 * self.count + SLACK:
            self._forget_gone()
        heapq.heappush(self._deadlines, (held.deadline, held.position, held))

    def _forget_gone(self) -> None:
        """Let go of the deadlines of messages that left before: they would keep them in memory until their time."""
        self._timely = deque(held for held in self._timely if not held.gone)
        alive = {id(entry[2]): entry for entry in self._deadlines if not entry[2].gone}
        self._deadlines = list(alive.values())
        heapq.heapify(self._deadlines)

    def first(self) -> Held | None:
        """The message that is next; it stays."""
        busy = self._busy
        while busy:
            held = self.levels[-busy[0]].first()
            if held is not None:
                return held
            self._has_no_work()
        return None

    def _has_no_work(self) -> None:
        self.levels[-heapq.heappop(self._busy)].busy = False

    def pop(self) -> Held | None:
        """The message that is next, taken."""
        busy = self._busy
        while busy:
            held = self.levels[-busy[0]].pop()
            if held is not None:
                held.gone = True
                self.count -= 1
                self.bytes -= held.message.content.body_size
                return held
            self._has_no_work()
        return None

    def pop_many(self, count: int, size: int) -> list[Held]:
        """The messages that are next, taken: up to `count`, and no more once they have over `size` bytes of body."""
        busy, taken, taken_bytes = self._busy, list[Held](), 0
        while busy and len(taken) < count and taken_bytes <= size:
            level = self.levels[-busy[0]]
            if level.returned or not level.ready:
                held = level.pop()
                if held is None:
                    self._has_no_work()
                    continue
            else:
                held = level.ready.popleft()
                if held.gone:
                    continue
            held.gone = True
            taken_bytes += held.message.content.body_size
            taken.append(held)
        self.count -= len(taken)
        self.bytes -= taken_bytes
        return taken

    def remove(self, held: Held) -> None:
        """Take a message from wherever it stands."""
        held.gone = True
        self.count -= 1
        self.bytes -= held.message.content.body_size
        self.levels[held.priority].lost_one()

    @property
    def next_deadline(self) -> int:
        """When the next message expires; 0 when none does."""
        timely, deadlines = self._timely, self._deadlines
        while timely and timely[0].gone:
            timely.popleft()
        while deadlines and deadlines[0][2].gone:
            heapq.heappop(deadlines)
        if not deadlines:
            return timely[0].deadline if timely else 0
        return min(deadlines[0][0], timely[0].deadline) if timely else deadlines[0][0]

    def expired(self, now: int) -> Iterator[Held]:
        """Take the messages whose time is over, wherever they stand."""
        while 0 < self.next_deadline <= now:
            timely, deadlines = self._timely, self._deadlines
            if not deadlines or (timely and (timely[0].deadline, timely[0].position) < deadlines[0][:2]):
                held = timely.popleft()
            else:
                held = heapq.heappop(deadlines)[2]
            self.remove(held)
            yield held

    def relevel(self, top: int, priority: Callable[[Held], int]) -> None:
        """Have levels up to `top`, and every message on the one that `priority` says."""
        messages = sorted(held for level in self.levels for held in level)
        self.levels = [Level() for _ in range(top + 1)]
        for held in messages:
            held.priority = priority(held)
            self.levels[held.priority].ready.append(held)
        self._busy = [-level for level in range(top, -1, -1)]
        for level in self.levels:
            level.busy = True

    def clear(self) -> int:
        """Drop everything; how many."""
        return self.reset()

    def reset(self) -> int:
        """As `clear`, for heirs."""
        count = self.count
        self._empty(self.top)
        return count

    def settle_all(self, journal: Journal) -> None:
        """Note in the journal that all of it is done with."""
        journal.settle_many(sorted(held.position for held in self))
        journal.settle_paged()

    def is_ready(self, held: Held) -> bool:
        """Whether a message that was here once is here now."""
        return not held.gone

    def deliver(self, consumers: Consumers) -> None:
        """Give consumers in turn what their windows take: a single one all it takes, several a message a turn."""
        journal = self.journal
        while self.count and (turn := consumers.next()) is not None:
            consumer, room = turn
            run = self.pop_many(room if consumers.only is not None or consumers.single else 1, OUTPUT_BYTES)
            if journal is not None:
                for held in run:  # before it can leave the process; one that does not fit comes back
                    journal.fed(held.position, 1, consumer.no_ack and consumer.takes(held))
            consumer.feed_held(run)

    def after(self, level: int, start: int, limit: int, end: int) -> list[Held]:
        """The first `limit` messages of a priority from position `start` on; `end` is the one after the last."""
        ready = self.levels[level].ready
        if end - start <= limit:  # near the end: from there
            found = [each for each in takewhile(lambda held: held.position >= start, reversed(ready)) if not each.gone]
        else:
            skip = bisect_left(ready, start, key=attrgetter("position"))
            found = list(islice((held for held in islice(ready, skip, None) if not held.gone), limit))
        found += (held for held in self.levels[level].returned if not held.gone and held.position >= start)
        return sorted(found, key=attrgetter("position"))[:limit]

    def __iter__(self) -> Iterator[Held]:
        """In the order of delivery."""
        for level in reversed(self.levels):
            yield from level
