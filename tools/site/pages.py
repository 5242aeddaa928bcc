"""What the site adds to the Markdown pages: the menus, and plain text in place of links to files that it does not have.

The pages are read on a code host too, so that they have neither directives nor addresses of the site in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tools.site.api import MODULES, page_of

__all__ = ["menu", "setup", "without_outside"]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
FOLDERS: Final = ("tutorials", "how-to", "reference", "explanation")
LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
FENCED: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def without_outside(text: str, folder: Path) -> str:
    """The page in that folder, with the words alone where a link leads out of the documentation."""
    pieces = FENCED.split(text)  # every second piece is fenced code
    pieces[::2] = [LINK.sub(lambda link: _kept(link, folder), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _kept(link: re.Match[str], folder: Path) -> str:
    words, target = link[1], link[2]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    place = (folder / target).resolve()
    return link[0] if place.is_relative_to(DOCS) else words


def menu(name: str) -> str:
    """The menu of the page of that name ("README", "how-to/README"), as a directive; "" where it has none."""
    if name == "README":
        return _toctree([f"{folder}/README" for folder in FOLDERS] + ["api/README"])
    folder, _, page = name.rpartition("/")
    if page != "README":
        return ""
    if folder == "api":
        return _toctree([page_of(module) for module in MODULES])
    ordered = re.findall(r"\]\(([\w-]+)\.md", (DOCS / folder / "README.md").read_text("utf-8"))
    rest = sorted(path.stem for path in (DOCS / folder).glob("*.md"))
    return _toctree([each for each in dict.fromkeys([*ordered, *rest]) if each != "README"])


def _toctree(entries: list[str]) -> str:
    return "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def _read(app: Any, name: str, content: list[str]) -> None:
    text = without_outside(content[0], (DOCS / name).parent) if not name.startswith("api/") else content[0]
    if name == "README":
        text += "\nFor each public class and function: [API reference](api/README.md).\n"
    content[0] = text + menu(name)


def setup(app: Any) -> None:
    app.connect("source-read", _read)
