"""The tables of a page: their rows, and the tests that a cell names."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["named_tests", "rows", "tables"]


def tables(page: Path) -> list[list[list[str]]]:
    """Each table as its rows, the first of them the head; a row is its cells."""
    found: list[list[list[str]]] = []
    inside = False
    for line in page.read_text("utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            found.append([])
            inside = True
        if not re.fullmatch(r"[|\- :]+", line):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def rows(page: Path, head: str) -> list[list[str]]:
    """The rows, without the head, of the tables whose first column has this title. AssertionError without any."""
    found = [row for table in tables(page) if table[0][0] == head for row in table[1:]]
    assert found, f"{page.name} has no table of {head!r}"
    return found


def named_tests(page: Path, cell: str) -> list[Path]:
    """The files that a cell's links lead to. AssertionError when one is missing, or lacks the test of its title."""
    found = []
    for title, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", cell):
        file = (page.parent / target).resolve()
        assert file.is_file(), f"{page.name}: {target} does not exist"
        if title.startswith("test_") and title != file.stem:
            assert f"def {title}(" in file.read_text("utf-8"), f"{page.name}: {file.name} has no {title}"
        found.append(file)
    return found
