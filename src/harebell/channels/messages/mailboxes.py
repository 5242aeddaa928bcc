"""The mailboxes of this process's process-local channels, made when a message or a reader comes. For any thread.

Each mailbox is looked at when its first entry expires, or when it may be abandoned: idle mailboxes cost nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from harebell.channels.messages.mailbox import FOREVER, Mailbox, MailboxEntry
from harebell.channels.settings import Capacities

__all__ = ["Mailboxes"]

SURPLUS: Final = 50  # entries beyond the capacity, at least, of senders that do not know yet that a mailbox is full


class Mailboxes:
    """The mailboxes of the channels of this process.

    patience  seconds without a reader after which a mailbox is looked at
    dropped   how many messages were dropped: over capacity, or expired
    """

    def __init__(self, capacities: Capacities, patience: float) -> None:
        self._capacities = capacities
        self._patience = patience
        self._lock = threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        self._due: dict[int, list[str]] = {}  # channels to be looked at, by the second
        self._swept = int(time.monotonic())
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._boxes)

    def get(self, channel: str) -> Mailbox | None:
        """The mailbox of a channel, or None."""
        return self._boxes.get(channel)

    def of(self, channel: str) -> Mailbox:
        """The mailbox of a channel; created if missing."""
        box = self._boxes.get(channel)
        if box is None:
            capacity, now = self._capacities.of(channel), time.monotonic()
            with self._lock:
                box = self._boxes.get(channel)
                if box is None:
                    box = Mailbox(capacity, now, max(capacity, SURPLUS) if capacity else 0)
                    self._boxes[channel] = box
                    self._check_at(channel, box, now + self._patience)
        return box

    def put(self, channel: str, entry: MailboxEntry, *, surplus: bool = False) -> bool:
        """Put an entry into the channel's mailbox; False when it is full. See `Mailbox.put`."""
        box = self._boxes.get(channel) or self.of(channel)
        if box.check_at > entry.expires:
            with self._lock:
                self._check_at(channel, box, entry.expires)
        if box.put(entry, surplus=surplus):
            return True
        self.dropped += 1
        return False

    def reading(self, channel: str) -> Mailbox:
        """The mailbox of a channel for its reader; created if missing, and not dropped while it is read."""
        while True:
            box = self.of(channel)
            with self._lock:
                if self._boxes.get(channel) is box:
                    box.last_read = time.monotonic()
                    return box

    def _check_at(self, channel: str, box: Mailbox, at: float) -> None:
        box.check_at = at
        self._due.setdefault(int(at) + 1, []).append(channel)

    def sweep(self, now: float, expired: Callable[[str, int, bool], None]) -> None:
        """Drop the entries that have expired, and mailboxes without a reader.

        expired  called for each channel that is due: how many entries have expired, and whether no reader has come for
                 so long that the channel is abandoned
        """
        for second in range(self._swept + 1, int(now) + 1):
            for channel in self._due.pop(second, ()):
                box = self._boxes.get(channel)
                if box is None or box.check_at > now:
                    continue
                dropped = box.drop_expired(now)
                self.dropped += dropped
                abandoned = not box.awaited and not len(box) and now - box.last_read >= self._patience
                read = now if box.awaited or abandoned else box.last_read
                with self._lock:
                    self._check_at(channel, box, min(box.first_expiry, max(read + self._patience, now)))
                if dropped or abandoned:
                    expired(channel, dropped, abandoned)
        self._swept = max(self._swept, int(now))

    def forget(self, channel: str, unread_since: float) -> None:
        """Drop an empty mailbox that no reader has used since then."""
        with self._lock:
            box = self._boxes.get(channel)
            if box is not None and box.retire(unread_since):
                del self._boxes[channel]

    def waiting(self, channel: str | None = None) -> tuple[int, float | None]:
        """How many messages wait for their readers, in a channel or (None) in all; when the oldest one expires."""
        boxes = self._all() if channel is None else [box for box in [self._boxes.get(channel)] if box is not None]
        oldest = min((box.first_expiry for box in boxes), default=FOREVER)
        return sum(map(len, boxes)), None if oldest == FOREVER else oldest

    def clear(self) -> None:
        for box in self._all():
            box.empty()

    def fail(self, failure: Exception) -> None:
        """Raise this error in waiting readers: no messages come any more."""
        for box in self._all():
            box.fail(failure)

    def interrupt(self, failure: Exception) -> None:
        """Raise this error in readers that wait now: there is no connection, and none will come by itself."""
        with self._lock:
            awaited = [channel for channel, box in self._boxes.items() if box.awaited]
            boxes = [self._boxes.pop(channel) for channel in awaited]
        for box in boxes:
            box.fail(failure)

    def _all(self) -> list[Mailbox]:
        with self._lock:
            return list(self._boxes.values())
