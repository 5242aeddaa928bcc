"""The contents of a queue while its messages move from a line into a backlog, in steps.

A message that may leave from the middle needs a backlog, and the queue may hold a million others by then. Those that
have moved are before all others, so who takes messages takes them from the backlog, and when that is empty, some more
move. New messages go to the end of the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell.broker.message import Held, Message
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.plain import JournaledContents, PlainContents
from harebell.broker.queues.contents.removed import Removed
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share

__all__ = ["Enriching"]

FEW: Final = 64  # messages that move for consumers at once


class Enriching:
    """Contents on their way from `line` to `backlog`.

    priority  the level of a message in the backlog
    deadline  the deadline of a message that was published since; those from before have none, but on disk
    """

    def __init__(
        self,
        line: PlainContents,
        backlog: Backlog,
        priority: Callable[[Message], int],
        deadline: Callable[[Message], int],
    ) -> None:
        self.line, self.backlog = line, backlog
        self._priority, self._deadline = priority, deadline
        self._first_new = line.end
        if isinstance(line, JournaledContents):
            line.deadline = deadline  # a restart finds it on disk

    @property
    def count(self) -> int:
        return self.backlog.count + self.line.count

    @property
    def end(self) -> int:
        return self.line.end

    def move(self, count: int) -> bool:
        """Move `count` messages, or a few more. Returns whether the line is empty."""
        line, backlog, moved = self.line, self.backlog, 0
        while line.count and moved < count:
            returned = bool(line.returned.blocks)
            taken = line.take_next()
            for held in taken:
                held.gone = False
                held.priority = self._priority(held.message)
                if not held.deadline and held.position >= self._first_new:
                    held.deadline = self._deadline(held.message)
                if returned:
                    backlog.put_back(held)
                else:
                    backlog.push(held)
            moved += len(taken)
        return not line.count

    def pop(self) -> Held | None:
        if not self.backlog.count:
            self.move(1)  # one that leaves the line by itself would come back without a deadline
        return self.backlog.pop()

    def put_back(self, held: Held) -> None:
        held.priority = self._priority(held.message)
        self.backlog.put_back(held)

    def deliver(self, consumers: Consumers, share: Share) -> bool:
        backlog, line = self.backlog, self.line
        while backlog.deliver(consumers, share):
            if backlog.count or not line.count:
                return True
            self.move(FEW)
        return False

    def is_ready(self, held: Held) -> bool:
        return self.line.is_ready(held)

    def remove_all(self) -> Removed:
        return self.backlog.remove_all().and_then(self.line.remove_all())
