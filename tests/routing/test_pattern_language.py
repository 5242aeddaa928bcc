"""What a pattern may say, what is refused and why, and what a search may cost."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from harebell.routing.pattern_language import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_SIZE,
    BadPattern,
    literal,
    read_pattern,
)
from harebell.routing.patterns import standard
from tests.fixtures.profiles import scaled
from tests.routing.regular_expressions import PATTERNS


def finds(pattern: str, name: str) -> bool:
    return standard(read_pattern(pattern))(name)


@pytest.mark.parametrize(
    "pattern, yes, no",
    [
        ("", ["", "a"], []),
        ("a", ["a", "bab"], ["", "A"]),
        ("^a", ["ab"], ["ba"]),
        ("a$", ["ba"], ["ab", "a\n"]),
        (r"\Aa\z", ["a"], ["ab", "a\n"]),
        (r"a\Z", ["a"], ["a\n"]),
        (r"^a\.b$", ["a.b"], ["aab"]),
        (r"\/\-\ \é", ["/- é"], ["é"]),
        ("^.$", ["a", "é", "\0"], ["", "\n", "ab"]),
        ("(?s)^.$", ["\n"], ["ab"]),
        ("^(?s:.).$", ["\na"], ["a\n"]),
        (r"^\d\D$", ["1a", "1٣"], ["٣a", "11"]),
        (r"^\w\W$", ["_-", "aé"], ["éa", "ab"]),
        (r"^\s\S$", [" a", "\va", "\n\u2003"], ["\u2003a", "  "]),
        (r"\bx\b", ["x", "a x-b"], ["ax", "x1"]),
        (r"^\a\t\n\f\r\e$", ["\a\t\n\f\r\x1b"], []),
        (r"^\x41\x{e9}\x{1F600}$", ["Aé\U0001f600"], ["a"]),
        ("^[a-c]$", ["a", "b", "c"], ["d", "-"]),
        ("^[^a-c]$", ["d", "\n", "é"], ["a"]),
        ("^[]-]$", ["]", "-"], ["a"]),
        ("^[^]]$", ["a"], ["]"]),
        ("^[a-]$", ["a", "-"], ["b"]),
        (r"^[\w.-]+$", ["a-b.c"], ["a b"]),
        (r"^[a\d-z]$", ["a", "1", "-", "z"], ["b"]),
        (r"^[\D]$", ["a"], ["1"]),
        (r"^[\b\]\\]$", ["\b", "]", "\\"], ["b"]),
        ("^[[:alpha:]_]$", ["a", "Z", "_"], ["1", ":", "é"]),
        ("^[[:^alpha:]]$", ["1", "é"], ["a"]),
        ("^[[:^ascii:]]$", ["é"], ["a", "\0"]),
        ("^[[a]$", ["[", "a"], ["b"]),
        ("^[[.a]$", ["[", ".", "a"], ["b"]),
        (r"^[\S\s]$", ["a", "\n"], ["ab"]),
        (r"[^\S\s]", [], ["", "a"]),
        ("^a*b+c?$", ["b", "aabbc"], ["a", "acb"]),
        ("^a{2}b{1,}c{0,2}$", ["aab", "aabbcc"], ["ab", "aabccc"]),
        ("^a*?b{2}?$", ["abb"], ["ab"]),
        ("a{", ["a{"], ["a"]),
        ("{a}{,2}", ["{a}{,2}"], ["a"]),
        ("^(a|b|)c$", ["ac", "bc", "c"], ["abc"]),
        ("^(?:ab){2}$", ["abab"], ["ab"]),
        ("^(?<n>a)(?P<m>b)$", ["ab"], ["a"]),
        ("^(a(b|(c)))+$", ["abac"], ["a"]),
        ("(?i)^ab[c-e]é$", ["ABDé", "abcé"], ["ABDÉ", "abf"]),
        ("^a(?i)b|c$", ["aB", "C"], ["Ab"]),
        ("^a(?i:b(?-i)c)d$", ["aBcd", "abcd"], ["aBCd", "aBcD"]),
        ("^(a(?i)b|c)d$", ["aBd", "Cd"], ["aBD"]),
        ("(?i)[^a]", ["b"], ["A"]),
        ("(?i)[1-5]", ["3"], ["a"]),
        ("()*a", ["a"], ["b"]),
        (r"^(?!amq\.).*", ["orders", "xamq.", ""], ["amq.topic"]),
        ("(?i)^(?!a|b)[a-z]+$", ["cab"], ["Ab", "b", "c1"]),
        ("^(?!a$)", ["ab"], ["a"]),
    ],
)  # fmt: skip
def test_what_a_pattern_finds(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in yes if not finds(pattern, name)] == []
    assert [name for name in no if finds(pattern, name)] == []


@pytest.mark.parametrize(
    "pattern, problem, at",
    [
        ("(", "missing )", 1),
        ("a(b", "missing )", 3),
        ("a)", "unmatched parentheses", 1),
        ("^(?!a", "missing )", 5),
        ("a[b", "missing terminating ] for character class", 1),
        ("[]", "missing terminating ] for character class", 0),
        ("[a-", "missing terminating ] for character class", 0),
        ("[b-a]", "range out of order in character class", 1),
        (r"[a-\d]", "range out of order in character class", 1),
        ("[[:nobody:]]", "unknown POSIX class name", 1),
        ("*", "nothing to repeat", 0),
        ("a|{2}", "nothing to repeat", 2),
        ("^*", "nothing to repeat", 1),
        (r"\b+", "nothing to repeat", 2),
        ("(?i)*", "nothing to repeat", 4),
        ("a(?i)+", "nothing to repeat", 5),
        ("a**", "nothing to repeat", 2),
        ("a{2}{3}", "nothing to repeat", 4),
        ("a{3,2}", "numbers out of order in {} quantifier", 1),
        ("a{1001}", "number too big in {} quantifier, the most is 1000,", 1),
        ("a{0,999999999}", "number too big in {} quantifier, the most is 1000,", 1),
        ("a++", "possessive quantifiers are not supported", 2),
        ("\\", r"\ at end of pattern", 0),
        ("a\\", r"\ at end of pattern", 1),
        (r"(a)\1", r"\1 is not supported", 3),
        (r"\B", r"\B is not supported", 0),
        (r"\p{L}", r"\p is not supported", 0),
        (r"\x", r"\x is not supported", 0),
        (r"\x{d800}", "no character", 0),
        (r"\x{110000}", "no character", 0),
        ("a\ud800", "no UTF-8", 1),
        ("x(?=a)", "(?=a is not supported (look-around only as ^(?!...))", 1),
        ("x(?!a)", "(?!a is not supported (look-around only as ^(?!...))", 1),
        ("(?<=a)b", "(?<= is not supported (look-around only as ^(?!...))", 0),
        ("(?P=n)", "(?P= is not supported (look-around only as ^(?!...))", 0),
        ("(?>a)", "(?>a is not supported (look-around only as ^(?!...))", 0),
        ("(?m)a", "(?m) is not supported (look-around only as ^(?!...))", 0),
        ("(?R)", "(?R) is not supported (look-around only as ^(?!...))", 0),
        ("^(?!a)b|c", "(?!...) excludes nothing from the branches behind |: write ^(?!x)(?:y|z)", 1),
        ("a" * (MAX_LENGTH + 1), f"more than {MAX_LENGTH} characters", MAX_LENGTH),
        ("(" * 3000 + ")" * 3000, f"more than {MAX_LENGTH} characters", MAX_LENGTH),
        ("(" * 1500 + ")" * 1500, f"more than {MAX_DEPTH} groups in one another", MAX_DEPTH),
        (".{1000}.", f"more than {MAX_SIZE} characters with the repeats written out", 8),
        ("((a{1000}){1000}){1000}", f"more than {MAX_SIZE} characters with the repeats written out", 16),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str, problem: str, at: int) -> None:
    with pytest.raises(BadPattern) as caught:
        read_pattern(pattern)
    assert (caught.value.problem, caught.value.at) == (problem, at)
    assert str(caught.value) == f"{problem} at character {at}"


@given(st.text(alphabet="ab1.^$*+?{},()[]|\\:-!=<>ixsdwbAZz \n\0é\ud800", max_size=30))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with suppress(BadPattern):
        standard(read_pattern(text))("a.b")


@settings(max_examples=scaled(150))
@given(PATTERNS, st.lists(st.text(alphabet="abB1.-_ é\n", max_size=8), min_size=1, max_size=8))
def test_the_verdict_is_that_of_re(pattern: str, names: list[str]) -> None:
    theirs = re.compile(pattern, re.ASCII)
    search = standard(read_pattern(pattern.replace(r"\Z", "$")))
    assert [search(name) for name in names] == [theirs.search(name) is not None for name in names]


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_literal_finds_just_that(text: str, other: str) -> None:
    text, other = (each.encode("utf-8", "replace").decode() for each in (text, other))
    pattern = f"^{literal(text)}$"
    assert finds(pattern, text)
    assert finds(pattern, other) is (other == text)


@pytest.mark.parametrize(
    "pattern, steps",
    [
        ("^a", 1),
        ("^abc.*", 8),  # what ends a pattern is never tried a second time
        ("abc", 3 * 257),
        ("^a|b", 2 * 2 * 257),
        ("^(?!a).*", 1 + 5),
        ("^a*b", 2 * 257),
        ("^a{2,4}b", 3 * 5),
        ("^a{0,1000}b", 256 * 255),
        ("^(?:ab)?c", 2 * 3),
        ("^(?:ab){3}c", 7),
        ("^(?:a|b|c)d", 3 * 4),
    ],
)
def test_what_a_search_may_cost(pattern: str, steps: int) -> None:
    assert read_pattern(pattern).steps == steps


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(a*b){2}c", "^(?:(a?){3})+"])
def test_what_may_cost_anything(pattern: str) -> None:
    assert read_pattern(pattern).steps == float("inf")
