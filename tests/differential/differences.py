"""The table of docs/reference/differences.md, as the tests read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


@dataclass(frozen=True)
class Row:
    key: str
    rabbitmq: str
    harebell: str
    reason: str


@cache
def rows() -> dict[str, Row]:
    """Every table row of the page whose first cell is in backquotes."""
    found: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            key, rabbitmq, harebell, reason = (cell.strip() for cell in line.strip("|").split("|"))
            key = key.strip("`")
            assert key not in found, f"{PAGE}: two rows {key}"
            found[key] = Row(key, rabbitmq, harebell, reason)
    return found
