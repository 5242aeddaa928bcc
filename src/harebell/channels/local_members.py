"""A table in memory of the groups and their process-local channels of this process, for any thread.

The broker only knows that this process's queue is bound to a group; one copy arrives, whatever the number of members.
A membership ends when it is discarded, or when it was not added again within the group's expiry.
"""

from __future__ import annotations

import threading

__all__ = ["LocalMembers"]


class LocalMembers:
    """The groups, their local channels, and when each membership ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, float]] = {}
        self._bound: set[tuple[str, str]] = set()  # (group, process queue) that the broker has confirmed
        self._snapshots: dict[str, tuple[str, ...]] = {}

    def refresh(self, group: str, channel: str, process: str, expires: float) -> bool:
        """Add a channel to a group, if its process's queue is bound to the group; False when it is not yet bound."""
        with self._lock:
            if (group, process) not in self._bound:
                return False
            self._put(group, channel, expires)
            return True

    def add(self, group: str, channel: str, expires: float) -> None:
        with self._lock:
            self._put(group, channel, expires)

    def _put(self, group: str, channel: str, expires: float) -> None:
        members = self._groups.setdefault(group, {})
        if channel not in members:
            self._snapshots.pop(group, None)
        members[channel] = expires

    def bound(self, group: str, process: str) -> None:
        """Note that the process's queue is bound to the group."""
        with self._lock:
            self._bound.add((group, process))

    def is_bound(self, group: str, process: str) -> bool:
        return (group, process) in self._bound

    def discard(self, group: str, channel: str, process: str) -> bool:
        """Remove a channel; True when it was the last one of that process queue: its binding can be removed too."""
        with self._lock:
            return self._drop(group, channel, process)

    def _drop(self, group: str, channel: str, process: str) -> bool:
        members = self._groups.get(group)
        if members is None or members.pop(channel, None) is None:
            return False
        self._snapshots.pop(group, None)
        if not members:
            del self._groups[group]
        if any(other.startswith(process) for other in members):
            return False
        self._bound.discard((group, process))
        return True

    def of(self, group: str) -> tuple[str, ...]:
        """The channels in a group."""
        snapshot = self._snapshots.get(group)
        if snapshot is None:
            with self._lock:
                snapshot = self._snapshots[group] = tuple(self._groups.get(group, ()))
        return snapshot

    def contains(self, group: str, channel: str) -> bool:
        return channel in self._groups.get(group, ())

    def groups_of(self, channel: str) -> list[str]:
        """The groups that a channel is in."""
        with self._lock:
            return [group for group, members in self._groups.items() if channel in members]

    def expired(self, now: float) -> list[tuple[str, str]]:
        """The memberships that have expired, as (group, channel)."""
        with self._lock:
            return [
                (group, channel)
                for group, members in self._groups.items()
                for channel, expires in members.items()
                if expires <= now
            ]

    def clear(self) -> list[tuple[str, str]]:
        """Remove all memberships; returns the bindings to remove, as (group, process)."""
        with self._lock:
            bound = list(self._bound)
            self._groups.clear()
            self._bound.clear()
            self._snapshots.clear()
        return bound

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))
