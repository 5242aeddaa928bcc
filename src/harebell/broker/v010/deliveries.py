"""The deliveries of a session by command number: accepted, rejected, released, acquired, and complete.

`entries` are acquired and not settled; `windows` are those whose completion gives credit back; `browsed` are copies of
messages that stayed in their queues, which message.acquire takes out later. What a command names and no table has is
passed over: the specification lets a client name transfers that are settled, or that it never acquired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from harebell.broker.counts import ChannelCounts
from harebell.broker.message import Held
from harebell.broker.queues.base import Back, Queue
from harebell.broker.queues.browse import View
from harebell.broker.queues.contents.group_lines import GroupHeld
from harebell.broker.queues.settling import DELIVERIES_PER_STEP, LETTERS_PER_STEP, returning
from harebell.broker.slices import Work
from harebell.broker.v010.delivered import Delivered, Taker, Unsettled, Windows
from harebell.protocol.v010.values import MAX_RANGES

__all__ = ["ALL", "MOST_BROWSED", "Deliveries", "Ranges", "select"]

MOST_BROWSED: Final = 16_384  # browsed messages that can still be acquired; older ones cannot any more

ALL: Final = ((0, 1 << 62),)  # the numbers of all deliveries, as ranges

Ranges: TypeAlias = "Sequence[tuple[int, int]]"  # sorted, without overlaps
Share: TypeAlias = "list[Delivered]"
T = TypeVar("T")


def select(table: dict[int, T], ranges: Iterable[tuple[int, int]]) -> list[int]:
    """The numbers in the table that are in these ranges, which are sorted and do not overlap; oldest first."""
    found: list[int] = []
    keys: list[int] | None = None
    for low, high in ranges:
        if high - low < DELIVERIES_PER_STEP and keys is None:
            found += [number for number in range(low, high + 1) if number in table]
            continue
        if keys is None:
            keys = sorted(table)
        found += keys[bisect_left(keys, low) : bisect_right(keys, high)]
    return found


class ByNumber(Mapping[int, "tuple[Queue]"]):
    """The deliveries that are not settled, one by one: for who looks periodically. `list` of it is a copy."""

    def __init__(self, entries: Unsettled) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return self._entries.count

    def __iter__(self) -> Iterator[int]:
        return self._entries.numbers()

    def __getitem__(self, number: int) -> tuple[Queue]:
        queue = self._entries.queue_of(number)
        if queue is None:
            raise KeyError(number)
        return (queue,)


class Deliveries:
    """The deliveries of one session. `watched` once a queue asked to be notified of each acknowledgement."""

    def __init__(self, counts: ChannelCounts) -> None:
        self._counts = counts
        self.unsettled = Unsettled()
        self.windows = Windows()
        self.browsed: dict[int, tuple[Queue, Taker, int]] = {}  # queue, subscription and place of each
        self.watched = False
        self.entries = ByNumber(self.unsettled)

    def shares(self, ranges: Ranges) -> Iterator[Share]:
        """Take the deliveries in these ranges out of the table, a share at a time."""
        return self.unsettled.shares(ranges, DELIVERIES_PER_STEP)

    def all_shares(self) -> Iterator[Share]:
        """Take all deliveries out of the table, a share at a time."""
        return self.shares(ALL)

    # -- settling ------------------------------------------------------------------------------------------------

    def accepting(self, shares: Iterable[Share]) -> Work:
        """Acknowledge deliveries."""
        for share in shares:
            self.accept(share)
            yield

    def accept(self, taken: Iterable[Delivered], *, when_safe: bool = False) -> set[Queue]:
        """Acknowledge deliveries. Returns the stored queues among theirs.

        `when_safe`: these settle the messages only when the batch's writes are on the disk.
        """
        stored: dict[Queue, list[int]] = {}
        for run in taken:
            for (queue, subscription), positions, messages in run.groups():
                if subscription.cancelled:
                    self._counts.ack += len(messages)
                    queue.counts.ack += len(messages)
                    queue.counts_010.ack += len(messages)
                else:
                    subscription.acked += len(messages)
                if queue.stored:
                    stored.setdefault(queue, []).extend(positions)
                if self.watched:
                    for message in messages:
                        queue.acked(message)
        for queue, positions in stored.items():
            if when_safe:
                queue.batch.when_safe(partial(queue.settle, positions))
            else:
                queue.settle(positions)
        return set(stored)

    def rejecting(self, shares: Iterable[Share]) -> Work:
        """Drop deliveries, or dead-letter them by their queues' settings."""
        for share in shares:
            for run in share:
                lettered = any(queue.settings.dead_letter_exchange is not None for queue in set(run.queues()))
                for part in run.cut(LETTERS_PER_STEP if lettered else DELIVERIES_PER_STEP):
                    for queue, back in part.backs():
                        queue.reject(back)
                    yield

    def releasing(
        self, shares: Iterable[Share], *, failed: bool, counted: bool, queues: Collection[Queue] = ()
    ) -> Work:
        """Return deliveries to their queues; `queues` and theirs deliver nothing until all have returned."""
        release = partial(self._release, failed=failed, counted=counted)
        return returning(shares, release, queues, queues_of=_queues_of)

    def _release(self, share: Share, *, failed: bool, counted: bool) -> None:
        by_queue: dict[Queue, list[Back]] = {}
        for run in share:
            for queue, back in run.backs():
                by_queue.setdefault(queue, []).extend(back)
        for queue in by_queue:
            queue.before_requeue()
        for queue, found in by_queue.items():
            queue.requeue(found, failed=failed, counted=counted)

    def restore(self, taken: Iterable[Delivered]) -> None:
        """Put deliveries back into the table: their transaction was rolled back."""
        for run in taken:
            self.unsettled.put_back(run)

    # -- browsing ------------------------------------------------------------------------------------------------

    def forget_oldest(self) -> None:
        """Forget the copies that are too old to be acquired."""
        browsed = self.browsed
        for number in list(browsed)[: len(browsed) - MOST_BROWSED]:
            del browsed[number]

    def acquiring(self, numbers: Iterable[int], acquired: list[tuple[int, int]]) -> Work:
        """Take browsed messages out of their queues, where they are still there; their numbers are appended, in runs.

        With accept-mode none they are settled by that, as by Qpid's C++ broker. `numbers` ascend. What one answer has
        no room for is not taken: the client would hold it and not know.
        """
        for number in numbers:
            follows = bool(acquired) and number == acquired[-1][1] + 1
            if not follows and len(acquired) >= MAX_RANGES:
                return
            entry = self.browsed.get(number)
            if entry is None:
                continue
            view, subscription, position = entry
            if not isinstance(view, View):  # a stream, from which nothing can be taken
                continue
            queue = view.source
            if queue.backlog is None:
                queue.enrich()
            while queue.backlog is None and not queue.deleted:
                queue.batch.slices.give_way()
                yield
            held: Held | None = None if queue.deleted else queue.take_at(position, subscription)
            del self.browsed[number]
            if held is not None:
                if isinstance(held, GroupHeld):  # the subscription holds its group until it is settled
                    subscription.watch_acks()
                if follows:
                    acquired[-1] = (acquired[-1][0], number)
                else:
                    acquired.append((number, number))
                taken = Delivered(number, (queue, subscription), (position,), [held])
                if subscription.no_ack:
                    self.accept((taken,))
                else:
                    self.unsettled.insert(taken)
            yield


def _queues_of(share: Share) -> set[Queue]:
    return {queue for run in share for queue in run.queues()}
