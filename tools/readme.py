"""Gives the package its long description: README.md, where links to files of the repository become plain text.

hatchling runs it at each build (pyproject.toml, [tool.hatch.metadata.hooks.custom]). On an index such a link leads
nowhere, because the repository's files are not there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["ReadmeHook", "description"]

LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?:|#|mailto:)[^)]+\)")
FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
"""A block of code, where brackets are no link."""


def description(readme: str) -> str:
    """The text of README.md without links to files."""
    parts = FENCE.split(readme)
    return "".join(part if part.startswith("```") else LINK.sub(r"\1", part) for part in parts)


class ReadmeHook(MetadataHookInterface):
    """What hatchling asks for the fields of `dynamic` that have no other source."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = description((Path(self.root) / "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
