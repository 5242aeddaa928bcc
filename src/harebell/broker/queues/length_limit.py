"""The length limit of a queue, as its decorator: `x-max-length`, `x-max-length-bytes`, `x-overflow`.

Only ready messages count, and of them the bytes of the bodies. Consumers come first: a queue over its limit delivers
what it can before it drops or refuses anything.

drop-head, the default, drops the message that would be delivered next: of a queue with priorities that is one of the
highest, as in RabbitMQ. drop-lowest-priority drops the oldest message of the lowest priority, which may be the new one
(section 2.2.1 of the draft of AMQP 0-10: a server that must discard messages discards those of low priority first). A
queue without priorities gets it from a policy only, and then drops its head.

delete-queue deletes the queue at the first message beyond the limit, which is one of its last: so a consumer that is
too slow learns it, where a lost message would not be noticed (Qpid's self_destruct).
"""

from __future__ import annotations

import logging
from typing import Final

from harebell.broker.message import Held, Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.decorators import QueueDecorator, Verdict
from harebell.broker.slices import Work

__all__ = ["LengthLimit"]

log = logging.getLogger("harebell.broker.queue")

UNLIMITED: Final = 1 << 62
SHARE: Final = 64  # messages dropped in one step,
RETURNED: Final = 512  # and of those that return together: as many as return in one step


class LengthLimit(QueueDecorator):
    per_message = True

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._dropping = False  # in steps
        self._deleting = False
        self._set_limits()

    @classmethod
    def of(cls, queue: Queue) -> LengthLimit | None:
        """The limit of a queue whose settings have one; else None."""
        limited = queue.settings.max_length is not None or queue.settings.max_length_bytes is not None
        return cls(queue) if limited and isinstance(queue, ClassicQueue) else None

    def judge(self, message: Message) -> Verdict:
        """reject-publish: refuse a message beyond the limit; reject-publish-dlx: dead-letter it too; or delete all."""
        if self._drops or not self._over(1, message.content.body_size):
            return Verdict.ADMIT
        queue, overflow = self._queue, self._queue.settings.overflow
        queue.deliver()
        if not self._over(1, message.content.body_size):
            return Verdict.ADMIT
        if overflow == "delete-queue":
            self._delete()
            return Verdict.ADMIT
        if overflow == "reject-publish-dlx":
            queue.dead_letter(message, "maxlen")
        return Verdict.REFUSE

    def _delete(self) -> None:
        if not self._deleting:
            self._deleting = True
            log.error("%s is deleted: it is full, and its overflow is delete-queue", self._queue)
            self._queue.batch.slices.later(self._queue.vhost.deleting((self._queue,)))

    def enqueued(self) -> None:
        """Drop the messages beyond the limit, after delivering what consumers can take."""
        queue, backlog = self._queue, self._queue.backlog
        if (
            backlog is not None
            and self._drops
            and (backlog.count > self._length or backlog.bytes > self._bytes or (queue.aside and self._over()))
        ):
            if queue.consumers or backlog.next_deadline:
                queue.deliver()
            self._drop_beyond()

    def returning(self) -> None:
        """Deliver first: messages that consumers can take now do not count for the limit."""
        if self._drops:
            self._queue.deliver()

    def returned(self) -> None:
        """Drop before messages are delivered; in a quorum queue after, the last one first (RabbitMQ's order)."""
        queue = self._queue
        if queue.type != "quorum":
            if self._drops:
                self._drop_beyond()
        elif self._drops and not self._dropping and self._over() and queue.backlog is not None:
            queue.deliver()
            over: list[Held] = []
            while len(over) < RETURNED and self._over() and (held := queue.backlog.pop()) is not None:
                over.append(held)
            for held in reversed(over):
                queue.drop(held, "maxlen")
            self._drop_beyond()

    def settings_changed(self) -> None:
        self._set_limits()
        self.enqueued()

    def _set_limits(self) -> None:
        settings = self._queue.settings
        self._drops = settings.overflow in (None, "drop-head", "drop-lowest-priority")
        self._lowest_first = settings.overflow == "drop-lowest-priority" and settings.max_priority is not None
        self._length = UNLIMITED if settings.max_length is None else settings.max_length
        self._bytes = UNLIMITED if settings.max_length_bytes is None else settings.max_length_bytes

    def _drop_beyond(self) -> None:
        """Drop the messages beyond the limit; many (the limit is new) in steps."""
        if not self._dropping and self._drop(SHARE):
            self._dropping = True
            self._queue.batch.slices.run(self._drop_many())

    def _drop_many(self) -> Work:
        try:
            while not self._queue.deleted and self._drops and self._drop(SHARE):
                self._queue.batch.letters.hold_back()
                yield
        finally:
            self._dropping = False

    def _drop(self, most: int) -> bool:
        """Drop messages while there are too many, but so many at most. Returns whether there are more to drop."""
        queue, backlog = self._queue, self._queue.backlog
        if backlog is None:
            return False
        pop = backlog.pop_lowest if self._lowest_first else backlog.pop
        length, size, aside = self._length, self._bytes, queue.aside
        for _ in range(most):
            if backlog.count <= length and backlog.bytes <= size and not (aside and self._over()):
                return False
            held = pop()
            if held is None:
                return False
            queue.drop(held, "maxlen")
        return True

    def _over(self, more: int = 0, more_bytes: int = 0) -> bool:
        backlog = self._queue.backlog
        if backlog is None:
            return False
        for part in self._queue.aside:  # as in RabbitMQ's quorum queues, the only ones with these parts
            more += part.count
            more_bytes += part.bytes
        return backlog.count + more > self._length or backlog.bytes + more_bytes > self._bytes
