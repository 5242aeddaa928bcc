"""The backlog of a queue whose messages may leave from the middle: by priority, by deadline, by limits.

A plain queue needs no backlog: a deque is enough (`contents.PlainContents`). A backlog costs a `Held` for each message,
and in return these are O(1), or O(log n) with a deadline: push, pop of the first message of the highest priority,
return to the old place, removal anywhere. A removed message is marked as gone and stays in its line until it comes to
the head, or until a sweep clears it, which begins when many are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain, islice, takewhile
from operator import attrgetter
from typing import Final

from harebell.broker.message import Held
from harebell.broker.queues.consumer import OUTPUT_BYTES
from harebell.broker.queues.contents.deadlines import Deadlines
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.queues.contents.returned import Returned
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.swept import PART, SLACK, Line

__all__ = ["Backlog", "Level"]

FEED: Final = 512  # messages that one consumer gets until the share is looked at
TURN: Final = 8  # what a consumer's turn costs, beside its messages, in a share
_is_gone = attrgetter("gone")
_position = attrgetter("position")


class Level:
    """The messages of one priority: those in their places, and those that came back, by position."""

    __slots__ = ("busy", "gone", "line", "returned")

    def __init__(self) -> None:
        self.busy = False  # in the backlog's set of levels that may have messages
        self.gone = 0  # upper bound of the removed ones, since the last sweep
        self.line: Line[Held] = Line(_is_gone)
        self.returned = Returned()

    def first(self) -> Held | None:
        head = self.line.first()
        if self.returned.blocks:
            back = self.returned.first()
            if back is not None and (head is None or back < head):  # not always: levels may have been merged since
                return back
        return head

    def pop(self) -> Held | None:
        line = self.line
        if self.returned.blocks:
            held = self.first()
            if held is not None:
                self.drop_first(held)
            return held
        while ready := line.swept or line.ready:
            held = ready.popleft()
            if not held.gone:
                return held
        return None

    def drop_first(self, held: Held) -> None:
        """Take the message that is the first one."""
        if self.returned.blocks and self.returned.first() is held:
            self.returned.pop()
        else:
            self.line.popleft()

    def lost_one(self) -> None:
        """Note that one of the messages was marked as gone."""
        line, returned = self.line, self.returned
        first = line.swept or line.ready
        if first and first[0].gone:  # most often the first one: messages expire in the order in which they came
            first.popleft()
            return
        self.gone += 1
        if returned.blocks:
            returned.drop_gone()
        line.drop_gone()
        if self.gone > (len(line) + len(returned)) // PART + SLACK:
            swept_line, swept_returned = line.sweep(), returned.sweep()
            if swept_line if len(line) >= len(returned) else swept_returned:
                self.gone = 0

    def __iter__(self) -> Iterator[Held]:
        """Those that are not gone, in order."""
        yield from merge(self.returned, self.line)


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
        self._deadlines = Deadlines()

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
        if held.deadline:
            self._deadlines.add(held)
        level.line.ready.append(held)

    def put_back(self, held: Held) -> Held:
        """Put a message that was taken back to its old place. Returns the entry that it has now."""
        held.gone = False
        self.count += 1
        self.bytes += held.message.content.body_size
        level = self.levels[held.priority]
        if not level.busy:
            self._has_work(level, held.priority)
        if held.deadline:
            self._deadlines.add(held)
        level.returned.push(held)
        return held

    def _has_work(self, level: Level, priority: int) -> None:
        level.busy = True
        self.busy |= 1 << priority

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
        if held.listed is not None:
            self._deadlines.lost(1)
        return held

    def pop_many(self, count: int, size: int) -> list[Held]:
        """Take the next messages: up to `count`, and no more after `size` bytes of body."""
        taken, taken_bytes = list[Held](), 0
        while self.busy and len(taken) < count and taken_bytes <= size:
            priority = self.busy.bit_length() - 1
            level = self.levels[priority]
            line, returned = level.line, level.returned
            while len(taken) < count and taken_bytes <= size:
                if returned.blocks or line.swept or not line.ready:
                    held = level.pop()
                    if held is None:
                        self.has_no_work(priority)
                        break
                else:
                    held = line.ready.popleft()
                    if held.gone:
                        continue
                held.gone = True
                taken_bytes += held.message.content.body_size
                taken.append(held)
        self.count -= len(taken)
        self.bytes -= taken_bytes
        if self._deadlines.used:
            self._deadlines.lost(len(taken))
        return taken

    def remove(self, held: Held) -> None:
        """Take a message out, wherever it is."""
        held.gone = True
        self.count -= 1
        self.bytes -= held.message.content.body_size
        self.levels[held.priority].lost_one()
        if held.listed is not None:
            self._deadlines.lost(1)

    def take_out(self, held: Held) -> Held:
        """Take a message out, wherever it is, for one who may bring it back.

        Returns another entry for it: the one that it had stays where it is, and must not come to life again there.
        """
        self.remove(held)
        return held.renewed()

    def order(self) -> Iterator[int]:
        """The levels that may have messages, in the order in which they are served."""
        busy = self.busy
        while busy:
            priority = busy.bit_length() - 1
            busy ^= 1 << priority
            yield priority

    @property
    def next_deadline(self) -> int:
        """The earliest deadline; 0 when there is none."""
        return self._deadlines.first()

    def expired(self, now: int) -> Iterator[Held]:
        """Take the messages whose deadline has passed, wherever they are."""
        deadlines = self._deadlines
        while (held := deadlines.pop_due(now)) is not None:
            self.remove(held)
            yield held

    def relevel(self, top: int, priority: Callable[[Held], int]) -> None:
        """Make levels up to `top`, and move every message to the one that `priority` gives."""
        messages = list(chain.from_iterable(chain(level.returned, level.line) for level in self.levels))
        messages.sort(key=_position)  # sorted runs: fast
        self.levels = [Level() for _ in range(top + 1)]
        lines = [level.line.ready for level in self.levels]
        for held in messages:
            held.priority = level = priority(held)
            lines[level].append(held)
        self.busy = (1 << top + 1) - 1
        for each in self.levels:
            each.busy = True

    def remove_all(self) -> Removed:
        """Remove everything."""
        lines = [line for level in self.levels for line in (*level.line.containers(), level.returned)]
        removed = Removed(self.count, lines, self._deadlines.containers())
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
                    journal.handed(held, consumer.no_ack and consumer.takes(held))
            consumer.feed_held(run)
            fed = TURN + 2 * len(run)
        return True

    def after(self, level: int, start: int, limit: int, end: int) -> list[Held]:
        """The first `limit` messages of a priority from position `start` on; `end` is the one after the last."""
        line, found = self.levels[level].line, list[Held]()
        for part in line.containers():
            if end - start <= limit:  # near the end: search from there
                near = takewhile(lambda held: held.position >= start, reversed(part))
                found += [held for held in near if not held.gone]
            else:
                skip = bisect_left(part, start, key=_position)
                found += islice((held for held in islice(part, skip, None) if not held.gone), limit)
        found += self.levels[level].returned.since(start, limit)
        return sorted(found, key=_position)[:limit]

    def __iter__(self) -> Iterator[Held]:
        """The messages in the order of delivery."""
        for level in reversed(self.levels):
            yield from level
