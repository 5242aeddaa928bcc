"""What exchanges keep for who is bound later, and what routing may know of a message's properties.

Routing says that something is to be remembered (`Route.remembered`); `History` takes the message as a queue would. It
is in memory in this version. Messages that are held back (`Route.delayed`) are `delays`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from harebell.broker.message import Message
from harebell.protocol.v091 import Properties
from harebell.routing.hashing import HASH_PROPERTIES
from harebell.routing.keeping import DelayedMessageExchange, RecentHistoryExchange

__all__ = ["History", "hashed_properties"]


def hashed_properties(properties: Properties) -> Mapping[str, object]:
    """The properties that an exchange may route by, as routing takes them."""
    return {name: getattr(properties, name) for name in HASH_PROPERTIES}


class History:
    """The last messages of one recent-history exchange."""

    stored = False

    def __init__(self, length: int) -> None:
        self.messages: deque[Message] = deque(maxlen=length)

    @classmethod
    def of(cls, exchange: object) -> History | None:
        """A new history for an exchange that has one."""
        kept = exchange.inner if isinstance(exchange, DelayedMessageExchange) else exchange
        return cls(kept.length) if isinstance(kept, RecentHistoryExchange) else None

    def publish(self, message: Message) -> bool:
        self.messages.append(message)
        return True

    def can_deliver(self) -> bool:
        return False

    def enrich(self) -> None:
        """Nothing expires here."""
