"""Duplicates detected by a queue: the keys of the messages that it has seen lately.

A publisher gives a message a key in a header (`x-deduplication-header`, unless the queue's argument of that name says
otherwise); a queue declared with the argument `x-message-deduplication` takes only the first message of each key, as
long as it remembers the key: `x-cache-size` keys at most, each for `x-cache-ttl` milliseconds. A message without the
header is never a duplicate. A duplicate is confirmed, not queued.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from warren.broker.message import Message

__all__ = ["DEFAULT_HEADER", "Duplicates"]

DEFAULT_HEADER: Final = "x-deduplication-header"
DEFAULT_CACHE_SIZE: Final = 128  # LavinMQ's


class Duplicates:
    """`header` holds the key; `size` keys at most, the oldest forgotten first; `ttl` milliseconds each, or no limit."""

    def __init__(self, header: str, size: int | None, ttl: int | None) -> None:
        self.header = header
        self._size = DEFAULT_CACHE_SIZE if size is None else size
        self._ttl = ttl
        self._seen: OrderedDict[str, int] = OrderedDict()  # key -> when it was seen last

    def reconfigure(self, size: int | None, ttl: int | None) -> None:
        """Other limits hold from now on, for what is remembered too."""
        self._size = DEFAULT_CACHE_SIZE if size is None else size
        self._ttl = ttl
        while len(self._seen) > self._size:
            self._seen.popitem(last=False)

    def key(self, message: Message) -> str | None:
        """What the message is told apart by; None when its publisher did not say."""
        headers = message.content.decode_properties().headers
        value = None if headers is None else headers.get(self.header)
        return None if value is None else repr(value)  # "1" and 1 are different keys

    def seen(self, key: str | None, now: int) -> bool:
        """Whether a message of this key was remembered, and not too long ago."""
        before = None if key is None else self._seen.get(key)
        return before is not None and (self._ttl is None or now < before + self._ttl)

    def remember(self, key: str | None, now: int) -> None:
        """The queue takes a message of this key."""
        if key is not None:
            self._seen.pop(key, None)
            self._seen[key] = now
            if len(self._seen) > self._size:
                self._seen.popitem(last=False)
