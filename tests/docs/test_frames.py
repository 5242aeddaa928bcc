"""The page of frame rules has the rows that are tested, and each of its other rows names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.v091.frame_rules import CROSSING, RECEIVED, SENT, Script
from tests.docs.tables import named_tests, rows

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "frames.md"


@pytest.mark.parametrize(
    "head, scripts", [("what comes", RECEIVED), ("what goes out", SENT), ("what crosses", CROSSING)]
)
def test_the_page_has_the_rows_that_are_tested(head: str, scripts: dict[str, Script]) -> None:
    assert [row[0] for row in rows(PAGE, head)] == list(scripts)


def test_heartbeats_have_their_tests() -> None:
    for row in rows(PAGE, "when"):
        assert named_tests(PAGE, row[2]), row
