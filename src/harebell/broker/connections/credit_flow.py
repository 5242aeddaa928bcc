"""Credit flow: a publisher that is faster than the disk is held back until the disk has caught up.

Every connection may have up to `LIMIT` bytes in batches that no sync covers yet. Over it, its socket is not read; when
syncs have covered half of them it is read again. Nothing else holds a publisher: neither slow consumers, which make
queues grow as with RabbitMQ, nor acknowledgements, so a connection that publishes and consumes cannot hold itself.
Every connection has its own limit, and those that publish to no stored queue are never held. A queue that is deleted is
synced first, so the bytes owed for it are credited too.

The client gets no notice: connection.blocked is for alarms. Statistics show the state "flow".
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LIMIT", "CreditFlow"]

LIMIT: Final = 8 << 20  # bytes: at 3.5 ms a sync that is 2 GB/s, so a disk that keeps up holds no publisher back


class CreditFlow:
    """The bytes that one connection has published and that no sync covers yet: `owed`."""

    __slots__ = ("_batches", "owed")

    def __init__(self) -> None:
        self.owed = 0
        self._batches: deque[tuple[int, int]] = deque()  # (ticket, bytes), oldest first

    def charge(self, ticket: int, size: int, synced: int) -> bool:
        """Charge a batch of `size` bytes that waits for the sync `ticket`. Returns whether the limit is exceeded."""
        self._batches.append((ticket, size))
        self.owed += size
        self._collect(synced)
        return self.owed > LIMIT

    def grant(self, synced: int) -> bool:
        """Credit all syncs up to this one. Returns whether the connection may be read again."""
        self._collect(synced)
        return self.owed <= LIMIT // 2

    def _collect(self, synced: int) -> None:
        batches = self._batches
        while batches and batches[0][0] <= synced:
            self.owed -= batches.popleft()[1]
