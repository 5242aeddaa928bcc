"""The progress of a shovel over all its sessions."""

from __future__ import annotations

import asyncio

__all__ = ["Progress"]


class Progress:
    """The counts and the end of one shovel.

    limit        how many messages to move; None: no end is set
    until_empty  end when the source queue is empty, or when nothing more comes from a stream
    stopping     set when the shovel is to take no more messages
    expected     how many messages there were to move at the start; None until that is known
    forwarded    how many the destination has confirmed
    lost         how many the destination refused although the source had removed them, in sessions that have ended
    next_offset  the stream offset to continue at; None at its beginning
    """

    def __init__(self, limit: int | None, *, until_empty: bool) -> None:
        self.limit = limit
        self.until_empty = until_empty
        self.stopping = asyncio.Event()
        self.expected: int | None = None
        self.forwarded = 0
        self.lost = 0
        self.next_offset: int | None = None

    def left(self, lost_now: int = 0) -> int | None:
        """How many messages are still to be moved; None: no end is set. `lost_now`: lost in the current session."""
        return None if self.limit is None else max(0, self.limit - self.forwarded - self.lost - lost_now)
