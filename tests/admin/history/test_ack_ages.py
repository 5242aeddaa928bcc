"""The ages of a channel's deliveries, to the millisecond by a clock of the test; those of real channels by samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, strategies as st

from harebell.admin.history.ack_ages import NOTHING, AckAges, Ages
from harebell.broker.clients import Channel
from harebell.routing.steps import complete


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class FakeChannel:
    """A channel with deliveries that are not acknowledged: the consumer of each, by number."""

    def __init__(self) -> None:
        self.last_delivery = 0
        self.unacked: dict[int, str | None] = {}

    @property
    def oldest_unacked(self) -> int | None:
        return min(self.unacked, default=None)

    def deliver(self, count: int, consumer: str | None = "c") -> None:
        for _ in range(count):
            self.last_delivery += 1
            self.unacked[self.last_delivery] = consumer

    def unacked_shares(self) -> Iterator[Sequence[tuple[int, object]]]:
        items = sorted(self.unacked.items())
        for start in range(0, len(items), 2):
            yield items[start : start + 2]


class Watched:
    """A channel that is sampled."""

    def __init__(self) -> None:
        self.clock, self.channel = Clock(), FakeChannel()
        self.ages, self.tick = AckAges(self.clock), 0

    def sample(self, after: int = 5_000) -> None:
        self.clock.now += after
        self.tick += 1
        self.ages.note(cast("Channel", self.channel), self.tick)
        self.ages.forget_gone(self.tick)

    def groups(self) -> dict[object, Sequence[tuple[int, int]]]:
        found = complete(self.ages.of(cast("Channel", self.channel)))
        return {consumer: ages.groups for consumer, ages in found.items()}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_ages_are_since_the_sample_that_found_the_delivery(watched: Watched) -> None:
    watched.channel.deliver(3)
    assert watched.groups() == {"c": [(0, 3)]}, "no sample has found them"
    watched.sample()
    assert watched.groups() == {"c": [(0, 3)]}
    watched.clock.now += 1_234
    assert watched.groups() == {"c": [(1_234, 3)]}
    watched.channel.deliver(2)
    watched.sample()
    watched.channel.deliver(1)
    watched.clock.now += 10
    assert watched.groups() == {"c": [(0, 1), (10, 2), (6_244, 3)]}
    del watched.channel.unacked[1], watched.channel.unacked[4]
    assert watched.groups() == {"c": [(0, 1), (10, 1), (6_244, 2)]}


def test_each_consumer_has_its_own(watched: Watched) -> None:
    watched.channel.deliver(2, "one")
    watched.sample()
    watched.channel.deliver(1, "other")
    watched.channel.deliver(1, None)
    watched.channel.deliver(1, "one")
    watched.sample()
    assert watched.groups() == {"one": [(0, 1), (5_000, 2)], "other": [(0, 1)], None: [(0, 1)]}


def test_what_is_gone_or_has_nothing_is_forgotten(watched: Watched) -> None:
    watched.channel.deliver(2)
    watched.sample()
    assert watched.ages.samples == 1
    watched.channel.unacked.clear()
    watched.sample()
    assert watched.ages.samples == 0
    watched.sample()
    watched.channel.deliver(1)
    watched.sample()
    watched.ages.forget_gone(watched.tick + 1)
    assert watched.ages.samples == 0
    assert watched.groups() == {"c": [(0, 1)]}
    watched.sample()
    assert watched.ages.samples == 1
    watched.ages.clear()
    assert watched.ages.samples == 0


def test_deliveries_that_come_back_are_told_younger_and_never_older(watched: Watched) -> None:
    """As after the rollback of a transaction that acknowledged them."""
    watched.channel.deliver(2)
    watched.sample()
    back = dict(watched.channel.unacked)
    watched.channel.unacked.clear()
    watched.channel.deliver(1)
    watched.sample()
    watched.channel.unacked |= back
    watched.clock.now += 7
    assert watched.groups() == {"c": [(7, 3)]}


def test_no_deliveries_have_no_ages() -> None:
    assert (NOTHING.count, NOTHING.oldest, NOTHING.percentile(50)) == (0, None, None)
    assert NOTHING.counts((10, 20)) == [0, 0, 0]


@given(
    st.dictionaries(st.integers(0, 50), st.integers(1, 9), min_size=1),
    st.lists(st.integers(1, 60), unique=True).map(sorted),
    st.integers(1, 100),
)
def test_figures_are_those_of_the_single_ages(groups: dict[int, int], limits: list[int], percent: int) -> None:
    ages = Ages(sorted(groups.items()))
    single = sorted(age for age, count in groups.items() for _ in range(count))
    assert (ages.count, ages.oldest) == (len(single), single[-1])
    wanted = ages.percentile(percent)
    assert wanted in single
    assert sum(age <= wanted for age in single) * 100 >= percent * len(single)
    assert sum(age < wanted for age in single) * 100 < percent * len(single)
    edges = [0, *limits, 1_000]
    assert ages.counts(limits) == [sum(low <= age < high for age in single) for low, high in pairwise(edges)]
