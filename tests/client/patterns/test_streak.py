"""Failures in a row: what is held back, dropped and kept."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harebell.client.messages import Delivery
from harebell.client.patterns import streak as module
from harebell.client.patterns.streak import Streak


class Settled:
    def __init__(self, most: int, capacity: int) -> None:
        self.dropped: list[int] = []
        self.kept: list[int] = []
        self.changed = asyncio.Event()
        self.streak = Streak(most, capacity, self._drop, lambda delivery: self.kept.append(cast(Any, delivery)))

    def _drop(self, delivery: Delivery) -> None:
        self.dropped.append(cast(Any, delivery))
        self.changed.set()

    def fail(self, *numbers: int) -> list[bool]:
        return [self.streak.failed(cast(Delivery, number)) for number in numbers]


async def test_a_success_drops_what_had_failed() -> None:
    settled = Settled(3, 10)
    assert settled.fail(1, 2) == [False, False]
    assert settled.dropped == []
    settled.streak.over()
    assert (settled.dropped, settled.streak.failures) == ([1, 2], 0)
    assert settled.fail(3, 4) == [False, False]
    settled.streak.end()
    assert (settled.dropped, settled.kept) == ([1, 2], [3, 4])


async def test_as_many_failures_as_are_allowed_end_it_and_lose_nothing() -> None:
    settled = Settled(3, 10)
    assert settled.fail(1, 2, 3) == [False, False, True]
    assert settled.fail(4) == [True]  # another worker was at it
    settled.streak.end()
    assert (settled.dropped, settled.kept) == ([], [1, 2, 3, 4])


@pytest.mark.parametrize("capacity, dropped", [(0, [1, 2, 3]), (1, [1, 2]), (2, [1])])
async def test_no_more_are_held_back_than_the_consumer_can_spare(capacity: int, dropped: list[int]) -> None:
    settled = Settled(4, capacity)
    assert settled.fail(1, 2, 3, 4) == [False, False, False, True]
    settled.streak.end()
    assert settled.dropped == dropped
    assert settled.kept == [n for n in (1, 2, 3, 4) if n not in dropped]


async def test_nothing_is_held_back_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.01)
    settled = Settled(3, 10)
    settled.fail(1)
    await asyncio.wait_for(settled.changed.wait(), 60)
    assert (settled.dropped, settled.streak.failures) == ([1], 0)
    settled.fail(2)
    settled.streak.end()
    await asyncio.sleep(0.02)
    assert (settled.dropped, settled.kept) == ([1], [2])
