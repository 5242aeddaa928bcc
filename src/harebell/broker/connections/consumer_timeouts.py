"""The consumer timeout: which deliveries of a channel were not acknowledged in time, and leases for single ones.

A delivery costs nothing: the node looks periodically, and notes the channel's last delivery tag at each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, Protocol

from harebell.broker.operations.leases import Leases

__all__ = ["ConsumerTimeouts"]

STEP: Final = 512  # deliveries looked at in one step


class Unacked(Protocol):
    """The unacknowledged deliveries by tag, oldest first; the first part of each is its queue."""

    @property
    def entries(self) -> Mapping[int, tuple[Any, ...]]: ...


class ConsumerTimeouts:
    """When the unacknowledged deliveries of a channel were made, and their leases."""

    def __init__(self, unacked: Unacked) -> None:
        self._unacked = unacked
        self._leases = Leases()
        self._marks: deque[tuple[int, int]] = deque()  # (time, last delivery tag by then), oldest first

    def lease(self, tags: Iterable[int], now: int, timeout: int) -> None:
        """Grant these deliveries a lease of so many milliseconds."""
        for tag in tags:
            self._leases.grant(tag, now, timeout)

    def overdue(self, now: int, last_tag: int, default: int, least: int) -> Generator[None, None, dict[int, int]]:
        """Find the overdue deliveries in steps. Returns their tags, each with its timeout in milliseconds.

        last_tag  the channel's last delivery tag
        default   the timeout of queues without one of their own
        least     the smallest timeout of all queues
        """
        marks, leases, entries = self._marks, self._leases, self._unacked.entries
        overdue = leases.overdue(now, entries)
        oldest = next((tag for tag in entries if tag not in leases), last_tag + 1)
        while marks and marks[0][1] < oldest:
            marks.popleft()
        if last_tag >= oldest and (not marks or marks[-1][1] < last_tag):
            marks.append((now, last_tag))
        if not marks or now - marks[0][0] < least:
            return overdue
        tags, delivered = list(entries), iter(tuple(marks))
        at, last = next(delivered)
        for start in range(0, len(tags), STEP):
            for tag in tags[start : start + STEP]:
                while last < tag:
                    at, last = next(delivered)
                if now - at < least:
                    return overdue
                entry = self._unacked.entries.get(tag)
                if entry is not None and tag not in leases:
                    timeout = entry[0].settings.consumer_timeout or default
                    if now - at >= timeout:
                        overdue[tag] = timeout
            yield
        return overdue
