"""Docstrings as reStructuredText: ours are plain text, with aligned columns of parameters and indented code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["as_rest"]

PARAMETER: Final = re.compile(r"(\*{0,2}[a-zA-Z_][\w.]*(?:(?:, | and |, and )\*{0,2}[a-zA-Z_][\w.]*)*) {2,}(\S.*)")
CODE: Final = re.compile(r"`([^`]+)`")
MARKUP: Final = re.compile(r"([\\*|`]|_(?=\W|$))")
ITEM: Final = re.compile(r"(- |\d+\. )(.*)")


def as_rest(lines: list[str]) -> list[str]:
    """The docstring, its indentation taken away, as lines of reStructuredText."""
    made = list[str]()
    for block in _blocks(lines):
        made += [*_block(block), ""]
    return made[:-1]


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """What blank lines part. A block of code goes on behind a blank line where the next line is code too."""
    block = list[str]()
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []


def _block(block: list[str]) -> list[str]:
    if all(line.startswith("    ") for line in block):
        return ["::", "", *block]
    if PARAMETER.fullmatch(block[0]):
        return list(_parameters(block))
    if ITEM.match(block[0]):
        return list(_items(block))
    for number, line in enumerate(block):
        if number and (PARAMETER.fullmatch(line) or ITEM.match(line)):
            return [*_block(block[:number]), "", *_block(block[number:])]
    return [_text(line.strip()) for line in block]


def _parameters(block: list[str]) -> Iterator[str]:
    """A list of definitions: names at the left, and what they mean below each other at their right."""
    for line in block:
        found = PARAMETER.fullmatch(line)
        if found:
            yield ", ".join(f"``{name}``" for name in re.split(r", and | and |, ", found[1]))
            yield f"    {_text(found[2])}"
        else:
            yield f"    {_text(line.strip())}"


def _items(block: list[str]) -> Iterator[str]:
    for line in block:
        found = ITEM.match(line)
        yield f"{found[1]}{_text(found[2])}" if found else f"  {_text(line.strip())}"


def _text(line: str) -> str:
    """A line of words: what is in backticks is code, and nothing else is markup."""
    parts, at = [], 0
    for code in CODE.finditer(line):
        parts += [MARKUP.sub(r"\\\1", line[at : code.start()]), f"``{code[1]}``"]
        after = line[code.end() : code.end() + 1]
        if after.isalnum():
            parts.append("\\ ")
        at = code.end()
    parts.append(MARKUP.sub(r"\\\1", line[at:]))
    return "".join(parts)
