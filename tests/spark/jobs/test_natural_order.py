"""Names in the order in which people list them."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harebell.spark.jobs.natural_order import natural


def test_numbers_inside_names_count_as_numbers() -> None:
    names = ["", "a", "a-1", "a-2", "a-10", "a-10-b2", "a-10-b10", "b", "b" + "1" * 5000]
    assert sorted([*names[5:], *names[:5]], key=natural) == names
    assert natural(None) == natural("")


@given(st.sets(st.text("ab01٣²-")))
def test_names_that_differ_never_tie(names: set[str]) -> None:
    keys = {natural(name) for name in names}
    assert len(sorted(keys)) == len(names)
