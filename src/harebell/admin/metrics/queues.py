"""The figures of a queue, and those of all queues together, as the rows of `rows` take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from harebell.admin.history.sizes import sizes
from harebell.broker.queues.base import Queue
from harebell.routing.steps import Steps

__all__ = ["QueueFigures", "adding"]

STEP: Final = 64  # queues in one step


class QueueFigures:
    """Numbers of messages, of all queues that were added, and bytes.

    `in_memory` of `ready` are in memory; `persistent` is of ready and unacknowledged ones.
    """

    __slots__ = (
        "consumers", "in_memory", "in_memory_bytes", "memory", "persistent", "persistent_bytes", "published", "ready",
        "ready_bytes", "unacked", "unacked_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ready = self.unacked = self.consumers = self.published = self.in_memory = self.persistent = 0
        self.ready_bytes = self.unacked_bytes = self.in_memory_bytes = self.persistent_bytes = self.memory = 0

    def add(self, queue: Queue, unacked: int, *, sized: bool = True) -> None:
        """Add a queue with so many unacknowledged messages; without `sized` no bytes, which is faster."""
        ready = queue.message_count
        self.ready += ready
        self.unacked += unacked
        self.consumers += len(queue.consumers)
        self.published += queue.counts.publish
        if not sized:
            return
        size = sizes(queue, unacked)
        self.memory += size.memory
        if size.ready or ready or unacked:
            self.in_memory += size.in_memory_count
            self.ready_bytes += size.ready
            self.unacked_bytes += size.unacked
            self.in_memory_bytes += size.in_memory
            if size.persistent:
                self.persistent += round((ready + unacked) * size.persistent)
                self.persistent_bytes += round((size.ready + size.unacked) * size.persistent)


def adding(queues: Iterable[Queue], unacked: Counter[Queue]) -> Steps[QueueFigures]:
    """The figures of all these queues together."""
    found = QueueFigures()
    for number, queue in enumerate(queues):
        found.add(queue, unacked[queue])
        if not number % STEP:
            yield
    return found
