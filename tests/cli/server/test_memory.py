"""The collector and the allocator of a broker's process."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator

import pytest

from harebell.broker.counts import Churn
from harebell.cli.server.memory import MALLOC, MANY_CLOSED, Garbage, tune_allocator, tune_collector


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """This process's collector stays as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_the_allocator_is_told_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}

    class Library:
        mallopt = staticmethod(told.__setitem__)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    tune_allocator()
    assert told == MALLOC
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # no such function in this C library
    tune_allocator()


def test_the_oldest_objects_are_not_collected_by_themselves() -> None:
    tune_collector()
    young, middle, old = gc.get_threshold()
    assert young * middle <= 100_000
    assert old > 1 << 20


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    done: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append(1))
    return done


@pytest.mark.parametrize(
    ("closed", "blocks", "expected"),
    [(0, 0, 0), (1, 0, 1), (0, 1 << 30, 0), (MANY_CLOSED - 1, 1 << 30, 0), (MANY_CLOSED, 1 << 30, 1)],
)
def test_garbage_is_collected_where_the_pause_is_short_or_worth_it(
    closed: int, blocks: int, expected: int, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    churn, alive = Churn(), sys.getallocatedblocks()
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: alive)
    garbage = Garbage(churn)
    collections.clear()
    churn.channel_closed += closed
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: alive + blocks)
    assert garbage.collect() is (expected == 1)
    assert len(collections) == expected
    assert garbage.collect() is False or expected == 0  # what is collected does not count again
    assert len(collections) == expected
