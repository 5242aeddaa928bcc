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
    assert not settlements
    for number in (1, 2, 5):
        settlements.accept(number)
    settlements.release(3, set_redelivered=True)
    settlements.release(4, set_redelivered=False)
    settlements.reject(6, "bad")
    settlements.reject(7, "bad")
    settlements.reject(8, None)
    assert settlements
    assert settlements.commands() == [
        c.MessageAccept(((1, 2), (5, 5))),
        c.MessageRelease(((3, 3),), True),
        c.MessageRelease(((4, 4),), False),
        c.MessageReject(((6, 7),), 0, "bad"),
        c.MessageReject(((8, 8),), 0, None),
    ]
    assert settlements.commands() == []
    settlements.reject(1, None)
    settlements.clear()
    assert not settlements
