"""Patterns that Python's re has too, and that it searches quickly in short names."""

from __future__ import annotations

from hypothesis import strategies as st

CHARACTERS = st.sampled_from(
    ["a", "b", "B", "1", "-", "_", "é", r"\.", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\x41", r"\n", "[ab]",
     "[^a]", r"[\w-]", "[A-B]", r"[^\s1]", r"[\Wa]", "[.$^]"]
)  # fmt: skip
PLACES = st.sampled_from(["^", r"\Z", r"\A", r"\b"])
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "{1,2}?"])


def _sequences(pieces: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.builds("{}{}".format, pieces, QUANTIFIERS), PLACES), max_size=5).map("".join)


def _groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    openings = st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?-i:"])
    alternatives = st.lists(inner, min_size=1, max_size=3).map("|".join)
    return _sequences(st.one_of(CHARACTERS, st.builds("{}{})".format, openings, alternatives)))


PATTERNS = st.recursive(_sequences(CHARACTERS), _groups, max_leaves=6)
"""The end of the text is \\Z in them, as re has it."""
