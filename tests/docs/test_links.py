"""Links between the pages, and from them to the code, lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "docs", ROOT / "benchmarks", ROOT / "changelog.d"]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
PART = re.compile(r"\]\(([^)#\s]+\.py)\): ([^|\[]+)")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_parts_that_the_feature_page_names_are_there() -> None:
    """`[scripts](...): publishing` names a part of that file, `a, b` two."""
    page = ROOT / "docs" / "reference" / "features.md"
    named = [
        (file, part.strip()) for file, parts in PART.findall(page.read_text()) for part in parts.strip(" ,").split(",")
    ]
    assert len(named) > 15
    missing = [(file, part) for file, part in named if part.lower() not in (page.parent / file).read_text().lower()]
    assert missing == []
