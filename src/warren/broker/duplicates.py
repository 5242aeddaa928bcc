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

__all__ = ["Duplicates"]

DEFAULT_HEADER: Final = "x-deduplication-header"
DEFAULT_CACHE_SIZE: Final = 128  # LavinMQ's


class Duplicates:
    """`header` holds the key; `size` keys at most, the oldest forgotten first; `ttl` milliseconds each, or no limit."""

    def __init__(self, header: str | None, size: int | None, ttl: int | None) -> None:
        self._header = DEFAULT_HEADER if header is None else header
        self._size = DEFAULT_CACHE_SIZE if size is None else size
        self._ttl = ttl
        self._seen: OrderedDict[str, int] = OrderedDict()  # key -> when it is forgotten

    def seen(self, message: Message, now: int) -> bool:
        """Whether a message of this key came before; from now on one did."""
        headers = message.content.decode_properties().headers
        value = None if headers is None else headers.get(self._header)
        if value is None:
            return False
        key = repr(value)  # "1" and 1 are different keys
        deadline = self._seen.get(key)
        if deadline is not None and (self._ttl is None or now < deadline):
            return True
        self._seen.pop(key, None)
        self._seen[key] = now + (self._ttl or 0)
        if len(self._seen) > self._size:
            self._seen.popitem(last=False)
        return False
