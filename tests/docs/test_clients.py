"""The page on the client: every row has its tests, which are there, and what is not there yet is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "clients.md"
NAMED = re.compile(r"\]\(([^)#\s]+\.py)\): ([\w, ]+)")
LINK = re.compile(r"\]\([^)]+\)")
NOT_YET = re.compile(r"not yet: ((?:`[^`]+`(?:, )?)+)")


def rows() -> list[str]:
    """The rows of all tables, without their headings."""
    lines = PAGE.read_text().splitlines()
    return [
        line for line, above in zip(lines[1:], lines, strict=False) if line.startswith("| ") and above.startswith("|")
    ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: " ".join(row.split("|")[1:3]).strip()[:60])
def test_a_row_names_its_tests(row: str) -> None:
    tests = row.rstrip("| ").rpartition("|")[2]
    planned = [path for paths in NOT_YET.findall(tests) for path in re.findall("`([^`]+)`", paths)]
    assert planned or LINK.search(tests), "a row without a test"
    assert [path for path in planned if (ROOT / path).exists()] == [], "it is there by now: say so in its row"
    for file, names in NAMED.findall(tests):
        code = (PAGE.parent / file).read_text()
        missing = [name for name in names.strip(" ,").split(", ") if not re.search(rf"def {name}\(", code)]
        assert missing == [], file


def test_there_are_rows_for_all_of_it() -> None:
    text = PAGE.read_text()
    assert len(rows()) > 75
    for heading, last in (("## Errors found in robust clients", 12), ("## Problems that users report", 20)):
        table = text.partition(heading + "\n")[2].partition("\n## ")[0]
        assert [int(n) for n in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(range(1, last + 1))
