"""The number of messages that a queue dropped, by reason, counted by a decorator."""

from __future__ import annotations

from collections import Counter

from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.decorators import QueueDecorator
from harebell.broker.queues.settings import can_drop

__all__ = ["Drops"]


class Drops(QueueDecorator):
    """The counts by reason. Only queues whose settings may drop messages have this decorator."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @classmethod
    def of(cls, queue: Queue) -> Drops | None:
        return cls() if can_drop(queue.settings) else None

    def dropped(self, message: Message, reason: str) -> None:
        self.counts[reason] += 1
