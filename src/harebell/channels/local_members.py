"""A table in memory of the groups and their process-local channels of this process, for any thread.

This table alone says who is a member: the broker only knows that this process's queue is bound to a group, and one copy
arrives, whatever the number of members. A membership ends when it is discarded, or when it was not added again within
the group's expiry.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from typing import Final

from harebell.channels.names import non_local

__all__ = ["LocalMembers"]

FOREVER: Final = float("inf")
SPARE: Final = 1000  # ends of memberships that are past, before the heap is made anew


class LocalMembers:
    """The groups, their local channels, and when each membership ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, float]] = {}
        self._bound: set[tuple[str, str]] = set()  # (group, process queue) that the broker has confirmed
        self._leaving: Counter[tuple[str, str]] = Counter()  # how many have asked to remove a channel from a group
        self._snapshots: dict[str, tuple[float, tuple[str, ...]]] = {}  # with the time of the first expiry
        self._ends: list[tuple[float, str, str]] = []  # a heap; a membership that was added again is later than here
        self._count = 0

    def refresh(self, group: str, channel: str, process: str, expires: float) -> bool:
        """Add a channel to a group, if its process's queue is bound to the group; False when it is not yet bound.

        False, too, while the channel is to be removed from the group: who asked for that may have been cancelled, and
        his request would remove what was added after it.
        """
        with self._lock:
            if (group, process) not in self._bound or (group, channel) in self._leaving:
                return False
            self._put(group, channel, expires)
            return True

    def add(self, group: str, channel: str, expires: float) -> None:
        with self._lock:
            self._put(group, channel, expires)

    def _put(self, group: str, channel: str, expires: float) -> None:
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = {}
        if channel not in members:
            self._snapshots.pop(group, None)
            self._count += 1
            members[channel] = expires
            heapq.heappush(self._ends, (expires, group, channel))
            if len(self._ends) > 2 * self._count + SPARE:
                self._without_ended()
        members[channel] = expires

    def _without_ended(self) -> None:
        """Drop the ends of memberships that were discarded: of those that come and go, most are."""
        self._ends = [
            (expires, group, channel) for group, members in self._groups.items() for channel, expires in members.items()
        ]
        heapq.heapify(self._ends)

    def bound(self, group: str, process: str) -> None:
        """Note that the process's queue is bound to the group, if it still has members there."""
        with self._lock:
            if _any_of(process, self._groups.get(group, {})):
                self._bound.add((group, process))

    def is_bound(self, group: str, process: str) -> bool:
        return (group, process) in self._bound

    def has(self, group: str, process: str) -> bool:
        """Whether a channel of that process queue is in the group."""
        with self._lock:
            return _any_of(process, self._groups.get(group, {}))

    def unbound(self, process: str) -> list[str]:
        """Note that the process's queue was deleted, and its bindings with it; returns the groups to bind it to."""
        with self._lock:
            self._bound = {bound for bound in self._bound if bound[1] != process}
            return [group for group, members in self._groups.items() if _any_of(process, members)]

    def leaving(self, group: str, channel: str) -> None:
        """A channel is to be removed from a group soon; `left` follows."""
        with self._lock:
            self._leaving[group, channel] += 1

    def left(self, group: str, channel: str) -> None:
        """It has been removed, or never will be."""
        with self._lock:
            self._leaving[group, channel] -= 1
            if not self._leaving[group, channel]:
                del self._leaving[group, channel]

    def discard(self, group: str, channel: str, process: str) -> bool:
        """Remove a channel; True when it was the last one of that process queue: its binding can be removed too."""
        with self._lock:
            return self._drop(group, channel, process)

    def _drop(self, group: str, channel: str, process: str) -> bool:
        members = self._groups.get(group)
        if members is None or members.pop(channel, None) is None:
            return False
        self._count -= 1
        self._snapshots.pop(group, None)
        if not members:
            del self._groups[group]
        elif _any_of(process, members):
            return False
        self._bound.discard((group, process))
        return True

    def of(self, group: str, now: float | None = None) -> tuple[str, ...]:
        """The channels in a group."""
        if now is None:
            now = time.monotonic()
        snapshot = self._snapshots.get(group)
        if snapshot is None or snapshot[0] <= now:
            with self._lock:
                members = self._groups.get(group, {})
                channels = tuple([channel for channel, expires in members.items() if expires > now])
                if len(channels) < len(members) or not members:
                    return channels  # a membership that has ended, and is still here, begins again without a word
                # Later additions only make it later, and then the snapshot is made once too often.
                snapshot = self._snapshots[group] = min(members.values()), channels
        return snapshot[1]

    def contains(self, group: str, channel: str) -> bool:
        return channel in self._groups.get(group, ())

    def expires(self, group: str, channel: str) -> float:
        """When a membership ends; long ago where there is none."""
        return self._groups.get(group, {}).get(channel, -FOREVER)

    def groups_of(self, channel: str) -> list[str]:
        """The groups that a channel is in."""
        with self._lock:
            return [group for group, members in self._groups.items() if channel in members]

    def expired(self, now: float) -> list[tuple[str, str]]:
        """End the memberships that have expired; returns the bindings to remove, as (group, process)."""
        over: list[tuple[str, str]] = []
        if not self._ends or self._ends[0][0] > now:
            return over
        with self._lock:
            ends = self._ends
            while ends and ends[0][0] <= now:
                _, group, channel = heapq.heappop(ends)
                expires = self._groups.get(group, {}).get(channel)
                if expires is None:
                    continue
                if expires > now:
                    heapq.heappush(ends, (expires, group, channel))
                elif self._drop(group, channel, non_local(channel)):
                    over.append((group, non_local(channel)))
        return over

    def clear(self) -> list[tuple[str, str]]:
        """Remove all memberships; returns the bindings to remove, as (group, process)."""
        with self._lock:
            bound = list(self._bound)
            self._groups.clear()
            self._bound.clear()
            self._snapshots.clear()
            self._ends.clear()
            self._count = 0
        return bound

    def __len__(self) -> int:
        return self._count


def _any_of(process: str, members: dict[str, float]) -> bool:
    return any(channel.startswith(process) for channel in members)
