"""The long description of the package is README.md without the links that lead nowhere on an index."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("hatchling", reason="no hatchling: `make setup` installs it")

from tools.dist.commands import ROOT
from tools.readme import ReadmeHook, description


@pytest.mark.parametrize(
    ("readme", "wanted"),
    [
        ("see [how](docs/how.md), and\n[both\nlines](a.md#b)", "see how, and\nboth\nlines"),
        ("[site](https://example.org/), [part](#part)", "[site](https://example.org/), [part](#part)"),
        ("[a](b)\n```python\nx[0](y)\n```\n[c](d)", "a\n```python\nx[0](y)\n```\nc"),
    ],
)
def test_links_to_files_become_text(readme: str, wanted: str) -> None:
    assert description(readme) == wanted


def test_the_hook_gives_the_readme_as_markdown() -> None:
    metadata: dict[str, object] = {}
    ReadmeHook(str(ROOT), {}).update(metadata)
    (readme,) = metadata.values()
    assert isinstance(readme, dict)
    assert readme["content-type"] == "text/markdown"
    assert "`harebell.blocking`" in readme["text"]
    assert re.findall(r"\]\((?!https?:)", readme["text"]) == []
