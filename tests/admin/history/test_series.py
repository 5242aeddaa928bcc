"""The record of one object: what is read from it is what went in, as far back as it reaches."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, strategies as st

from harebell.admin.history.sampler import CHANNEL, CONNECTION, EXCHANGE, QUEUE
from harebell.admin.history.series import COARSE, COARSE_TICKS, LARGEST, Form, Record, pack, unpack

HOUR = 3600 // 5


@given(st.integers(-(1 << 45), 1 << 45))
def test_a_change_is_exact_when_small_and_close_when_large(change: int) -> None:
    bits = pack(change)
    assert 0 <= bits < 1 << 16
    if abs(change) < 1024:
        assert unpack(bits) == change
    if abs(change) < 1 << 40:
        assert abs(unpack(bits) - change) <= abs(change) / 1024
    assert unpack(pack(unpack(bits))) == unpack(bits)


@pytest.mark.parametrize("figures", [QUEUE, CHANNEL, EXCHANGE, CONNECTION])
def test_an_object_costs_at_most_two_kilobytes(figures: tuple[str, ...]) -> None:
    form = Form(len(figures))
    values = [1 << 40] * form.width
    record = Record(form, 0, [0] * form.width)
    for tick in range(1, 2 * HOUR):
        record.add(tick, [tick * value for value in values])
    record.mark = hash(tuple(values))
    parts = [getattr(record, name) for name in Record.__slots__ if name != "_form"]
    size = sys.getsizeof(record) + 16 + sum(sys.getsizeof(part) for part in parts)  # 16: of the garbage collector
    assert size <= LARGEST
    assert form.fine > COARSE_TICKS, "the first ring reaches over the interval that the second one is in"


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ticks at which a figure changes, with its values then; some are long apart."""
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 900), min_size=1, max_size=60))
    values = draw(st.lists(st.integers(0, 900), min_size=len(gaps), max_size=len(gaps)))
    tick, found = 100, []
    for gap, value in zip(gaps, values, strict=True):
        tick += gap
        found.append((tick, value))
    return found


def value_at(history: list[tuple[int, int]], tick: int) -> int:
    return next((value for at, value in reversed(history) if at <= tick), 0)


@given(histories(), st.integers(0, 300), st.integers(1, 12))
def test_what_is_read_is_what_was(history: list[tuple[int, int]], later: int, width: int) -> None:
    form = Form(width)
    record = Record(form, 100, [0] * width)
    for tick, value in history:
        record.add(tick, [value] * width)
    last = history[-1][0]
    now = last + later
    fine = [now - back for back in range(form.fine)]
    for figure in {0, width - 1}:
        read = record.values(figure, fine, history[-1][1])
        assert (
            read
            == [value_at(history, tick) for tick in fine if tick > last - form.fine][: len(read)]
            + read[len([tick for tick in fine if tick > last - form.fine]) :]
        )
        assert [record.change(figure, tick) for tick in fine if tick > last - form.fine] == [
            value_at(history, tick) - value_at(history, tick - 1) if tick > 100 else 0
            for tick in fine
            if tick > last - form.fine
        ]


@given(histories())
def test_the_second_ring_is_right_at_its_intervals(history: list[tuple[int, int]]) -> None:
    """At the ends of intervals the figure is exact as far as changes are; in between it lies between its neighbours."""
    form = Form(10)
    record = Record(form, 100, [0] * 10)
    for tick, value in history:
        record.add(tick, [value] * 10)
    last, now = history[-1]
    newest = last // COARSE_TICKS
    ends = [number * COARSE_TICKS - 1 for number in range(newest, newest - COARSE + 2, -1)]
    ends = [tick for tick in ends if tick <= last]
    read = record.values(3, ends, now)
    assert read == [value_at(history, tick) for tick in ends]


def test_large_figures_do_not_drift() -> None:
    record, total = Record(Form(2), 0, [0, 0]), 0
    for tick in range(1, 5000):
        total += 123_457
        record.add(tick, [total, 7])
    read = record.values(0, [4999, 4998, 4980], total)
    assert read[0] == total
    assert abs(read[1] - (total - 123_457)) < 200
    assert abs(read[2] - (total - 19 * 123_457)) < 200


def test_a_record_of_an_object_that_was_there_before() -> None:
    record = Record(Form(2), 10, [1000, 5])
    assert not record.add(11, [1000, 5])
    assert record.add(12, [900, 5])
    assert record.values(0, [12, 11, 10, 9, 1], 900) == [900, 1000, 1000, 1000, 1000]
    assert record.change(0, 12) == -100
    assert record.change(0, 13) == record.change(0, 9) == 0
