"""Any name of a virtual host or a queue as the name of a file: one part of a path, no two the same."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, strategies as st

from harebell.spark.file_names import LONGEST, file_name

NAMES = st.one_of(
    st.text(max_size=255),
    st.sampled_from(["a", "ü", ".", "/", "+"]).flatmap(lambda one: st.integers(1, 255).map(one.__mul__)),
)


@given(NAMES)
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    made = file_name(name or "/")
    assert Path(made).parts == (made,)
    assert not made.startswith(".")
    assert len(made.encode()) <= LONGEST
    assert "+" in made or unquote(made) == (name or "/")


@given(st.lists(NAMES, unique=True, max_size=5))
def test_different_names_differ(names: list[str]) -> None:
    assert len({file_name(name) for name in names}) == len(names)


@pytest.mark.parametrize(("one", "other"), [("ü" * 40 + "A", "ü" * 40 + "B"), ("a" * 254, "a" * 255), (".", "%2E")])
def test_names_with_one_beginning_differ(one: str, other: str) -> None:
    assert file_name(one) != file_name(other)
    made = file_name("a" * 255)
    assert file_name(made) != made
