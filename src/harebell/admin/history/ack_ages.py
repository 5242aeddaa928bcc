"""How long the deliveries of each consumer have not been acknowledged, from the samples of their channels (`marks`).

An age is what is certain: a delivery is at least so old, and at most one interval of samples older, or one part in
`marks.SHARE` where it is so old that samples were thinned out. What the last sample did not find is 0 old.
A session of AMQP 0-10 is sampled while it has a connection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from harebell.admin.history.marks import Marks
from harebell.broker.clients import Channel
from harebell.routing.steps import Steps

__all__ = ["NOTHING", "AckAges", "Ages"]


class Ages:
    """The ages of some deliveries in milliseconds: pairs of an age and how many have it, youngest first."""

    __slots__ = ("count", "groups")

    def __init__(self, groups: Sequence[tuple[int, int]]) -> None:
        self.groups = groups
        self.count = sum(count for _, count in groups)

    @property
    def oldest(self) -> int | None:
        """The greatest age; None without deliveries."""
        return self.groups[-1][0] if self.groups else None

    def percentile(self, percent: int) -> int | None:
        """The smallest age that at least so many percent of the deliveries do not exceed; None without deliveries."""
        wanted, found = -(-self.count * percent // 100), 0
        for age, count in self.groups:
            found += count
            if found >= wanted:
                return age
        return None

    def counts(self, limits: Sequence[int]) -> list[int]:
        """How many are younger than each of the limits, which ascend, and not than the one before; then the others."""
        found = [0] * (len(limits) + 1)
        at = 0
        for age, count in self.groups:
            while at < len(limits) and age >= limits[at]:
                at += 1
            found[at] += count
        return found


NOTHING: Final = Ages(())


class AckAges:
    """The samples of all channels of a node. `now` gives milliseconds of a clock that never goes back."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._marks: dict[Channel, Marks] = {}

    def note(self, channel: Channel, tick: int) -> None:
        """Take the sample of a channel in this tick."""
        marks, oldest = self._marks.get(channel), channel.oldest_unacked
        if marks is None:
            if oldest is None:
                return
            marks = self._marks[channel] = Marks()
        marks.seen = tick
        marks.note(self._now(), channel.last_delivery, oldest)

    def forget_gone(self, tick: int) -> None:
        """Forget the channels without a sample in this tick, and those without unacknowledged deliveries."""
        self._marks = {channel: marks for channel, marks in self._marks.items() if marks.seen == tick and len(marks)}

    def clear(self) -> None:
        self._marks.clear()

    @property
    def samples(self) -> int:
        """The number of samples that are kept."""
        return sum(map(len, self._marks.values()))

    def of(self, channel: Channel) -> Steps[dict[object, Ages]]:
        """The ages of the deliveries of each consumer of a channel that has some; None: of basic.get."""
        now, marks = self._now(), self._marks.get(channel)
        times, numbers = ((), ()) if marks is None else marks.samples()
        counts: dict[object, dict[int, int]] = {}
        for share in channel.unacked_shares():
            for number, consumer in share:
                own = counts.get(consumer)
                if own is None:
                    own = counts[consumer] = {}
                at = bisect_left(numbers, number)
                own[at] = own.get(at, 0) + 1
            yield
        ages = [*(now - time for time in times), 0]
        return {
            consumer: Ages([(ages[at], own[at]) for at in sorted(own, reverse=True)])
            for consumer, own in counts.items()
        }
