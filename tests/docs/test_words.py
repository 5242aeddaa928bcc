"""The pages keep to the words of CONTRIBUTING.md, as far as a search can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.findall(r'"([^"]+)"', re.search(r"\| duplicate, .*", (ROOT / "CONTRIBUTING.md").read_text())[0])  # type: ignore[index]
"""The phrases in the last line of its table of words."""
PHRASES = (*QUOTED, "work off", "works off", "worked off")


def test_the_table_has_phrases() -> None:
    assert {"now and then", "not to be had"} <= set(QUOTED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_phrase_that_another_word_replaces(page: Path) -> None:
    text = " ".join(page.read_text("utf-8").lower().split())
    assert [phrase for phrase in PHRASES if re.search(rf"\b{phrase}\b", text)] == []
