"""Duplicates detected by a queue: the keys of the messages that it has seen lately, as its decorator.

A publisher gives a message a key in a header (`x-deduplication-header`, unless the queue's argument of that name says
otherwise); a queue declared with the argument `x-message-deduplication` takes only the first message of each key, as
long as it remembers the key: `x-cache-size` keys at most, each for `x-cache-ttl` milliseconds. A message without the
header is never a duplicate. A duplicate is confirmed, not queued.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.decorators import QueueDecorator, Verdict
from harebell.routing.settings import QueueSettings

__all__ = ["Duplicates"]

DEFAULT_HEADER: Final = "x-deduplication-header"
DEFAULT_CACHE_SIZE: Final = 128  # LavinMQ's


class Duplicates(QueueDecorator):
    """The memory of one queue, as its settings ask. `settings` gives those in force, `now` milliseconds."""

    per_message = True

    def __init__(self, settings: Callable[[], QueueSettings], now: Callable[[], int]) -> None:
        self._settings, self._now = settings, now
        self._seen: OrderedDict[str, int] = OrderedDict()  # key -> when it was seen last
        self._header: str | None = None  # None: nothing is remembered
        self.settings_changed()

    @classmethod
    def of(cls, queue: Queue) -> Duplicates | None:
        """The memory of a queue that was declared with one."""
        if not queue.settings.message_deduplication or not isinstance(queue, ClassicQueue):
            return None
        return cls(lambda: queue.settings, queue.timers.now)

    def settings_changed(self) -> None:
        """Other limits hold from now on, for what is remembered too; under another header nothing is."""
        settings = self._settings()
        header = DEFAULT_HEADER if settings.deduplication_header is None else settings.deduplication_header
        if not settings.message_deduplication or header != self._header:
            self._seen.clear()
        self._header = header if settings.message_deduplication else None
        self._size = DEFAULT_CACHE_SIZE if settings.cache_size is None else settings.cache_size
        self._ttl = settings.cache_ttl
        while len(self._seen) > self._size:
            self._seen.popitem(last=False)

    def judge(self, message: Message) -> Verdict:
        """A message whose key was remembered, and not too long ago, is discarded."""
        key = self._key(message)
        before = None if key is None else self._seen.get(key)
        seen = before is not None and (self._ttl is None or self._now() < before + self._ttl)
        return Verdict.DISCARD if seen else Verdict.ADMIT

    def accepted(self, message: Message) -> None:
        """Remember its key: not before, because what the queue refused may come again."""
        key = self._key(message)
        if key is not None:
            self._seen.pop(key, None)
            self._seen[key] = self._now()
            if len(self._seen) > self._size:
                self._seen.popitem(last=False)

    def _key(self, message: Message) -> str | None:
        """What the message is told apart by; None when its publisher did not say."""
        if self._header is None:
            return None
        headers = message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._header)
        return None if value is None else repr(value)  # "1" and 1 are different keys
