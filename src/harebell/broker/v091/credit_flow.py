"""Credit flow: a publisher that is faster than the disk is held back until the disk has caught up.

Every connection may have so many bytes in batches that no sync covers yet (`LIMIT`). Over it, its socket is read no
more; when syncs have covered half of them it is read again. Nothing else is waited for: not for consumers, whose
slowness makes queues grow as with RabbitMQ, and not for acknowledgements, so a connection that publishes and consumes
cannot hold itself. Every connection has a share of its own, and those that publish to no stored queue are never held.
A queue that dies is synced as it goes, so what was owed for it comes back too.

Nothing is said to the client: connection.blocked is for alarms. Statistics show the state "flow".
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LIMIT", "CreditFlow"]

LIMIT: Final = 8 << 20  # bytes: at 3.5 ms a sync that is 2 GB/s, so a disk that keeps up holds no publisher back


class CreditFlow:
    """What one connection has published and no sync covers yet: `owed` bytes."""

    __slots__ = ("_batches", "owed")

    def __init__(self) -> None:
        self.owed = 0
        self._batches: deque[tuple[int, int]] = deque()  # (ticket, bytes), oldest first

    def charge(self, ticket: int, size: int, synced: int) -> bool:
        """A batch of `size` bytes waits for the sync `ticket`; whether that is more than the connection may owe."""
        self._batches.append((ticket, size))
        self.owed += size
        self._collect(synced)
        return self.owed > LIMIT

    def grant(self, synced: int) -> bool:
        """All syncs up to this one are done; whether the connection may go on."""
        self._collect(synced)
        return self.owed <= LIMIT // 2

    def _collect(self, synced: int) -> None:
        batches = self._batches
        while batches and batches[0][0] <= synced:
            self.owed -= batches.popleft()[1]
