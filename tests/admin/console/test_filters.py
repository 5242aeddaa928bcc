"""Each filter that the pages about the console name is one of a column."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
VIEWS = ROOT / "src" / "harebell" / "admin" / "console" / "web" / "app" / "views"
PAGES = sorted((ROOT / "docs" / "how-to").glob("console*.md"))
COLUMN = re.compile(r'\bid: "(\w+)", title: "([^"]+)"')
FILTER = re.compile(r"`([a-z_]+):[^`]+`")


def test_each_filter_of_the_documents_is_a_columns() -> None:
    columns = {name for file in VIEWS.rglob("*.js") for found in COLUMN.findall(file.read_text()) for name in found}
    names = {name.lower().replace(" ", "_") for name in columns}
    named = {name for page in PAGES for name in FILTER.findall(page.read_text())} - {"column"}
    assert {"ready", "consumers", "outcome", "user"} <= named
    assert named <= names
