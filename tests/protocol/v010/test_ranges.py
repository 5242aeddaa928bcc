"""Marks behave as sets of numbers do, and stay small."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from harebell.protocol.v010.ranges import Marks

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 9)), max_size=30)


def numbers(pairs: list[tuple[int, int]]) -> list[int]:
    return [number for low, high in pairs for number in range(low, high + 1)]


@given(st.integers(0, 20), PAIRS, st.integers(0, 70), st.integers(0, 70))
def test_as_a_set(mark: int, pairs: list[tuple[int, int]], low: int, high: int) -> None:
    marks, model = Marks(mark), set(range(mark))
    for start, length in pairs:
        new = set(range(start, start + length)) - model
        assert numbers(marks.add(start, start + length - 1)) == sorted(new)
        model |= new
        assert all(first[1] + 1 < second[0] for first, second in pairwise(marks.ranges()))
    assert marks.mark == next(number for number in range(100) if number not in model)
    assert marks.above == sum(number > marks.mark for number in model)
    assert len(marks) == len(marks.ranges())
    assert [number in marks for number in range(100)] == [number in model for number in range(100)]
    assert marks.first_missing(low) == next(number for number in range(low, 200) if number not in model)
    assert numbers(marks.missing(low, high)) == [n for n in range(max(low, 0), high + 1) if n not in model]
    assert numbers(marks.present(low, high)) == [n for n in range(low, high + 1) if n in model]


def test_many_ranges() -> None:
    marks = Marks()
    for number in range(1, 200_000, 2):
        marks.add(number, number)
    assert (len(marks), marks.above, marks.mark) == (100_000, 100_000, 0)
    assert 99_999 in marks
    assert 100_000 not in marks
    for number in range(0, 200_000, 2_002):
        assert marks.add(number, number + 2) == [(number, number), (number + 2, number + 2)]
    assert len(marks.add(0, 200_000)) == 100_001 - 2 * 100
    assert (len(marks), marks.above, marks.mark) == (0, 0, 200_001)
