"""The page on deliveries has the table that the tests run, and its other rows name tests that are there."""

from __future__ import annotations

from pathlib import Path

from tests.client.deliveries_law import WAYS, table
from tests.docs.tables import named_tests, tables

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "deliveries.md"


def test_the_table_is_the_one_that_is_run() -> None:
    assert table() in PAGE.read_text("utf-8")


def test_every_way_is_explained() -> None:
    text = PAGE.read_text("utf-8")
    assert "\n".join(f"- *{way}*: {how}" for way, how in WAYS.items()) in text


def test_every_other_row_names_its_test() -> None:
    others = tables(PAGE)[1:]
    assert [len(rows) > 7 for rows in others] == [True, True]
    for rows in others:
        for row in rows[1:]:
            assert named_tests(PAGE, row[-1]), row
