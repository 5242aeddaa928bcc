"""Queue decorators: they are notified of the life of a queue, and may decide about each new message.

A decorator belongs to one queue. Length limits (`length_limit`), deduplication (`deduplication`) and the counts of
dropped messages (`drops`) are decorators; a program adds its own with `Broker.add_decorator`. A queue without
decorators has no cost.

A factory is called with each queue when it is made, and again when the queue's settings change while the factory has
given it none (`base.DecoratorFactory`). It returns a decorator, or None for a queue that it does not decorate.

The methods are called in the broker's thread, in the middle of a batch: they must not block, and must not raise.
"""

from __future__ import annotations

from enum import Enum

from harebell.broker.message import Message

__all__ = ["QueueDecorator", "Verdict", "overrides"]


class Verdict(Enum):
    """The decision about a message that is published to a queue."""

    ADMIT = "admitted"
    DISCARD = "discarded"  # confirmed, but not queued
    REFUSE = "refused"  # nacked, where its publisher asked for confirms


class QueueDecorator:
    """A decorator that does nothing: override what matters. A method is called after the change that it names."""

    per_message = False
    """True: `judge`, `accepted`, `enqueued`, `returning` and `returned` are called too.

    That takes the queue off the plain path.
    """

    def started(self) -> None:
        """The queue exists: it was declared, or recovered from disk."""

    def deleted(self) -> None:
        """The queue is deleted, with its consumers and messages. No method is called after this."""

    def settings_changed(self) -> None:
        """The queue's settings have changed (`queue.settings`): a policy was set or cleared."""

    def consumers_changed(self) -> None:
        """A consumer was added or removed; with a single active consumer, another one may be active now."""

    def consumer_state_changed(self) -> None:
        """Deliveries were tried: the queue, or its consumers' windows, may be full or empty now.

        It is called once at the end of a batch in which the queue had work, for any number of messages.
        """

    def dropped(self, message: Message, reason: str) -> None:
        """A message was dropped without an acknowledgement.

        The reason is that of dead letters (expired, maxlen, rejected, delivery_limit), or discarded or refused for a
        message that never was in the queue.
        """

    def judge(self, message: Message) -> Verdict:
        """Decide whether the queue takes a message. Decorators are called in the order in which they were added."""
        return Verdict.ADMIT

    def accepted(self, message: Message) -> None:
        """Every decorator accepted the message: it will be delivered at once, enqueued, or expire at once."""

    def enqueued(self) -> None:
        """A message was put into the queue."""

    def returning(self) -> None:
        """Messages are about to come back, and the windows of their consumers will open."""

    def returned(self) -> None:
        """The returned messages are in the queue again."""


def overrides(decorator: QueueDecorator, method: str) -> bool:
    """Whether the decorator overrides the method, and so needs the call."""
    return getattr(type(decorator), method) is not getattr(QueueDecorator, method)
