"""The page of permissions is the table that the tests try, row by row."""

from __future__ import annotations

from pathlib import Path

from tests.broker.auth.operations import ROWS, Needed
from tests.docs.tables import named_tests, rows

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "permissions.md"


def published() -> dict[str, tuple[str, str, str]]:
    """The rows with a test of the whole table: configure, write, read, by operation."""
    found = {}
    for to, *rights in rows(PAGE, "to"):
        if len(rights) == 4:
            assert to not in found, f"two rows: {to}"
            found[to] = (rights[0], rights[1], rights[2])
            assert "test_acts.py" in rights[3], to
    return found


def cell(needed: tuple[Needed, ...], right: str) -> str:
    return ", ".join(dict.fromkeys(each.part for each in needed if each.right == right))


def test_the_page_has_the_rows_that_are_tested() -> None:
    tested = {
        name: (cell(needed, "configure"), cell(needed, "write"), cell(needed, "read"))
        for name, (_, needed) in ROWS.items()
    }
    assert published() == tested


def test_every_row_names_tests_that_exist() -> None:
    for row in rows(PAGE, "to"):
        assert named_tests(PAGE, row[-1]), row[0]
