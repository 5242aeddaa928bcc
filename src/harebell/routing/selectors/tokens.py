"""The words of a selector: names, texts, numbers, key words and signs, each with its place.

    name     a letter, _ or $, then letters, digits, _, $ and dots; or any text in double quotes
    text     'in single quotes', with '' for a quote
    number   57, 0x1F and 0b11, also with L behind; 7., .5, 1e3 and 57.9E2, also with D or F behind
    key word AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE, in any case
    sign     = <> < <= > >= + - * / ( ) ,

Rules:

- The letters are those of Unicode, the digits those of ASCII.
- A number of more than one digit does not begin with 0: Java reads 010 as 8, and others as 10.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final, NamedTuple

from harebell.errors import InvalidArgument

__all__ = ["MAX_LENGTH", "BadSelector", "Token", "tokens_of"]

MAX_LENGTH: Final = 32_768
"""Characters of a selector: a program that lists some thousand alternatives has room."""

LONGEST: Final = 68  # characters of a number of 64 bits, in binary and with some zeros
SHOWN: Final = 24  # characters of the selector in an error text

NAME, TEXT, NUMBER, END = "a name", "a text", "a number", "the end"
KEY_WORDS: Final = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)  # fmt: skip


class BadSelector(InvalidArgument):
    """A selector that is malformed or too large: what is wrong, and at which character, from 0."""

    def __init__(self, problem: str, selector: str, at: int) -> None:
        rest = selector[at : at + SHOWN]
        more = "..." if len(selector) > at + SHOWN else ""
        super().__init__(f"{problem} at character {at}" + (f": {rest}{more}" if rest else ", the end of the selector"))
        self.problem = problem
        self.at = at


class Token(NamedTuple):
    """A word: its `kind` (NAME, TEXT, NUMBER, END, or a key word or sign as it is), what it says, and its place."""

    kind: str
    value: str | int | float
    at: int


_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$.]*")
_TEXT: Final = re.compile(r"'([^']*(?:''[^']*)*)'(?!')")
_QUOTED: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"(?!")')
_SIGN: Final = re.compile(r"<>|<=|>=|[=<>+\-*/(),]")
_EXACT: Final = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)[lL]?")
_APPROXIMATE: Final = re.compile(
    r"(?!0[xXbB])((?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eEdDfF]))(?:[eE][+-]?[0-9]+)?)[dDfF]?"
)
_JOINED: Final = re.compile(r"[\w$.]")  # what makes a number and what is behind it one word, which is none


def tokens_of(selector: str) -> list[Token]:
    """The words of a selector, END as the last one. Raises BadSelector."""
    if len(selector) > MAX_LENGTH:
        raise BadSelector(f"more than {MAX_LENGTH} characters", selector, MAX_LENGTH)
    try:
        selector.encode()
    except UnicodeEncodeError as error:
        raise BadSelector("no UTF-8", selector[: error.start], error.start) from None
    found, at = list[Token](), _end(_SPACE, selector, 0)
    while at < len(selector):
        token, at = _token(selector, at)
        found.append(token)
        at = _end(_SPACE, selector, at)
    found.append(Token(END, "", len(selector)))
    return found


def _end(pattern: re.Pattern[str], selector: str, at: int) -> int:
    match = pattern.match(selector, at)
    return at if match is None else match.end()


def _token(selector: str, at: int) -> tuple[Token, int]:
    if (match := _NAME.match(selector, at)) is not None:
        upper = match[0].upper()
        kind = upper if upper in KEY_WORDS else NAME
        return Token(kind, match[0], at), match.end()
    first = selector[at]
    if first in "'\"":
        match = (_TEXT if first == "'" else _QUOTED).match(selector, at)
        if match is None:
            raise BadSelector(f"a text in {first} has no end", selector, at)
        if first == '"' and not match[1]:
            raise BadSelector("a name is empty", selector, at)
        return Token(TEXT if first == "'" else NAME, match[1].replace(2 * first, first), at), match.end()
    if first in ".0123456789":
        return _number(selector, at)
    if (match := _SIGN.match(selector, at)) is not None:
        return Token(match[0], match[0], at), match.end()
    raise BadSelector("a character that means nothing here", selector, at)


def _number(selector: str, at: int) -> tuple[Token, int]:
    value: int | float
    if (match := _APPROXIMATE.match(selector, at)) is not None:
        value = float(match[1])
        if value == inf:
            raise BadSelector("a number beyond the range", selector, at)
    elif (match := _EXACT.match(selector, at)) is not None:
        if len(match[1]) > 1 and match[1][0] == "0" and match[1].isdecimal():
            raise BadSelector("a number begins with 0", selector, at)
        if len(match[1]) > LONGEST:
            raise BadSelector("a number of more than 64 bits", selector, at)
        value = int(match[1], 0)
    else:
        raise BadSelector("no number", selector, at)
    if _JOINED.match(selector, match.end()):
        raise BadSelector("no number", selector, at)
    return Token(NUMBER, value, at), match.end()
