"""The page on publications has the tables that the tests run, and explains each way and each word."""

from __future__ import annotations

from pathlib import Path

from tests.client.publications.law import table_of_faults, table_of_policies, table_of_ways
from tests.client.publications.ways import WAYS
from tests.docs.tables import named_tests

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "publications.md"


def test_the_tables_are_those_that_are_run() -> None:
    text = PAGE.read_text("utf-8")
    for table in (table_of_ways(), table_of_policies(), table_of_faults()):
        assert table in text, table


def test_every_way_is_explained() -> None:
    assert "\n".join(f"- *{way.name}*: {way.how}" for way in WAYS.values()) in PAGE.read_text("utf-8")


def test_the_tests_are_there() -> None:
    assert len(named_tests(PAGE, PAGE.read_text("utf-8"))) > 5
