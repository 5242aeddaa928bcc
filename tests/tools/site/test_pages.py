"""What the site adds to the pages, and takes out of them."""

from __future__ import annotations

import pytest

from tools.site import pages

HOW_TO = pages.DOCS / "how-to"


@pytest.mark.parametrize(("text", "wanted"), [
    ("[a](users.md) and [b](../reference/client.md#x)", "[a](users.md) and [b](../reference/client.md#x)"),
    ("see [the file](../../src/x.py), [web](https://a.b/c)", "see the file, [web](https://a.b/c)"),
    ("[`test`](../../tests/test_a.py)", "`test`"),
    ("[two\nlines](../../x)", "two\nlines"),
    ("[here](#there)", "[here](#there)"),
    ("```\n[a](../../x)\n```\n[a](../../x)", "```\n[a](../../x)\n```\na"),
])  # fmt: skip
def test_links_out_of_the_documentation_become_text(text: str, wanted: str) -> None:
    assert pages.without_outside(text, HOW_TO) == wanted


def test_each_page_is_in_a_menu() -> None:
    found = {
        f"{folder}/{line}"
        for folder in pages.FOLDERS
        for line in pages.menu(f"{folder}/README").split("\n")
        if line and not line.startswith(("`", ":"))
    }
    assert found == {
        f"{folder}/{page.stem}"
        for folder in pages.FOLDERS
        for page in (pages.DOCS / folder).glob("*.md")
        if page.stem != "README"
    }
    assert pages.menu("how-to/users") == ""
    assert "api/README" in pages.menu("README")
    assert "harebell-blocking" in pages.menu("api/README")
