"""Patterns of one engine: checked when they are set, and without effect when they cannot be used."""

from __future__ import annotations

import pytest

from harebell.routing.pattern_language import BadPattern, Reading
from harebell.routing.patterns import Patterns, Search, standard


def picky(reading: Reading) -> Search:
    """An engine that takes patterns without repeats only."""
    if reading.steps > 1000:
        raise BadPattern("too much", 0)
    return standard(reading)


def test_a_pattern_is_searched_anywhere() -> None:
    patterns = Patterns(standard)
    assert patterns.search("b")("abc")
    assert not patterns.search("^b")("abc")
    assert patterns.search("^(?!b)")("abc")
    assert not patterns.search("^(?!a)")("abc")


@pytest.mark.parametrize("pattern, problem", [("(", "missing )"), ("^a*b*c", "too much")])
def test_what_cannot_be_used_is_an_error_and_finds_nothing(pattern: str, problem: str) -> None:
    patterns = Patterns(picky)
    with pytest.raises(BadPattern, match=problem.replace(")", r"\)")):
        patterns.check(pattern)
    found = patterns.problem(pattern)
    assert found is not None
    assert found.problem == problem
    assert not patterns.search(pattern)("abc")
    assert patterns.problem("a") is None


@pytest.mark.parametrize("name, finds", [("é", True), ("a" * 255, True), ("a" * 256, False), ("\udcff", True)])
def test_names_are_short(name: str, finds: bool) -> None:
    assert Patterns(standard).search("^.")(name) is finds
