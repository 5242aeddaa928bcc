"""The last messages of a recent-history exchange, for queues that are bound to it later.

The router decides whether an exchange remembers a message (`Route.remembered`); `History` takes it as a queue would.
Histories are in memory only.
"""

from __future__ import annotations

from collections import deque

from harebell.broker.message import Message
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange, RecentHistoryExchange

__all__ = ["History"]


class History:
    """The last messages of one recent-history exchange."""

    stored = False

    def __init__(self, length: int) -> None:
        self.messages: deque[Message] = deque(maxlen=length)

    @classmethod
    def of(cls, exchange: object) -> History | None:
        """A new history for a recent-history exchange; None for any other."""
        kept = exchange.inner if isinstance(exchange, DelayedMessageExchange) else exchange
        return cls(kept.length) if isinstance(kept, RecentHistoryExchange) else None

    def publish(self, message: Message) -> bool:
        self.messages.append(message)
        return True

    def can_deliver(self, message: Message) -> bool:
        return False

    def enrich(self) -> None:
        """Do nothing: messages do not expire here."""
