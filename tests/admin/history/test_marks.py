"""The samples of one channel: what is read from them against a plain model that keeps all, and what they cost."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, strategies as st

from harebell.admin.history.marks import MOST, SAMPLE, SHARE, Marks

TICK = 5_000
WEEK = 7 * 24 * 3600 * 1000


def time_of(times: Sequence[int], numbers: Sequence[int], number: int) -> int | None:
    """When the delivery was made at the latest; None: after the last sample."""
    at = bisect_left(numbers, number)
    return times[at] if at < len(times) else None


def marked(samples: Sequence[tuple[int, int, int | None]]) -> Marks:
    marks = Marks()
    for now, last, oldest in samples:
        marks.note(now, last, oldest)
    return marks


def test_a_delivery_has_the_time_of_the_first_sample_that_found_it() -> None:
    marks = marked([(0, 0, None), (5, 3, 1), (10, 3, 1), (15, 7, 1)])
    times, numbers = marks.samples()
    assert (list(times), list(numbers)) == ([5, 15], [3, 7]), "the sample at 10 told nothing"
    assert [time_of(times, numbers, each) for each in (1, 3, 4, 7, 8)] == [5, 5, 15, 15, None]


def test_what_no_delivery_needs_is_dropped() -> None:
    marks = marked([(5, 3, 1), (10, 5, 1), (15, 8, 1)])
    marks.note(20, 8, 4)
    assert list(marks.samples()[1]) == [5, 8]
    marks.note(25, 8, 6)
    assert list(marks.samples()[1]) == [8]
    marks.note(30, 9, None)
    assert not len(marks)
    marks.note(35, 9, None)
    assert not len(marks)


def test_what_was_read_stays_as_it_was() -> None:
    marks = marked([(5, 3, 1)])
    times, numbers = marks.samples()
    marks.note(10, 4, 1)
    assert (list(times), list(numbers)) == ([5], [3])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int | None]]:
    """Samples of a channel over up to a week: times, the last delivery, and the oldest that is outstanding."""
    now, last, oldest, found = 0, 0, 1, list[tuple[int, int, int | None]]()
    for _ in range(draw(st.integers(1, 12))):
        for _ in range(draw(st.integers(1, 400))):
            now += TICK
            last += 3
            found.append((now, last, oldest))
        now += TICK * draw(st.integers(1, 10_000))
        last += draw(st.integers(0, 5))
        oldest = min(last, oldest + draw(st.integers(0, max(0, last - oldest)) | st.just(0)))
        found.append((now, last, oldest if oldest <= last else None))
    return found


@given(histories())
def test_ages_are_those_of_all_samples_to_one_part_in_eight(history: list[tuple[int, int, int | None]]) -> None:
    marks, model_times, model_numbers = Marks(), list[int](), list[int]()
    for now, last, oldest in history:
        marks.note(now, last, oldest)
        model_times.append(now)
        model_numbers.append(last)
        assert len(marks) < MOST
    now, last, oldest = history[-1]
    times, numbers = marks.samples()
    assert list(times) == sorted(times)
    assert all(one < other for one, other in pairwise(numbers))
    for number in range(oldest or last + 1, last + 2):
        read, true = time_of(times, numbers, number), time_of(model_times, model_numbers, number)
        if true is None:
            assert read is None
            continue
        assert read is not None
        age, certain = now - true, now - read
        assert certain <= age, "it is never told older than it is"
        assert (age - certain) * SHARE <= certain


def test_the_last_minutes_are_exact() -> None:
    marks, count = Marks(), 20_000
    for number in range(1, count):
        marks.note(number * TICK, number, 1)
    times, numbers = marks.samples()
    for number in range(count - 2 * SHARE, count):
        assert time_of(times, numbers, number) == number * TICK


def test_a_channel_costs_at_most_so_many_bytes() -> None:
    """Also one that is sampled in each millisecond of a long life, and one whose clock stands still."""
    for gap in (1, TICK, WEEK, 0):
        marks = Marks()
        for number in range(1, 30_000):
            marks.note(number * gap + (1 << 40), number, 1)
            assert len(marks) < MOST
        size = sys.getsizeof(marks) + sum(sys.getsizeof(each) for each in (marks._times, marks._numbers))
        assert size <= SAMPLE * MOST * 9 // 8 + 512  # an array that grows has some room
        assert marks.samples()[1][-1] == 29_999
