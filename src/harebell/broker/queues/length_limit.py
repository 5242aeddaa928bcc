"""The length limit of a queue, as its decorator: `x-max-length`, `x-max-length-bytes`, `x-overflow`.

Only ready messages count, and of them the bytes of the bodies. Consumers come first: a queue over its limit delivers
what it can before it drops or refuses anything.
"""

from __future__ import annotations

from typing import Final

from harebell.broker.message import Held, Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.decorators import QueueDecorator, Verdict

__all__ = ["LengthLimit"]

UNLIMITED: Final = 1 << 62


class LengthLimit(QueueDecorator):
    per_message = True

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._set_limits()

    @classmethod
    def of(cls, queue: Queue) -> LengthLimit | None:
        """The limit of a queue whose settings have one; else None."""
        limited = queue.settings.max_length is not None or queue.settings.max_length_bytes is not None
        return cls(queue) if limited and isinstance(queue, ClassicQueue) else None

    def judge(self, message: Message) -> Verdict:
        """reject-publish: refuse a message beyond the limit; reject-publish-dlx: dead-letter it too."""
        if self._drops or not self._over(1, message.content.body_size):
            return Verdict.ADMIT
        queue, overflow = self._queue, self._queue.settings.overflow
        queue.deliver()
        if not self._over(1, message.content.body_size):
            return Verdict.ADMIT
        if overflow == "reject-publish-dlx":
            queue.dead_letter(message, "maxlen")
        return Verdict.REFUSE

    def enqueued(self) -> None:
        """drop-head: drop the first messages beyond the limit, after delivering what consumers can take."""
        queue, backlog = self._queue, self._queue.backlog
        if (
            backlog is not None
            and self._drops
            and (backlog.count > self._length or backlog.bytes > self._bytes or (queue.aside and self._over()))
        ):
            if queue.consumers or backlog.next_deadline:
                queue.deliver()
            self._drop_head()

    def returning(self) -> None:
        """Deliver first: messages that consumers can take now do not count for the limit."""
        if self._drops:
            self._queue.deliver()

    def returned(self) -> None:
        """drop-head: before messages are delivered; in a quorum queue after, the last one first (RabbitMQ's order)."""
        queue = self._queue
        if queue.type != "quorum":
            if self._drops:
                self._drop_head()
        elif self._drops and self._over() and queue.backlog is not None:
            queue.deliver()
            over: list[Held] = []
            while self._over() and (held := queue.backlog.pop()) is not None:
                over.append(held)
            for held in reversed(over):
                queue.drop(held, "maxlen")

    def settings_changed(self) -> None:
        self._set_limits()
        self.enqueued()

    def _set_limits(self) -> None:
        settings = self._queue.settings
        self._drops = settings.overflow in (None, "drop-head")
        self._length = UNLIMITED if settings.max_length is None else settings.max_length
        self._bytes = UNLIMITED if settings.max_length_bytes is None else settings.max_length_bytes

    def _drop_head(self) -> None:
        queue = self._queue
        while self._over() and queue.backlog is not None and (held := queue.backlog.pop()) is not None:
            queue.drop(held, "maxlen")

    def _over(self, more: int = 0, more_bytes: int = 0) -> bool:
        backlog = self._queue.backlog
        if backlog is None:
            return False
        for part in self._queue.aside:  # as in RabbitMQ's quorum queues, the only ones with these parts
            more += part.count
            more_bytes += part.bytes
        return backlog.count + more > self._length or backlog.bytes + more_bytes > self._bytes
