"""The mailboxes of this process's process-local channels, made when a message or a reader comes. For any thread."""

from __future__ import annotations

import threading
import time

from harebell import errors
from harebell.channels.mailbox import Mailbox
from harebell.channels.settings import Capacities

__all__ = ["Mailboxes"]


class Mailboxes:
    """The mailboxes of the channels of this process."""

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        self._lock = threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        self.dropped = 0

    def get(self, channel: str) -> Mailbox | None:
        """The mailbox of a channel, or None."""
        return self._boxes.get(channel)

    def of(self, channel: str) -> Mailbox:
        """The mailbox of a channel for a new entry; created if missing."""
        box = self._boxes.get(channel)
        if box is None:
            with self._lock:
                box = Mailbox(self._capacities.of(channel), time.monotonic())
                box = self._boxes.setdefault(channel, box)
        return box

    def reading(self, channel: str) -> Mailbox:
        """The mailbox of a channel for its reader; created if missing, and not dropped while it is read."""
        while True:
            box = self.of(channel)
            with self._lock:
                if self._boxes.get(channel) is box:
                    box.last_read = time.monotonic()
                    return box

    def items(self) -> list[tuple[str, Mailbox]]:
        with self._lock:
            return list(self._boxes.items())

    def forget(self, channel: str, unread_since: float) -> None:
        """Drop an empty mailbox that no reader has used since then."""
        with self._lock:
            box = self._boxes.get(channel)
            if box is not None and box.retire(unread_since):
                del self._boxes[channel]

    def clear(self) -> None:
        for box in self._all():
            box.empty()

    def fail(self, failure: errors.HarebellError) -> None:
        """Raise this error in waiting readers: no messages come any more."""
        for box in self._all():
            box.fail(failure)

    def _all(self) -> list[Mailbox]:
        with self._lock:
            return list(self._boxes.values())
