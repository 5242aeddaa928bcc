"""Duplicates detected by a queue, as its decorator: the keys of the messages that it has seen lately.

A publisher gives a message a key in a header (`x-deduplication-header`, unless the queue's argument of that name says
otherwise); a queue declared with the argument `x-message-deduplication` takes only the first message of each key, as
long as it remembers the key: `x-cache-size` keys at most, each for `x-cache-ttl` milliseconds. A message without the
header is never a duplicate. A duplicate is confirmed, not queued.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from warren.broker.decorators import QueueDecorator, Verdict
from warren.broker.message import Message
from warren.broker.queue import ClassicQueue, Queue

__all__ = ["Duplicates"]

DEFAULT_HEADER: Final = "x-deduplication-header"
DEFAULT_CACHE_SIZE: Final = 128  # LavinMQ's


class Duplicates(QueueDecorator):
    """`header` holds the key; `size` keys at most, the oldest forgotten first; `ttl` milliseconds each, or no limit.

    `now` gives milliseconds.
    """

    per_message = True

    def __init__(self, header: str | None, size: int | None, ttl: int | None, now: Callable[[], int]) -> None:
        self._header = DEFAULT_HEADER if header is None else header
        self._size = DEFAULT_CACHE_SIZE if size is None else size
        self._ttl = ttl
        self._now = now
        self._seen: OrderedDict[str, int] = OrderedDict()  # key -> when it is forgotten

    @classmethod
    def of(cls, queue: Queue) -> Duplicates | None:
        """The memory of a queue that was declared with one."""
        settings = queue.settings
        if not settings.message_deduplication or not isinstance(queue, ClassicQueue):
            return None
        now = queue.vhost.node.timers.now
        return cls(settings.deduplication_header, settings.cache_size, settings.cache_ttl, now)

    def judge(self, message: Message) -> Verdict:
        """A message whose key was remembered, and not too long ago, is discarded."""
        key = self._key(message)
        deadline = None if key is None else self._seen.get(key)
        seen = deadline is not None and (self._ttl is None or self._now() < deadline)
        return Verdict.DISCARD if seen else Verdict.ADMIT

    def accepted(self, message: Message) -> None:
        """Remember its key: not before, because what the queue refused may come again."""
        key = self._key(message)
        if key is not None:
            self._seen.pop(key, None)
            self._seen[key] = self._now() + (self._ttl or 0)
            if len(self._seen) > self._size:
                self._seen.popitem(last=False)

    def _key(self, message: Message) -> str | None:
        """What the message is told apart by; None when its publisher did not say."""
        headers = message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._header)
        return None if value is None else repr(value)  # "1" and 1 are different keys
