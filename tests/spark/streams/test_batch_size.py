from __future__ import annotations

import pytest

from harebell.spark.streams.batch_size import available, rows_for_bytes
from harebell.spark.streams.offsets import advance


def test_what_waits() -> None:
    start = {"a": {"base": 0, "next": 5}, "b": {"base": 0, "next": 9}, "gone": {"base": 0, "next": 1}}
    assert available(start, {"a": 15, "b": 9, "new": 4}) == {"a": 10, "b": 0}


@pytest.mark.parametrize(
    "limit, waiting, sizes, rows",
    [
        (1000, {"a": 10}, {"a": 100.0}, None),
        (999, {"a": 10}, {"a": 100.0}, 9),
        (1, {"a": 10}, {"a": 100.0}, 1),
        (1000, {"a": 10, "b": 10}, {"a": 100.0, "b": 900.0}, 2),
        (1000, {"a": 10}, {}, None),
        (1000, {}, {}, None),
    ],
)
def test_bytes_become_messages_by_their_mean(
    limit: int, waiting: dict[str, int], sizes: dict[str, float], rows: int | None
) -> None:
    assert rows_for_bytes(limit, waiting, sizes) == rows


def test_a_place_that_was_given_up_reads_nothing_of_the_other_queues_again() -> None:
    start = {"a": {"base": 0, "next": 10}, "b": {"base": 3, "next": 8}}
    now = {"a": {"base": 20, "next": 20, "lost": 10}, "b": {"base": 3, "next": 8}}
    end = advance(start, {"a": 20, "b": 8}, None, now)
    assert end == {"a": {"base": 20, "next": 20, "lost": 10}, "b": {"base": 8, "next": 8}}
    assert advance(end, {"a": 20, "b": 8}, None, end) is end
    assert advance(end, {"a": 25, "b": 8}, None, end)["a"] == {"base": 20, "next": 25, "lost": 10}
