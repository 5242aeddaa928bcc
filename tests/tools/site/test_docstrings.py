"""Docstrings as reStructuredText."""

from __future__ import annotations

import pytest

from tools.site.docstrings import as_rest

CASES: list[tuple[str, str]] = [
    ("One line.", "One line."),
    ("`a_` and b_ and *c* of x_y", "``a_`` and b\\_ and \\*c\\* of x_y"),
    ("several `Queue`s | `", "several ``Queue``\\ s \\| \\`"),
    ("a\\b", "a\\\\b"),
    (
        "Do it.\n\nurl      where to\ntimeout  seconds, or\n         for ever\na, b     both\n\nEnd.",
        "Do it.\n\n``url``\n    where to\n``timeout``\n    seconds, or\n    for ever\n``a``, ``b``\n    both\n\nEnd.",
    ),
    ("As in\n\n    x = 1\n    y = *x\n\nso", "As in\n\n::\n\n    x = 1\n    y = *x\n\nso"),
    ("Rules:\n\n- one\n  more\n- two", "Rules:\n\n- one\n  more\n- two"),
    ("Rules:\n- one\n- two", "Rules:\n\n- one\n- two"),
    ("Which:\n*args  all of them", "Which:\n\n``*args``\n    all of them"),
    ("", ""),
]


@pytest.mark.parametrize(("plain", "rest"), CASES)
def test_as_rest(plain: str, rest: str) -> None:
    assert "\n".join(as_rest(plain.split("\n"))) == rest
