"""The words of a selector, and what is none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from harebell.routing.selectors.tokens import END, MAX_LENGTH, NAME, NUMBER, TEXT, BadSelector, tokens_of


def words(selector: str) -> list[tuple[str, object]]:
    return [(token.kind, token.value) for token in tokens_of(selector)[:-1]]


@pytest.mark.parametrize(
    "selector, expected",
    [
        ("", []),
        (" \t\r\n\f ", []),
        ("null_123+blah", [(NAME, "null_123"), ("+", "+"), (NAME, "blah")]),
        ("$a.b_$1", [(NAME, "$a.b_$1")]),
        ("größe = 1", [(NAME, "größe"), ("=", "="), (NUMBER, 1)]),
        ('"x-my header"', [(NAME, "x-my header")]),
        ('"say ""NULL"""', [(NAME, 'say "NULL"')]),
        ("Is nOt null", [("IS", "Is"), ("NOT", "nOt"), ("NULL", "null")]),
        ('"null"', [(NAME, "null")]),
        ("''", [(TEXT, "")]),
        ("'it''s' ''''", [(TEXT, "it's"), (TEXT, "'")]),
        ("'line\nbreak'", [(TEXT, "line\nbreak")]),
        ("<><=<>=>=", [("<>", "<>"), ("<=", "<="), ("<>", "<>"), ("=", "="), (">=", ">=")]),
        ("a-1", [(NAME, "a"), ("-", "-"), (NUMBER, 1)]),
        ("0 57 57L 57l", [(NUMBER, 0), (NUMBER, 57), (NUMBER, 57), (NUMBER, 57)]),
        ("0x1F 0XffL 0b101", [(NUMBER, 31), (NUMBER, 255), (NUMBER, 5)]),
        ("7. 0. .5 3.25", [(NUMBER, 7.0), (NUMBER, 0.0), (NUMBER, 0.5), (NUMBER, 3.25)]),
        ("7E3 57.9e+2 3.e50 34.e-50", [(NUMBER, 7e3), (NUMBER, 57.9e2), (NUMBER, 3e50), (NUMBER, 34e-50)]),
        ("1d 1F .5D 00.5", [(NUMBER, 1.0), (NUMBER, 1.0), (NUMBER, 0.5), (NUMBER, 0.5)]),
        ("(a,b)*c/d", [(kind, kind) if kind in "(),*/" else (NAME, kind) for kind in "(a,b)*c/d"]),
    ],
)  # fmt: skip
def test_words(selector: str, expected: list[tuple[str, object]]) -> None:
    found = words(selector)
    assert found == expected
    assert [type(value) for _, value in found] == [type(value) for _, value in expected]


def test_the_place_of_each_word() -> None:
    assert [token.at for token in tokens_of("  a >= 'b'")] == [2, 4, 7, 10]
    assert tokens_of("a ")[-1] == (END, "", 2)


@pytest.mark.parametrize(
    "selector, problem",
    [
        ("a = 'b", "a text in ' has no end at character 4: 'b"),
        ("a = 'b''", "a text in ' has no end at character 4: 'b''"),
        ('"a', 'a text in " has no end at character 0: "a'),
        ('""', 'a name is empty at character 0: ""'),
        ("a ; b", "a character that means nothing here at character 2: ; b"),
        ("a != b", "a character that means nothing here at character 2: != b"),
        ("\0", "a character that means nothing here at character 0: \0"),
        ("010", "a number begins with 0 at character 0: 010"),
        ("17kill", "no number at character 0: 17kill"),
        ("0x", "no number at character 0: 0x"),
        ("0xG", "no number at character 0: 0xG"),
        ("0b2", "no number at character 0: 0b2"),
        ("1.e.5", "no number at character 0: 1.e.5"),
        (".e5", "no number at character 0: .e5"),
        (".", "no number at character 0: ."),
        ("34e", "no number at character 0: 34e"),
        (".3e+", "no number at character 0: .3e+"),
        ("1.5L", "no number at character 0: 1.5L"),
        ("1_000", "no number at character 0: 1_000"),
        ("1\u0663", "no number at character 0: 1\u0663"),
        ("9" * 5000, f"a number of more than 64 bits at character 0: {'9' * 24}..."),
        ("9" * 400 + ".", f"a number beyond the range at character 0: {'9' * 24}..."),
        ("a = \udcff", "no UTF-8 at character 4, the end of the selector"),
        ("a" * (MAX_LENGTH + 1), f"more than {MAX_LENGTH} characters at character {MAX_LENGTH}: a"),
    ],
)
def test_what_is_no_word(selector: str, problem: str) -> None:
    with pytest.raises(BadSelector) as caught:
        tokens_of(selector)
    assert str(caught.value) == problem
    assert problem.startswith(caught.value.problem)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(selector: str) -> None:
    with suppress(BadSelector):
        found = tokens_of(selector)
        assert [token.at for token in found] == sorted({token.at for token in found})
