"""The table of damage has the rows that are tested, and says of each what the test expects."""

from __future__ import annotations

from pathlib import Path

from tests.broker import test_damage as tests
from tests.broker.damage_rows import ROWS
from tests.docs.tables import rows

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "damage.md"


def test_the_page_has_the_rows_that_are_tested() -> None:
    assert [(to, kind) for to, kind, _, _ in rows(PAGE, "damage to")] == [(row.to, row.kind) for row in ROWS]


def test_the_page_says_what_the_test_expects() -> None:
    for (_, kind, said, kept), row in zip(rows(PAGE, "damage to"), ROWS, strict=True):
        assert ("refused" in said) == ("refused" in row.outcomes), (row.to, kind)
        assert ("nothing" in said) == ("nothing" in row.outcomes), (row.to, kind)
        only = said.partition(":")[0] == "nothing" or said.startswith("the start is refused")
        assert only == (len(row.outcomes) == 1 and row.outcomes != {"said"}), (row.to, kind)
        assert kept.startswith("everything") == row.whole, (row.to, kind)


def test_rows_without_a_case_have_a_test() -> None:
    for row in ROWS:
        assert bool(row.test) != bool(row.paths), row
        assert not row.test or callable(getattr(tests, row.test)), row
