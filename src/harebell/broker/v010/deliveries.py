"""The deliveries of a session by command number: accepted, rejected, released, acquired, and complete.

`entries` are acquired and not settled; `windows` are those whose completion gives credit back; `browsed` are copies of
messages that stayed in their queues, which message.acquire takes out later. What a command names and no table has is
passed over: the specification lets a client name transfers that are settled, or that it never acquired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from harebell.broker.connections.settling import SHARE, rejected_in_steps, returning
from harebell.broker.counts import ChannelCounts
from harebell.broker.message import Held
from harebell.broker.queues.base import Back, Queue
from harebell.broker.queues.browse import View
from harebell.broker.slices import Work
from harebell.broker.v010.subscription import Entry, Window

__all__ = ["MOST_BROWSED", "Deliveries", "select"]

MOST_BROWSED: Final = 16_384  # browsed messages that can still be acquired; older ones cannot any more

T = TypeVar("T")


def select(table: dict[int, T], ranges: Iterable[tuple[int, int]]) -> list[int]:
    """The numbers in the table that are in these ranges, which are sorted and do not overlap; oldest first."""
    found: list[int] = []
    keys: list[int] | None = None
    for low, high in ranges:
        if high - low < SHARE and keys is None:
            found += [number for number in range(low, high + 1) if number in table]
            continue
        if keys is None:
            keys = sorted(table)
        found += keys[bisect_left(keys, low) : bisect_right(keys, high)]
    return found


class Deliveries:
    """The deliveries of one session. `watched` once a queue asked to be notified of each acknowledgement."""

    def __init__(self, counts: ChannelCounts) -> None:
        self._counts = counts
        self.entries: dict[int, Entry] = {}
        self.windows: dict[int, Window] = {}
        self.browsed: dict[int, Entry] = {}
        self.watched = False

    def windowed(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """The transfers in these ranges whose completion gives credit back."""
        return select(self.windows, ranges)

    def completed(self, numbers: Iterable[int]) -> None:
        """Give back the credit of transfers that the client has completed."""
        windows = self.windows
        for number in numbers:
            subscription, size, epoch = windows.pop(number)
            subscription.completed(size, epoch)

    def completing(self, numbers: Sequence[int]) -> Work:
        """As `completed`, in steps."""
        for start in range(0, len(numbers), SHARE):
            self.completed(number for number in numbers[start : start + SHARE] if number in self.windows)
            yield

    def shares(self, numbers: Sequence[int]) -> Iterator[dict[int, Entry]]:
        """Take the deliveries with these numbers out of the table, a share at a time."""
        entries = self.entries
        for start in range(0, len(numbers), SHARE):
            share = {number: entries.pop(number) for number in numbers[start : start + SHARE] if number in entries}
            if share:
                yield share

    # -- settling ------------------------------------------------------------------------------------------------

    def accepting(self, shares: Iterable[dict[int, Entry]]) -> Work:
        """Acknowledge deliveries."""
        for taken in shares:
            self.accept(taken)
            yield

    def accept(self, taken: dict[int, Entry], *, when_safe: bool = False) -> set[Queue]:
        """Acknowledge deliveries. Returns the stored queues among theirs.

        `when_safe`: these settle the messages only when the batch's writes are on the disk.
        """
        stored: dict[Queue, list[int]] = {}
        for queue, subscription, position, message in taken.values():
            if subscription.cancelled:
                self._counts.ack += 1
                queue.counts.ack += 1
            else:
                subscription.acked += 1
            if queue.stored:
                stored.setdefault(queue, []).append(position)
            if self.watched:
                queue.acked(message)
        for queue, positions in stored.items():
            if when_safe:
                queue.batch.when_safe(partial(queue.settle, positions))
            else:
                queue.settle(positions)
        return set(stored)

    def rejecting(self, shares: Iterable[dict[int, Entry]]) -> Work:
        """Drop deliveries, or dead-letter them by their queues' settings."""
        for share in shares:
            for taken in rejected_in_steps(share):
                for queue, back in _by_queue(taken.values()).items():
                    queue.reject(back)
                yield

    def releasing(
        self, shares: Iterable[dict[int, Entry]], *, failed: bool, counted: bool, queues: Collection[Queue] = ()
    ) -> Work:
        """Return deliveries to their queues; `queues` and theirs deliver nothing until all have returned."""
        return returning(shares, partial(self._release, failed=failed, counted=counted), queues)

    def _release(self, taken: dict[int, Entry], *, failed: bool, counted: bool) -> None:
        by_queue = _by_queue(taken.values())
        for queue in by_queue:
            queue.before_requeue()
        for queue, back in by_queue.items():
            queue.requeue(back, failed=failed, counted=counted)

    def restore(self, taken: Iterable[dict[int, Entry]]) -> None:
        """Put deliveries back into the table: their transaction was rolled back."""
        entries = self.entries
        for each in taken:
            entries |= each
        self.entries = dict(sorted(entries.items()))

    # -- browsing ------------------------------------------------------------------------------------------------

    def forget_oldest(self) -> None:
        """Forget the copies that are too old to be acquired."""
        browsed = self.browsed
        for number in list(browsed)[: len(browsed) - MOST_BROWSED]:
            del browsed[number]

    def acquiring(self, numbers: Sequence[int], acquired: list[int]) -> Work:
        """Take browsed messages out of their queues, where they are still there; their numbers are appended."""
        for number in numbers:
            entry = self.browsed.get(number)
            if entry is None:
                continue
            view, subscription, position, _ = entry
            if not isinstance(view, View):  # a stream, from which nothing can be taken
                continue
            queue = view.source
            if queue.backlog is None:
                queue.enrich()
            while queue.backlog is None and not queue.deleted:
                yield
            held: Held | None = None if queue.deleted else queue.take_at(position)
            del self.browsed[number]
            if held is not None:
                acquired.append(number)
                self.entries[number] = (queue, subscription, position, held)
            yield
        self.entries = dict(sorted(self.entries.items()))


def _by_queue(entries: Iterable[Entry]) -> dict[Queue, list[Back]]:
    found: dict[Queue, list[Back]] = {}
    for queue, _, position, message in entries:
        if message is not None:
            found.setdefault(queue, []).append((position, message))
    return found
