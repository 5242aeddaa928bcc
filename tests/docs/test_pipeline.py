"""The table of guarantees in docs/explanation/pipeline.md: every cell names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark.bad_days.days import CLUSTER_DAYS, DAYS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "pipeline.md"
LINK = re.compile(r"\]\(([^)#\s]+)#(\w+)\)")


def rows() -> list[list[str]]:
    lines = PAGE.read_text().split("| bad day |")[1].splitlines()[2:]
    end = next(at for at, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[:end]]


def test_every_cell_names_a_test_that_is_there() -> None:
    for day, *cells in rows():
        assert len(cells) == 4, day
        for cell in cells:
            found = LINK.findall(cell)
            assert found, f"{day}: no test is linked in {cell!r}"
            for file, name in found:
                assert re.search(rf"^def {name}\(", (PAGE.parent / file).read_text(), re.MULTILINE), f"{day}: {name}"


def test_every_day_is_in_the_table() -> None:
    named = {name for row in rows() for cell in row[1:] for _, name in LINK.findall(cell)}
    assert {run.__name__ for run in (*DAYS.values(), *CLUSTER_DAYS.values())} == named
