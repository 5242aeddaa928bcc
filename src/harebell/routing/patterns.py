"""Compiled patterns of policies, permissions and topic permissions.

A pattern is searched for anywhere in a name. One that cannot be used is an error when it is set, and matches nothing
when it is there already, on a disk: who would have access by it has none.

The engine is handed in: `standard`, Python's own, for programs that nobody else waits for, and a broker's
(`harebell.broker.patterns`). All give the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from harebell.routing.pattern_language import MAX_NAME, BadPattern, Reading, read_pattern

__all__ = ["Engine", "Patterns", "Search", "standard"]

REMEMBERED: Final = 256  # compiled patterns
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")

Search: TypeAlias = Callable[[str], bool]
"""Whether a name matches."""

Engine: TypeAlias = Callable[[Reading], Search]
"""Compiles a pattern. Raises BadPattern for one that it does not take."""


class Patterns:
    """The patterns of one program, compiled by one engine.

    `search` gives the search for a pattern, and one that finds nothing for a pattern that cannot be used.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.search: Callable[[str], Search] = lru_cache(REMEMBERED)(self._search)

    def check(self, pattern: str) -> None:
        """Raise BadPattern unless the pattern can be used."""
        self._engine(read_pattern(pattern))

    def problem(self, pattern: str) -> BadPattern | None:
        """Why the pattern cannot be used; None for one that can."""
        try:
            self.check(pattern)
        except BadPattern as error:
            return error
        return None

    def _search(self, pattern: str) -> Search:
        try:
            found = self._engine(read_pattern(pattern))
        except BadPattern:
            return _nothing

        def search(name: str) -> bool:
            return len(name) <= MAX_NAME and found(name if name.isascii() else _text(name))

        return search


def standard(reading: Reading) -> Search:
    """Python's engine without a limit of time."""
    wanted, unwanted = reading.written(r"\Z")
    search = re.compile(wanted, re.ASCII).search
    if unwanted is None:
        return lambda name: search(name) is not None
    excluded = re.compile(unwanted, re.ASCII).search
    return lambda name: search(name) is not None and excluded(name) is None


def _nothing(name: str) -> bool:
    return False


def _text(name: str) -> str:
    """The name with U+FFFD for each byte that was no UTF-8: engines search nothing else."""
    return _NO_TEXT.sub("\ufffd", name)
