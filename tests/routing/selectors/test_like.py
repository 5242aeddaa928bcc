"""LIKE against a naive matcher, and against patterns that make others explode."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, strategies as st

from harebell.routing.selectors.like import MAX_SEARCHED, MAX_TEXT, BadPattern, like


def matches(text: str, pattern: str, escape: str | None = None) -> bool | None:
    return like(pattern, escape)[0](text)


@pytest.mark.parametrize(
    "pattern, escape, yes, no",
    [
        ("12%3", None, ["123", "12993"], ["1234", "12", "1"]),
        ("l_se", None, ["lose", "l\nse", "l😀se"], ["loose", "lse"]),
        ("\\_%", "\\", ["_foo", "_"], ["bar", "\\_"]),
        ("", None, [""], ["a"]),
        ("%", None, ["", "a\nb"], []),
        ("%%", None, ["", "a"], []),
        ("_%", None, ["a", "ab"], [""]),
        ("a%a", None, ["aa", "aba"], ["a"]),
        ("%cru_l%", None, ["Bye, bye cruel world"], ["crul"]),
        ("a%b_c%d", None, ["abxcd", "a..bbxc.d"], ["abcd", "abxc"]),
        ("z_%.%z_%z%", "z", ["_%%_hello.th_re%"], ["Bye, bye cruel world"]),
        ("!!%", "!", ["!", "!a"], ["a"]),
        ("!a", "!", ["a"], ["!a"]),
        ("%%", "%", ["%"], ["", "a"]),
        ("a.c*[d]", None, ["a.c*[d]"], ["abc*[d]", "a.cc[d]", "a.c*d"]),
    ],
)
def test_patterns(pattern: str, escape: str | None, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(text, pattern, escape)] == []
    assert [text for text in no if matches(text, pattern, escape)] == []


@pytest.mark.parametrize("pattern", ["\\", "a\\", "%\\", "\\\\\\"])
def test_a_pattern_that_ends_with_its_escape(pattern: str) -> None:
    with pytest.raises(BadPattern):
        like(pattern, "\\")


def naive(text: str, pattern: str, escape: str | None) -> bool:
    """By trying everything."""

    @cache
    def match(at: int, where: int) -> bool:
        if where == len(pattern):
            return at == len(text)
        if pattern[where] == escape:
            return text[at : at + 1] == pattern[where + 1] and match(at + 1, where + 2)
        if pattern[where] == "%":
            return match(at, where + 1) or (at < len(text) and match(at + 1, where))
        return at < len(text) and pattern[where] in ("_", text[at]) and match(at + 1, where + 1)

    return match(0, 0)


@given(st.text("ab_%!", max_size=12), st.text("ab_%!", max_size=8), st.sampled_from([None, "!", "_", "%", "a"]))
def test_it_agrees_with_a_naive_matcher(text: str, pattern: str, escape: str | None) -> None:
    try:
        found, _ = like(pattern, escape)
    except BadPattern:
        assert pattern[-1] == escape
    else:
        assert found(text) is naive(text, pattern, escape)


@pytest.mark.parametrize(
    "pattern, text, expected",
    [
        ("%a" * 2000 + "%b", "a" * 100_000, False),
        ("%" * 30_000 + "b", "a" * 100_000, False),
        ("%" + "a" * 16_000 + "b%", "a" * 100_000, False),
        ("_" * 30_000, "a" * 100_000, False),
        ("_" * 30_000 + "%", "a" * 100_000, True),
        ("%" + "a" * (MAX_SEARCHED - 2) + "_b%", "a" * MAX_TEXT, False),
    ],
)
def test_what_makes_other_matchers_explode(pattern: str, text: str, expected: bool) -> None:
    """Each of these takes a matcher that goes back longer than the universe has; here it ends before anybody waits."""
    assert matches(text, pattern) is expected


def test_what_has_to_be_searched_for_is_counted() -> None:
    for pattern, searched in (("ab_", 0), ("_%_", 0), ("%ab%", 0), ("%a_%", 2), ("a_%b_c%__%d_", 5)):
        assert like(pattern, None)[1] == searched


def test_a_long_text_is_unknown_where_a_piece_has_to_be_searched_for() -> None:
    for text, pattern, expected in (
        ("a" * MAX_TEXT, "%a_%", True),
        ("a" * (MAX_TEXT + 1), "%a_%", None),
        ("a" * (MAX_TEXT + 1), "b%a_%", False),
        ("a" * (MAX_TEXT + 1), "a%a%", True),
    ):
        assert matches(text, pattern) is expected
