"""Any text becomes one line of printable characters, and what is printable stays."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell.printable import printable


@given(st.text(st.characters(exclude_categories=())), st.integers(5, 40))
def test_one_line_that_is_not_too_long(text: str, most: int) -> None:
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    shown.encode()
    if text.isprintable() and len(text) <= most:
        assert shown == text


@pytest.mark.parametrize(
    "text, shown",
    [
        ("orders é 東", "orders é 東"),
        ("a\nb\r\0\x1b[31m", r"a\nb\r\x00\x1b[31m"),
        ("\u2028\u202e\ud800\x7f\x85", r"\u2028\u202e\ud800\x7f\x85"),
        ("a" * 41, "a" * 37 + "..."),
        ("\n" * 21, r"\n" * 18 + "\\" + "..."),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert printable(text, 40) == shown
