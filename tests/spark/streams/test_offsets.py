from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, strategies as st

from harebell.spark.shares import water_fill
from harebell.spark.streams.offsets import Range, advance, batch_ranges, initial, split

QUEUES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**6), min_size=1)


@given(QUEUES, st.integers(1, 3 * 10**6))
def test_water_filling_takes_what_there_is_up_to_the_limit(available: dict[str, int], limit: int) -> None:
    shares = water_fill(available, limit)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[queue] <= available[queue] for queue in available)


@given(QUEUES, st.integers(1, 3 * 10**6))
def test_water_filling_is_fair_and_repeatable(available: dict[str, int], limit: int) -> None:
    shares = water_fill(available, limit)
    level = max(shares.values())
    # Who got less than the level by more than the remainder's one wanted no more.
    assert all(shares[queue] >= level - 1 or shares[queue] == available[queue] for queue in available)
    assert water_fill(dict(reversed(available.items())), limit) == shares


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 10**6)), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 10**5),
)
def test_a_split_covers_every_range_once_in_order(sizes: list[tuple[int, int]], partitions: int, least: int) -> None:
    ranges = [Range(f"q{i}", start, start + size) for i, (start, size) in enumerate(sizes)]
    pieces = split(ranges, partitions, least)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.queue == whole.queue]
        assert mine[0].start == whole.start
        assert mine[-1].end == whole.end
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert len({piece.end - piece.start for piece in mine}) <= 2
        assert len(mine) == 1 or min(piece.end - piece.start for piece in mine) >= least
    assert len(pieces) <= partitions + len(ranges)


def test_nothing_new_gives_the_same_offset_back() -> None:
    start = initial({"b": 5, "a": 3})
    assert advance(start, {"a": 3, "b": 5}, 100) is start
    assert batch_ranges(start) == []


def test_batches_follow_each_other_without_gap_or_overlap() -> None:
    offset, tails, read = initial({"a": 10, "b": 0}), {"a": 45, "b": 7}, []
    while (end := advance(offset, tails, 10)) is not offset:
        read += batch_ranges(end)
        offset = end
    for queue, first in (("a", 10), ("b", 0)):
        mine = [r for r in read if r.queue == queue]
        assert mine[0].start == first
        assert mine[-1].end == tails[queue]
        assert all(a.end == b.start for a, b in pairwise(mine))


def test_a_batch_is_planned_from_its_end_alone() -> None:
    first = advance(initial({"a": 100}), {"a": 230}, 100)
    journaled = json.loads(json.dumps(first))
    # A replay with "latest" would begin elsewhere now; the journaled end still says where this batch began.
    assert batch_ranges(journaled) == [Range("a", 100, 200)]


def test_a_queue_without_news_is_not_read_again() -> None:
    first = advance(initial({"a": 0, "b": 0}), {"a": 5, "b": 5}, None)
    second = advance(first, {"a": 9, "b": 5}, None)
    assert batch_ranges(second) == [Range("a", 5, 9)]


def test_offsets_are_written_with_sorted_keys() -> None:
    end = advance(initial({"b": 0, "a": 0}), {"b": 4, "a": 0}, None)
    assert json.dumps(end) == json.dumps(end, sort_keys=True)
