"""Which build runs: modules that mypyc compiled, or the same files as Python.

Rules: pure Python is the reference; `HAREBELL_PURE=1` asks for it. A build is all or nothing: its modules know each
other's layout. A build in place, whose sources may be edited, counts only while they are as they were.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["NOTE", "Build", "choose", "stamp"]

Build = Literal["compiled", "pure", "stale"]
NOTE: Final = "compiled.json"
"""The file in the package's folder: for which Python it was compiled, and the modules with their sources' stamps."""


class _SourceFinder:
    """Finds the sources of the modules that have a compiled form too."""

    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules or not path:
            return None
        return FileFinder(path[0], (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)


def stamp(source: str) -> list[int]:
    """What tells whether the file at that path was edited: its size, and its time in nanoseconds."""
    found = os.stat(source)  # noqa: PTH116  this runs at each start, and pathlib would be half of it
    return [found.st_size, found.st_mtime_ns]


def choose(folder: str) -> Build:
    """Decide for the package in that folder, before any of its modules is imported.

    "stale" is pure Python because a source was edited, or is missing, since it was compiled.
    """
    try:
        with open(os.path.join(folder, NOTE), encoding="utf-8") as note:  # noqa: PTH118, PTH123  as above
            text = note.read()
    except (FileNotFoundError, NotADirectoryError):  # there is none, or the package is in a zip
        return "pure"
    import json  # most packages have no note

    noted = json.loads(text)
    stamps: dict[str, list[int] | None] = noted["modules"]
    other = noted["suffix"] not in EXTENSION_SUFFIXES  # compiled for another Python; what is left for this one is older
    if other or os.environ.get("HAREBELL_PURE", "") not in ("", "0"):
        build: Build = "pure"
    elif _is_stale(folder, stamps):
        build = "stale"
    else:
        return "compiled"
    sys.meta_path.insert(0, _SourceFinder(frozenset(stamps)))
    return build


def _is_stale(folder: str, stamps: dict[str, list[int] | None]) -> bool:
    for module, noted in stamps.items():
        if noted is not None:  # else it was installed from a wheel
            source = os.path.join(folder, *module.split(".")[1:]) + ".py"  # noqa: PTH118  as above
            try:
                if stamp(source) != noted:
                    return True
            except FileNotFoundError:
                return True
    return False
