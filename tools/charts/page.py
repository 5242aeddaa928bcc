"""The tables of a page in Markdown: read, and written again."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["tables", "with_table"]

RULE: Final = re.compile(r"\|[|\- :]+")
TABLE: Final = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def tables(text: str) -> list[list[list[str]]]:
    """Each table as its rows, the head first; a row is its cells."""
    return [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if not RULE.fullmatch(line)]
        for table in TABLE.findall(text)
    ]


def with_table(text: str, table: str) -> str:
    """The page with this table in the place of that with the same title. ValueError where there is none."""
    title = table.split("|")[1].strip()
    for old in TABLE.findall(text):
        if old.split("|")[1].strip() == title:
            return text.replace(old, table + "\n")
    raise ValueError(f"the page has no table {title!r}")
