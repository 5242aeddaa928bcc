"""The tables of docs/reference/differences.md, as the tests read them.

A cell says how a script ends with that broker, in the words of `driver.outcome`; `same` in the cell of a RabbitMQ says
that Harebell is not different from that version.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["SAME", "Row", "rows"]

SAME: Final = "same"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


@dataclass(frozen=True)
class Row:
    key: str
    rabbitmq: dict[str, str]  # by version
    harebell: str
    reason: str


@cache
def rows() -> dict[str, Row]:
    """Every table row of the page whose first cell is in backquotes."""
    found: dict[str, Row] = {}
    versions: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| what |"):
            versions = [title.removeprefix("RabbitMQ ") for title in cells if title.startswith("RabbitMQ ")]
        elif line.startswith("| `"):
            key, *outcomes, harebell, reason = cells
            key = key.strip("`")
            assert key not in found, f"{PAGE}: two rows {key}"
            found[key] = Row(key, dict(zip(versions, outcomes, strict=True)), harebell, reason)
    return found
