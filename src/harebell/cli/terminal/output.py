"""What the command prints as text: names and texts of a broker do not steer the terminal.

Controls, escapes and marks that change the direction of writing are shown as escapes (`harebell.printable`). Tables and
bars go through `harebell.cli.terminal.consoles`; this module works with the base install too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

from harebell.printable import printable

__all__ = ["lines", "say", "say_drawn", "say_json", "say_row"]

LONGEST: Final = 1_000_000  # characters of a line: a terminal wraps it
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n]")


def say(text: str, file: TextIO | None = None, *, flush: bool = False) -> int:
    """Print lines, on standard output unless there is a `file`. Returns 0, the exit status of success."""
    print(lines(text), file=sys.stdout if file is None else file, flush=flush)
    return 0


def say_json(value: object, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> int:
    """Print a value as JSON; what is not printable is written as \\uXXXX, so that it stays JSON. Returns 0."""
    print(_NOT_ASCII.sub(_escaped, json.dumps(value, indent=indent, default=default, ensure_ascii=False)))
    return 0


def say_row(cells: Sequence[str], separator: str) -> int:
    """Print cells in one line, each of them printable, with a separator that may be a tab. Returns 0."""
    print(separator.join(printable(each, LONGEST) for each in cells))
    return 0


def say_drawn(text: str) -> int:
    """Print a line with the escapes of a drawing in it; texts in it must have been made printable. Returns 0."""
    print(text)
    return 0


def lines(text: str) -> str:
    """The text with every line printable."""
    return "\n".join(printable(line, LONGEST) for line in text.split("\n"))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
