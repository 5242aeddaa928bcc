"""The order in which people list names: a number inside a name counts as a number, so queue-9 comes before queue-10."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["natural"]

_NUMBER: Final = re.compile(r"([0-9]+)")
_MOST_DIGITS: Final = 1000  # longer numbers are compared as text: Python refuses to read them past 4,300 digits

Key = tuple[tuple[bool, int, str], ...]


def natural(name: str | None) -> Key:
    """The key by which `sorted` puts names into that order, no name first. Different names have different keys."""
    parts = _NUMBER.split(name or "")
    return tuple(
        (True, int(part), part) if index % 2 and len(part) <= _MOST_DIGITS else (False, 0, part)
        for index, part in enumerate(parts)
        if part or index == 0
    )
