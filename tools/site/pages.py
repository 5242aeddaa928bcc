"""What the site changes in the Markdown pages: menus, index pages, and no links to files that it does not have.

The pages are read on a code host too, so that they have neither directives nor addresses of the site in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tools.site.api import MODULES, page_of

__all__ = ["menu", "rename_indexes", "setup", "with_site_links"]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
FOLDERS: Final = ("tutorials", "how-to", "reference", "explanation")
LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
FENCED: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def rename_indexes(copied: Path) -> None:
    """Name the README of each folder as web servers name the page of a folder."""
    for page in copied.rglob("README.md"):
        page.rename(page.with_name("index.md"))


def with_site_links(text: str, folder: Path) -> str:
    """The page in that folder, with the words alone where a link leads out of the documentation.

    A link to a file that is missing stays: sphinx reports it.
    """
    pieces = FENCED.split(text)  # every second piece is fenced code
    pieces[::2] = [LINK.sub(lambda link: _changed(link, folder), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _changed(link: re.Match[str], folder: Path) -> str:
    words, target = link[1], link[2]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    place = (folder / target).resolve()
    if not place.is_relative_to(DOCS):
        return words if place.exists() else link[0]
    if place.name == "README.md":
        return f"[{words}]({target.removesuffix('README.md')}index.md{link[3] or ''})"
    return link[0]


def menu(name: str) -> str:
    """The menu of the page of that name ("index", "how-to/index"), as a directive; "" where it has none."""
    if name == "index":
        return _toctree([f"{folder}/index" for folder in (*FOLDERS, "api")])
    folder, _, page = name.rpartition("/")
    if page != "index":
        return ""
    if folder == "api":
        return _toctree([page_of(module) for module in MODULES])
    ordered = re.findall(r"\]\(([\w-]+)\.md", (DOCS / folder / "README.md").read_text("utf-8"))
    rest = sorted(path.stem for path in (DOCS / folder).glob("*.md"))
    return _toctree([each for each in dict.fromkeys([*ordered, *rest]) if each != "README"])


def _toctree(entries: list[str]) -> str:
    return "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def _read(app: Any, name: str, content: list[str]) -> None:
    text = content[0] if name.startswith("api/") else with_site_links(content[0], (DOCS / name).parent)
    if name == "index":
        text += "\nFor each public class and function: [API reference](api/index.md).\n"
    content[0] = text + menu(name)


def setup(app: Any) -> None:
    app.connect("source-read", _read)
