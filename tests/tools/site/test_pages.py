"""What the site adds to the pages, and takes out of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site import pages

HOW_TO = pages.DOCS / "how-to"


@pytest.mark.parametrize(("text", "wanted"), [
    ("[a](users.md) and [b](../reference/client.md#x)", "[a](users.md) and [b](../reference/client.md#x)"),
    ("see [the file](../../Makefile), [web](https://a.b/c)", "see the file, [web](https://a.b/c)"),
    ("[`test`](../../tests/conftest.py)", "`test`"),
    ("[two\nlines](../../examples)", "two\nlines"),
    ("[nothing](../../src/missing.py)", "[nothing](../../src/missing.py)"),
    ("[here](#there)", "[here](#there)"),
    ("[all](README.md), [b](../reference/README.md#x)", "[all](index.md), [b](../reference/index.md#x)"),
    ("[the first](../../README.md)", "the first"),
    ("```\n[a](../../src)\n```\n[a](../../src)", "```\n[a](../../src)\n```\na"),
])  # fmt: skip
def test_links_are_changed_where_the_site_differs(text: str, wanted: str) -> None:
    assert pages.with_site_links(text, HOW_TO) == wanted


def test_each_page_is_in_a_menu() -> None:
    found = {
        f"{folder}/{line}"
        for folder in pages.FOLDERS
        for line in pages.menu(f"{folder}/index").split("\n")
        if line and not line.startswith(("`", ":"))
    }
    assert found == {
        f"{folder}/{page.stem}"
        for folder in pages.FOLDERS
        for page in (pages.DOCS / folder).glob("*.md")
        if page.stem != "README"
    }
    assert pages.menu("how-to/users") == ""
    assert "api/index" in pages.menu("index")
    assert "harebell-blocking" in pages.menu("api/index")


def test_index_pages(tmp_path: Path) -> None:
    for page in ("README.md", "a/README.md", "a/b.md"):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).touch()
    pages.rename_indexes(tmp_path)
    assert {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.md")} == {"index.md", "a/index.md", "a/b.md"}
