"""Deduplication in a queue: a decorator that remembers the keys of recent messages.

A publisher gives a message a key in a header (`x-deduplication-header`, unless the queue's argument of that name says
otherwise); a queue declared with the argument `x-message-deduplication` takes only the first message of each key, as
long as it remembers the key: `x-cache-size` keys at most, each for `x-cache-ttl` milliseconds. A message without the
header is never a duplicate. A duplicate is confirmed, not queued.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final

from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.contents.removed import Entries
from harebell.broker.queues.decorators import QueueDecorator, Verdict
from harebell.routing.settings import QueueSettings

__all__ = ["Duplicates"]

DEFAULT_HEADER: Final = "x-deduplication-header"
DEFAULT_CACHE_SIZE: Final = 128  # LavinMQ's
MANY: Final = 512  # keys, of which more are not freed at once


class Duplicates(QueueDecorator):
    """The recent keys of one queue, by its settings. `settings` gives those in force, `now` milliseconds."""

    per_message = True

    def __init__(
        self,
        settings: Callable[[], QueueSettings],
        now: Callable[[], int],
        discard: Callable[[Entries], object] = lambda keys: None,
    ) -> None:
        self._settings, self._now, self._discard = settings, now, discard
        self._seen: OrderedDict[str, int] = OrderedDict()  # key -> time of its last message
        self._header: str | None = None  # None: nothing is remembered
        self.settings_changed()

    @classmethod
    def of(cls, queue: Queue) -> Duplicates | None:
        """The decorator of a queue that was declared with deduplication."""
        if not queue.settings.message_deduplication or not isinstance(queue, ClassicQueue):
            return None
        return cls(lambda: queue.settings, queue.timers.now, queue.batch.slices.discard)

    def settings_changed(self) -> None:
        """Apply other limits to the keys, remembered ones included; another header drops them all."""
        settings = self._settings()
        header = DEFAULT_HEADER if settings.deduplication_header is None else settings.deduplication_header
        if not settings.message_deduplication or header != self._header:
            self._forget(0)
        self._header = header if settings.message_deduplication else None
        self._size = DEFAULT_CACHE_SIZE if settings.cache_size is None else settings.cache_size
        self._ttl = settings.cache_ttl
        self._forget(self._size)

    def deleted(self) -> None:
        """Free the keys of a queue that is deleted."""
        self._forget(0)

    def _forget(self, size: int) -> None:
        """Forget all but the newest keys. Where few are left of many, the others are freed in steps."""
        if len(self._seen) > max(2 * size, MANY):
            newest = list(islice(reversed(self._seen.items()), size))
            old, self._seen = self._seen, OrderedDict(reversed(newest))
            self._discard(Entries(old))
        while len(self._seen) > size:
            self._seen.popitem(last=False)

    def judge(self, message: Message) -> Verdict:
        """Discard a message whose key is remembered and not too old."""
        key = self._key(message)
        before = None if key is None else self._seen.get(key)
        seen = before is not None and (self._ttl is None or self._now() < before + self._ttl)
        return Verdict.DISCARD if seen else Verdict.ADMIT

    def accepted(self, message: Message) -> None:
        """Remember the message's key: only now, because a refused message may be published again."""
        key = self._key(message)
        if key is not None:
            self._seen.pop(key, None)
            self._seen[key] = self._now()
            if len(self._seen) > self._size:
                self._seen.popitem(last=False)

    def _key(self, message: Message) -> str | None:
        """The message's key; None when its publisher gave none."""
        if self._header is None:
            return None
        headers = message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._header)
        return None if value is None else repr(value)  # "1" and 1 are different keys
