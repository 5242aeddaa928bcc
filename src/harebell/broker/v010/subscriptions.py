"""The subscriptions of a session, by their tags, and how they end.

Where a queue is deleted that a session subscribes to, the session ends (specification: message.subscribe, rule
queue-deletion, which lets the exception come at any time): at once, if the subscription waits for messages; else, when
it is given credit. So a client that has stopped asking may cancel a subscription whose queue somebody has deleted
meanwhile, as Qpid's clients do when they close. What it holds of the queue is released at once, to the queue's
alternate exchange. A session that deletes a queue itself is not told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell.broker.observers import Listener
from harebell.broker.queues.base import Queue
from harebell.broker.queues.browse import View
from harebell.broker.v010.subscription import Subscription
from harebell.errors import AmqpError, NotFound, ResourceDeleted

__all__ = ["Subscriptions"]

MOST_GONE: Final = 1024  # subscriptions that ended with their queue, and can still be cancelled


class Subscriptions:
    """``fail`` ends the session by an error, later. ``table`` is to be read."""

    def __init__(self, events: Listener, fail: Callable[[AmqpError], None]) -> None:
        self.table: dict[str, Subscription] = {}
        self._events = events
        self._fail = fail
        self._deleting: set[Queue] = set()  # queues that the session deletes itself
        self._gone: dict[str, ResourceDeleted] = {}  # what is said of those that ended with their queue

    def add(self, subscription: Subscription) -> None:
        self.table[subscription.tag] = subscription
        self._gone.pop(subscription.tag, None)
        self._events.consumer_created(subscription)

    def get(self, tag: str, command: str) -> Subscription:
        """The subscription that a command names. Raises NotFound, or ResourceDeleted if its queue is gone."""
        subscription = self.table.get(tag)
        if subscription is None:
            raise self._gone.get(tag) or NotFound(f"{command}: there is no subscription '{tag}'")
        return subscription

    def gone(self, tag: str) -> bool:
        """Whether the subscription has ended with its queue. It can be stopped and cancelled still."""
        return tag in self._gone

    def cancel(self, tag: str, command: str) -> None:
        """End the subscription that a command names. Raises NotFound."""
        if self._gone.pop(tag, None) is None:
            self.remove(self.get(tag, command))

    def remove(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._forget(subscription)
        subscription.queue.remove_consumer(subscription)

    def _forget(self, subscription: Subscription) -> None:
        subscription.cancelled = True
        self.table.pop(subscription.tag, None)
        subscription.flush_counts()
        self._events.consumer_deleted(subscription)

    def deletes(self, queue: Queue) -> None:
        """Note that the session deletes a queue: its own subscriptions end without an error."""
        self._deleting = {each for each in self._deleting if not each.deleted} | {queue}

    def queue_deleted(self, subscription: Subscription) -> bool:
        """End a subscription whose queue is being deleted. Returns whether its session goes on, and is not told."""
        self._forget(subscription)
        error = ResourceDeleted(f"{subscription.queue} was deleted, subscription '{subscription.tag}' has ended")
        queue = subscription.queue
        own = (queue.source if isinstance(queue, View) else queue) in self._deleting
        if subscription.waits and not own:
            self._fail(error)
            return False
        self._gone[subscription.tag] = error
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        return not own
