"""Docstrings as reStructuredText: ours are plain text, with aligned columns of parameters and indented code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["as_rest"]

PARAMETER: Final = re.compile(r"(\*{0,2}[a-zA-Z_][\w.]*(?:(?:, | and |, and )\*{0,2}[a-zA-Z_][\w.]*)*) {2,}(\S.*)")
CODE: Final = re.compile(r"`([^`]+)`")
NAME: Final = re.compile(r"([a-zA-Z_][\w.]*)(?:\(\))?")
"""Code that may name a class, a function or an attribute."""
WORD: Final = re.compile(r"(?<![\w.:\"'])[A-Z]\w+(?![\w(]|\.\w)")
MARKUP: Final = re.compile(r"([\\*|`]|_(?=\W|$))")
ITEM: Final = re.compile(r"(- |\d+\. )(.*)")


def as_rest(lines: list[str], linked: Mapping[str, str] | None = None) -> list[str]:
    """The docstring, its indentation taken away, as lines of reStructuredText.

    Names in backticks become links where sphinx knows them in the class or the module of the docstring.

    linked  names that are links wherever they are, in backticks or not, each with its whole address
    """
    made = list[str]()
    for block in _blocks(lines):
        made += [*_block(block, linked or {}), ""]
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


def _block(block: list[str], linked: Mapping[str, str]) -> list[str]:
    if all(line.startswith("    ") for line in block):
        return ["::", "", *block]
    if PARAMETER.fullmatch(block[0]):
        return list(_parameters(block, linked))
    if ITEM.match(block[0]):
        return list(_items(block, linked))
    for number, line in enumerate(block):
        if number and (PARAMETER.fullmatch(line) or ITEM.match(line)):
            return [*_block(block[:number], linked), "", *_block(block[number:], linked)]
    return [_text(line.strip(), linked) for line in block]


def _parameters(block: list[str], linked: Mapping[str, str]) -> Iterator[str]:
    """A list of definitions: names at the left, and what they mean below each other at their right."""
    for line in block:
        found = PARAMETER.fullmatch(line)
        if found:
            yield ", ".join(f"``{name}``" for name in re.split(r", and | and |, ", found[1]))
            yield f"    {_text(found[2], linked)}"
        else:
            yield f"    {_text(line.strip(), linked)}"


def _items(block: list[str], linked: Mapping[str, str]) -> Iterator[str]:
    for line in block:
        found = ITEM.match(line)
        yield f"{found[1]}{_text(found[2], linked)}" if found else f"  {_text(line.strip(), linked)}"


def _text(line: str, linked: Mapping[str, str]) -> str:
    """A line of words: what is in backticks is code, and nothing else is markup."""
    parts, at = [], 0
    for code in CODE.finditer(line):
        parts += [_words(line[at : code.start()], linked), _code(code[1], linked)]
        after = line[code.end() : code.end() + 1]
        if after.isalnum():
            parts.append("\\ ")
        at = code.end()
    parts.append(_words(line[at:], linked))
    return "".join(parts)


def _code(text: str, linked: Mapping[str, str]) -> str:
    named = NAME.fullmatch(text)
    if named is None:
        return f"``{text}``"
    return f":py:obj:`{text} <{linked.get(named[1], named[1])}>`"


def _words(text: str, linked: Mapping[str, str]) -> str:
    parts, at = [], 0
    for word in WORD.finditer(text):
        if word[0] in linked:
            parts += [MARKUP.sub(r"\\\1", text[at : word.start()]), f":py:obj:`{word[0]} <{linked[word[0]]}>`"]
            at = word.end()
    return "".join([*parts, MARKUP.sub(r"\\\1", text[at:])])
