"""Patterns matched against a batch of keys: what the matcher of the broker gives for each key by itself. No Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from harebell.routing import TopicMatcher
from harebell.spark.jobs.simulate import patterns
from harebell.spark.jobs.simulate.patterns import Patterns, TooMany
from tests.fixtures.profiles import scaled

words = st.sampled_from(("a", "b", "c", "", "*", "#", "no pattern has it", "ä"))
keys = st.lists(words, max_size=7).map(".".join)
made = st.lists(st.lists(st.sampled_from(("a", "b", "", "*", "#", "#", "ä")), max_size=5).map(".".join), max_size=12)


def matched(matcher: TopicMatcher[int], keys: list[str]) -> list[list[int]]:
    """The values of each key, in order, twice when a pair came twice."""
    found: list[list[int]] = [[] for _ in keys]
    places, values = Patterns(matcher).match(pa.array(keys, pa.string()))
    for place, value in zip(places.tolist(), values.tolist(), strict=True):
        found[place].append(value)
    return [sorted(each) for each in found]


def one_by_one(matcher: TopicMatcher[int], keys: list[str]) -> list[list[int]]:
    return [sorted(matcher.match(key)) for key in keys]


@pytest.mark.parametrize("cells", [0, patterns.DENSE_CELLS])
@settings(max_examples=scaled(60))
@given(made, st.lists(keys, max_size=30, unique=True))
@example(["#.#.#", "#.a.#", "*.#.*"], ["", ".", "a", "a.a.a", ".".join("a" * 120), "*", "#", "#.#"])
@example([], ["", "a"])
@example(["", "."], ["", ".", ".."])
def test_a_batch_is_matched_as_each_key_is(cells: int, made: list[str], keys: list[str]) -> None:
    matcher = TopicMatcher((pattern, number) for number, pattern in enumerate(made))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "DENSE_CELLS", cells)
        assert matched(matcher, keys) == one_by_one(matcher, keys)


def test_keys_that_begin_alike_and_keys_that_do_not() -> None:
    made = ["a.*.c", "a.#", "#.9", "*.5.*", "k.1.#.7", "#", "k.k2.*.*"]
    matcher = TopicMatcher((pattern, number) for number, pattern in enumerate(made))
    keys = [f"{first}.{second % 40}.{second}.{second % 9}" for first in ("a", "k") for second in range(400)]
    keys += [f"k{number}.5.{number % 10}" for number in range(400)]
    assert matched(matcher, keys) == one_by_one(matcher, keys)
    some = pa.array(keys, pa.string()).slice(100, 50)
    places, values = Patterns(matcher).match(some)
    found = sorted(zip(places.tolist(), values.tolist(), strict=True))
    assert found == [(place, value) for place in range(50) for value in sorted(matcher.match(keys[100 + place]))]


def test_a_pattern_that_was_removed_matches_no_more() -> None:
    matcher = TopicMatcher([("a.b", 1), ("a.*", 2), ("a.b.#", 3)])
    matcher.remove("a.*", 2)
    assert matched(matcher, ["a.b", "a.c"]) == [[1, 3], []]


def test_more_than_can_be_held_is_refused_but_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = TopicMatcher((f"#.{number}.#", number) for number in range(20))
    monkeypatch.setattr(patterns, "MAX_PAIRS", 5)
    with pytest.raises(TooMany):
        matched(matcher, ["1.2.3", "4.5.6", "7.8.9"])
    assert matched(matcher, ["1.2.3.30.40"]) == [[1, 2, 3]]
    monkeypatch.setattr(patterns, "MAX_PAIRS", 50)
    ends = TopicMatcher(("#", number) for number in range(30))
    with pytest.raises(TooMany):
        matched(ends, ["a", "b"])
    assert matched(ends, ["a"]) == [list(range(30))]
