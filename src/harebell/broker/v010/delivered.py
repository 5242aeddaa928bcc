"""Deliveries of one subscription with numbers one behind the other, kept together: they cost little, one by one.

What a subscription sends in one go is a run. Of one that acquires messages, the messages and their places in the queue
are kept until they are settled (`Delivered`); in window mode, how much credit the completion of each gives back
(`Window`). A part that is taken out of a run is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, Protocol, TypeAlias, cast

from harebell.broker.message import Given
from harebell.broker.queues.base import Back, Queue
from harebell.protocol.v010.runs import MOST_IN_RUN, Run, Runs

__all__ = ["Delivered", "Taker", "Unsettled", "Window", "Windows"]

Taken: TypeAlias = "Given | None"  # None: it stays in its queue

_GONE: Final = cast("Given", object())  # in the place of a message that was taken out


class Taker(Protocol):
    """The subscription of deliveries. `acked` counts those that were acknowledged."""

    acked: int
    cancelled: bool

    def completed(self, count: int, size: int, epoch: int) -> None:
        """Give the credit of complete transfers back."""

    def watch_acks(self) -> None:
        """Notify queues of each acknowledgement."""


class Delivered(Run):
    """Deliveries that are acquired and not settled.

    positions  their places in the queue
    messages   what the queue gave, to be returned to it; None: it stays in the queue
    """

    __slots__ = ("_taken_first", "messages", "positions", "queue", "subscription")

    def __init__(
        self, first: int, queue: Queue, subscription: Taker, positions: Sequence[int], messages: list[Taken]
    ) -> None:
        super().__init__(first, len(messages))
        self.queue = queue
        self.subscription = subscription
        self.positions = positions
        self.messages = messages
        self._taken_first = 0  # so many at the beginning have been taken out; the others are there, if these are `left`

    def __len__(self) -> int:
        return self.left

    def extend(self, positions: Sequence[int], messages: list[Taken]) -> None:
        own = self.positions
        if isinstance(own, range) and isinstance(positions, range) and own.stop == positions.start:
            self.positions = range(own.start, positions.stop)
        else:
            self.positions = [*own, *positions]
        self.messages += messages
        self.left += len(messages)
        self.stop += len(messages)

    def take(self, low: int, high: int) -> list[Delivered]:
        """Take out the deliveries with the numbers from `low` to `high`, as far as they are still there."""
        at, end = low - self.first, high - self.first + 1
        messages = self.messages
        if self.left == end - at == len(messages):
            return [self._part(at, end)]
        if at >= self._taken_first and self.left == len(messages) - self._taken_first:
            return [self._part(at, end)]
        found = []
        while at < end:
            if messages[at] is _GONE:
                at += 1
                continue
            stop = at + 1
            while stop < end and messages[stop] is not _GONE:
                stop += 1
            found.append(self._part(at, stop))
            at = stop
        return found

    def _part(self, at: int, end: int) -> Delivered:
        """Take out the deliveries at these places, all of which are there."""
        part = Delivered(self.first + at, self.queue, self.subscription, self.positions[at:end], self.messages[at:end])
        self.left -= end - at
        if self.left:
            self.messages[at:end] = repeat(_GONE, end - at)
            if at == self._taken_first:
                self._taken_first = end
        return part

    def put_back(self, part: Delivered) -> None:
        """Put back what was taken out of this run."""
        at = part.first - self.first
        self.messages[at : at + len(part.messages)] = part.messages
        self.left += part.left
        self._taken_first = min(self._taken_first, at)

    def cut(self, count: int) -> Iterator[Delivered]:
        """The run in pieces of that many deliveries; it is whole."""
        for at in range(0, len(self.messages), count):
            end = at + count
            yield Delivered(
                self.first + at, self.queue, self.subscription, self.positions[at:end], self.messages[at:end]
            )

    def back(self) -> list[Back]:
        """What returns to the queue of a run that is whole: places and messages."""
        return [
            (position, message)
            for position, message in zip(self.positions, self.messages, strict=True)
            if message is not None
        ]

    def numbers(self) -> Iterator[int]:
        """The numbers that are still there."""
        for number, message in enumerate(self.messages, self.first):
            if message is not _GONE:
                yield number

    def has(self, number: int) -> bool:
        return self.messages[number - self.first] is not _GONE


class Unsettled(Runs[Delivered]):
    """The deliveries of a session that are acquired and not settled."""

    __slots__ = ()

    def delivered(
        self, first: int, queue: Queue, subscription: Taker, positions: Sequence[int], messages: list[Taken]
    ) -> None:
        """Add deliveries with the numbers from `first` on, the highest so far."""
        last = self.last
        if (
            last is not None and last.stop == first and last.subscription is subscription and last.queue is queue
            and last.stop - last.first + len(messages) <= MOST_IN_RUN
        ):  # fmt: skip
            last.extend(positions, messages)
            self.count += len(messages)
        else:
            self.append(Delivered(first, queue, subscription, positions, messages))

    def take(self, low: int, high: int) -> list[Delivered]:
        """Take out the deliveries with the numbers from `low` to `high`."""
        found: list[Delivered] = []
        for run, first, last in self.between(low, high):
            found += run.take(first, last)
        return found

    def shares(self, ranges: Iterable[tuple[int, int]], most: int) -> Iterator[list[Delivered]]:
        """Take out the deliveries in these ranges, which are sorted and do not overlap, about `most` at a time."""
        share: list[Delivered] = []
        size = 0
        for low, high in ranges:
            while low <= high:
                reached = self.reach(low, high, most - size)
                for part in self.take(low, reached):
                    share.append(part)
                    size += part.left
                low = reached + 1
                if size >= most:
                    yield share
                    share, size = [], 0
        if share:
            yield share

    def put_back(self, part: Delivered) -> None:
        """Put back what was taken out."""
        run = self.covering(part.first)
        if run is None:
            self.insert(part)
        else:
            run.put_back(part)
            self.count += part.left

    def numbers(self) -> Iterator[int]:
        for run in self:
            yield from run.numbers()

    def of(self, number: int) -> Delivered | None:
        """The run that has the delivery with that number."""
        run = self.covering(number)
        return run if run is not None and run.has(number) else None


class Window(Run):
    """Transfers whose completion gives credit back.

    costs  what each costs in bytes; None: nothing
    epoch  that of the subscription, when they were sent
    """

    __slots__ = ("costs", "epoch", "subscription")

    def __init__(self, first: int, count: int, subscription: Taker, costs: list[int] | None, epoch: int) -> None:
        super().__init__(first, count)
        self.subscription = subscription
        self.costs = costs
        self.epoch = epoch

    def complete(self, low: int, high: int) -> None:
        """Give back the credit of the transfers from `low` to `high`, which were not complete before."""
        count = high - low + 1
        self.left -= count
        size = 0 if self.costs is None else sum(self.costs[low - self.first : high - self.first + 1])
        self.subscription.completed(count, size, self.epoch)


class Windows(Runs[Window]):
    """The transfers of a session whose completion gives credit back."""

    __slots__ = ()

    def sent(self, first: int, count: int, subscription: Taker, costs: list[int] | None, epoch: int) -> None:
        """Add transfers with the numbers from `first` on, the highest so far."""
        last = self.last
        if (
            last is not None and last.stop == first and last.subscription is subscription and last.epoch == epoch
            and last.costs is None and costs is None
        ):  # fmt: skip
            last.stop += count
            last.left += count
            self.count += count
        else:
            self.append(Window(first, count, subscription, costs, epoch))

    def completed(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Give back the credit of transfers in these ranges, which are complete now."""
        for low, high in ranges:
            for window, first, last in self.between(low, high):
                window.complete(first, last)

    def completing(self, ranges: Iterable[tuple[int, int]], step: int) -> Iterator[None]:
        """As `completed`, in steps of about so many transfers."""
        for low, high in ranges:
            while low <= high:
                reached = self.reach(low, high, step)
                self.completed(((low, reached),))
                low = reached + 1
                yield
