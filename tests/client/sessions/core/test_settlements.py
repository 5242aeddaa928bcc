"""Settlements of one turn, as commands."""

from __future__ import annotations

import pytest

from harebell.client.sessions.core.settlements import Settlements, ranges_of
from harebell.protocol.v010 import commands as c
from harebell.protocol.v010.values import MAX_RANGES, Ranges


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [
        ([], []),
        ([0], [((0, 0),)]),
        ([3, 1, 2], [((1, 3),)]),
        ([5, 1, 2, 9, 8], [((1, 2), (5, 5), (8, 9))]),
        ([4, 4, 5, 4], [((4, 5),)]),
        ([(1 << 32) - 1, 1 << 32], [(((1 << 32) - 1, 0),)]),
    ],
)
def test_ranges(numbers: list[int], ranges: list[Ranges]) -> None:
    assert ranges_of(numbers) == ranges


def test_sets_fit_a_command() -> None:
    found = ranges_of(range(0, 4 * MAX_RANGES, 2))
    assert [len(each) for each in found] == [MAX_RANGES, MAX_RANGES]


def test_commands() -> None:
    settlements = Settlements()
    completed: list[tuple[int, int]] = []

    def complete(low: int, high: int) -> None:
        completed.append((low, high))

    assert not settlements
    assert settlements.gather(complete) == (0, 0, 0)
    for number in (1, 2, 5):
        settlements.accepted.append(number)
    settlements.released(True).append(3)
    settlements.released(False).append(4)
    settlements.rejected("bad").append(6)
    settlements.rejected("bad").append(7)
    settlements.rejected(None).append(8)
    settlements.taken.append(20)
    assert settlements
    assert settlements.gather(complete) == (3, 2, 3)
    assert completed == [(1, 8), (20, 20)]
    assert settlements.gather(complete) == (0, 0, 0)
    assert settlements
    assert settlements.commands() == [
        c.MessageAccept(((1, 2), (5, 5))),
        c.MessageRelease(((3, 3),), True),
        c.MessageRelease(((4, 4),), False),
        c.MessageReject(((6, 7),), 0, "bad"),
        c.MessageReject(((8, 8),), 0, None),
    ]
    assert settlements.commands() == []
    assert not settlements


def test_what_is_cleared_is_gone() -> None:
    settlements = Settlements()
    settlements.rejected(None).append(1)
    settlements.gather(lambda low, high: None)
    settlements.accepted.append(2)
    settlements.clear()
    assert not settlements
    assert settlements.commands() == []
