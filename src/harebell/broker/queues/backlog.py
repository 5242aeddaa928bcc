"""The backlog of a queue whose messages may leave from the middle: by priority, by deadline, by limits.

A plain queue needs no backlog: a deque is enough (`contents.PlainContents`). A backlog costs a `Held` for each message,
and in return these are O(1), or O(log n) with a deadline: push, pop of the first message of the highest priority,
return to the old place, removal anywhere. A removed message is marked as gone and stays in its line until it comes to
the head, or until half of the line is gone. Deadlines that arrive in order, as those of a queue's TTL do, are in a line
of their own and cost O(1).
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
from harebell.broker.queues.removed import Removed
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share
from harebell.broker.store.queue_log.journal import Journal

__all__ = ["SLACK", "Backlog", "Level"]

FEED: Final = 512  # messages that one consumer gets until the share is looked at
TURN: Final = 8  # what a consumer's turn costs, beside its messages, in a share
SLACK: Final = 64  # entries of removed messages before they are cleared


class Level:
    """The messages of one priority: those in their places, and those that came back, by position."""

    __slots__ = ("busy", "gone", "ready", "returned")

    def __init__(self) -> None:
        self.busy = False  # in the backlog's set of levels that may have messages
        self.gone = 0  # upper bound of the removed ones in `ready`
        self.ready: deque[Held] = deque()
        self.returned: list[Held] = []

    def first(self) -> Held | None:
        returned, ready = self.returned, self.ready
        while returned and returned[0].gone:
            heapq.heappop(returned)
        while ready and ready[0].gone:
            ready.popleft()
        head = ready[0] if ready else None
        if returned and (head is None or returned[0] < head):  # not always: levels may have been merged since
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
        """Note that one of the messages was marked as gone."""
        self.gone += 1
        if self.gone > len(self.ready) // 2 + SLACK:
            self.ready = deque(held for held in self.ready if not held.gone)
            self.gone = 0

    def __iter__(self) -> Iterator[Held]:
        returned = sorted(held for held in self.returned if not held.gone)
        yield from heapq.merge(returned, (held for held in self.ready if not held.gone))


class Backlog:
    """A backlog of `count` messages with `bytes` bytes of body in total, on levels of priority 0 to `top`.

    `levels` are by priority; `busy` has the bit of each priority whose level may have messages. `end` is the position
    of the next new message, `journal` the queue's messages on disk.
    """

    def __init__(self, top: int = 0) -> None:
        self.end = 0
        self.journal: Journal | None = None
        self._empty(top)

    def _empty(self, top: int) -> None:
        self.count = self.bytes = 0
        self.levels = [Level() for _ in range(top + 1)]
        self.busy = 0
        self._timely: deque[Held] = deque()  # by deadline and position
        self._deadlines: list[tuple[int, int, Held]] = []  # a heap of those not in that order

    @property
    def top(self) -> int:
        return len(self.levels) - 1

    def push(self, held: Held) -> None:
        """Add a new message at the end of its level."""
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
        """Put a message that was taken back to its old place."""
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
        self.busy |= 1 << priority

    def _add_deadline(self, held: Held) -> None:
        if len(self._deadlines) > 2 * self.count + SLACK:
            self._forget_gone()
        heapq.heappush(self._deadlines, (held.deadline, held.position, held))

    def _forget_gone(self) -> None:
        """Drop the deadlines of messages that have left: they would hold the messages in memory until then."""
        self._timely = deque(held for held in self._timely if not held.gone)
        alive = {id(entry[2]): entry for entry in self._deadlines if not entry[2].gone}
        self._deadlines = list(alive.values())
        heapq.heapify(self._deadlines)

    def first(self) -> Held | None:
        """The next message, which stays in the backlog."""
        while self.busy:
            priority = self.busy.bit_length() - 1
            held = self.levels[priority].first()
            if held is not None:
                return held
            self.has_no_work(priority)
        return None

    def has_no_work(self, priority: int) -> None:
        """Note that a level turned out to be empty."""
        self.levels[priority].busy = False
        self.busy ^= 1 << priority

    def pop(self) -> Held | None:
        """Take the next message."""
        while self.busy:
            held = self.pop_of(self.busy.bit_length() - 1)
            if held is not None:
                return held
        return None

    def pop_lowest(self) -> Held | None:
        """Take the first message of the lowest priority."""
        while self.busy:
            held = self.pop_of((self.busy & -self.busy).bit_length() - 1)
            if held is not None:
                return held
        return None

    def pop_of(self, priority: int) -> Held | None:
        """Take the first message of this priority; None, when it has none."""
        held = self.levels[priority].pop()
        if held is None:
            self.has_no_work(priority)
            return None
        held.gone = True
        self.count -= 1
        self.bytes -= held.message.content.body_size
        return held

    def pop_many(self, count: int, size: int) -> list[Held]:
        """Take the next messages: up to `count`, and no more after `size` bytes of body."""
        taken, taken_bytes = list[Held](), 0
        while self.busy and len(taken) < count and taken_bytes <= size:
            priority = self.busy.bit_length() - 1
            level = self.levels[priority]
            ready, returned = level.ready, level.returned
            while len(taken) < count and taken_bytes <= size:
                if returned or not ready:
                    held = level.pop()
                    if held is None:
                        self.has_no_work(priority)
                        break
                else:
                    held = ready.popleft()
                    if held.gone:
                        continue
                held.gone = True
                taken_bytes += held.message.content.body_size
                taken.append(held)
        self.count -= len(taken)
        self.bytes -= taken_bytes
        return taken

    def remove(self, held: Held) -> None:
        """Take a message out, wherever it is."""
        held.gone = True
        self.count -= 1
        self.bytes -= held.message.content.body_size
        self.levels[held.priority].lost_one()

    @property
    def next_deadline(self) -> int:
        """The earliest deadline; 0 when there is none."""
        timely, deadlines = self._timely, self._deadlines
        while timely and timely[0].gone:
            timely.popleft()
        while deadlines and deadlines[0][2].gone:
            heapq.heappop(deadlines)
        if not deadlines:
            return timely[0].deadline if timely else 0
        return min(deadlines[0][0], timely[0].deadline) if timely else deadlines[0][0]

    def expired(self, now: int) -> Iterator[Held]:
        """Take the messages whose deadline has passed, wherever they are."""
        while 0 < self.next_deadline <= now:
            timely, deadlines = self._timely, self._deadlines
            if not deadlines or (timely and (timely[0].deadline, timely[0].position) < deadlines[0][:2]):
                held = timely.popleft()
            else:
                held = heapq.heappop(deadlines)[2]
            self.remove(held)
            yield held

    def relevel(self, top: int, priority: Callable[[Held], int]) -> None:
        """Make levels up to `top`, and move every message to the one that `priority` gives."""
        messages = sorted(held for level in self.levels for held in level)
        self.levels = [Level() for _ in range(top + 1)]
        for held in messages:
            held.priority = priority(held)
            self.levels[held.priority].ready.append(held)
        self.busy = (1 << top + 1) - 1
        for level in self.levels:
            level.busy = True

    def remove_all(self) -> Removed:
        """Remove everything."""
        lines = [line for level in self.levels for line in (level.ready, level.returned)]
        removed = Removed(self.count, lines, (self._timely, self._deadlines))
        self._empty(self.top)
        return removed

    def is_ready(self, held: Held) -> bool:
        """Whether a message that was in the backlog is in it now."""
        return not held.gone

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        """Deliver to consumers in turn: a single one up to its window, several one message a turn.

        Returns whether there is no more to do; False when the share is used up.
        """
        journal, fed = self.journal, 0
        while self.count and (turn := consumers.next()) is not None:
            if fed and share.spend(fed):
                return False
            consumer, room = turn
            run = self.pop_many(min(room, FEED) if consumers.only is not None or consumers.single else 1, OUTPUT_BYTES)
            if journal is not None:
                for held in run:  # before it can leave the process; one that does not fit is requeued
                    journal.fed(held.position, 1, consumer.no_ack and consumer.takes(held))
            consumer.feed_held(run)
            fed = TURN + 2 * len(run)
        return True

    def after(self, level: int, start: int, limit: int, end: int) -> list[Held]:
        """The first `limit` messages of a priority from position `start` on; `end` is the one after the last."""
        ready = self.levels[level].ready
        if end - start <= limit:  # near the end: search from there
            found = [each for each in takewhile(lambda held: held.position >= start, reversed(ready)) if not each.gone]
        else:
            skip = bisect_left(ready, start, key=attrgetter("position"))
            found = list(islice((held for held in islice(ready, skip, None) if not held.gone), limit))
        found += (held for held in self.levels[level].returned if not held.gone and held.position >= start)
        return sorted(found, key=attrgetter("position"))[:limit]

    def __iter__(self) -> Iterator[Held]:
        """The messages in the order of delivery."""
        for level in reversed(self.levels):
            yield from level
