"""Queue decorators: told of the life of a queue, they may also decide about each message that comes.

A decorator belongs to one queue. Length limits (`length_limit`), deduplication (`deduplication`) and the counts of what
a queue drops (`drops`) are decorators; a program adds its own with `Broker.add_decorator`. A queue without any pays
nothing for them.

A factory is called with each queue when it is made, and again when the queue's settings change while the factory has
given it none (`base.DecoratorFactory`). It returns a decorator, or None for a queue that it does not decorate.

The methods are called in the broker's thread, in the middle of a batch: they must not block, and must not raise.
"""

from __future__ import annotations

from enum import Enum

from harebell.broker.message import Message

__all__ = ["QueueDecorator", "Verdict", "overrides"]


class Verdict(Enum):
    """What becomes of a message that comes to a queue."""

    ADMIT = "admitted"
    DISCARD = "discarded"  # confirmed, but not queued
    REFUSE = "refused"  # nacked, where its publisher asked for confirms


class QueueDecorator:
    """Does nothing: override what matters. The queue is named after each change, not before it."""

    per_message = False
    """True: `judge`, `accepted`, `enqueued`, `returning` and `returned` are called too.

    That takes the queue off the plain path.
    """

    def started(self) -> None:
        """The queue is there: declared, or recovered from disk."""

    def deleted(self) -> None:
        """The queue is gone, with its consumers and messages. Nothing else is called after this."""

    def settings_changed(self) -> None:
        """A policy came or went: `queue.settings` are others now."""

    def consumers_changed(self) -> None:
        """A consumer came or went; where only one is active at a time, it may be another one now."""

    def consumer_state_changed(self) -> None:
        """Deliveries were tried: the queue, or its consumers' windows, may be full or empty now.

        Once at the end of a batch in which the queue had something to do, however many messages that were.
        """

    def dropped(self, message: Message, reason: str) -> None:
        """A message is gone without an acknowledgement.

        The reason is that of dead letters (expired, maxlen, rejected, delivery_limit), or says why it never was in the
        queue: discarded or refused.
        """

    def judge(self, message: Message) -> Verdict:
        """Whether the queue takes a message. Decorators are asked in the order in which they were added."""
        return Verdict.ADMIT

    def accepted(self, message: Message) -> None:
        """Every decorator admitted the message: it will be delivered at once, enqueued, or expire on the spot."""

    def enqueued(self) -> None:
        """A message was put into the queue."""

    def returning(self) -> None:
        """Messages are about to come back, and the windows of their consumers to open."""

    def returned(self) -> None:
        """They are in the queue again."""


def overrides(decorator: QueueDecorator, method: str) -> bool:
    """Whether the decorator overrides the method, so that there is a reason to call it."""
    return getattr(type(decorator), method) is not getattr(QueueDecorator, method)
