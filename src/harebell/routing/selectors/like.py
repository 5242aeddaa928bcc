"""The patterns of LIKE: `%` stands for any text, `_` for any character, and ESCAPE's character takes the next as it is.

A pattern is cut at its `%` into pieces. The first and the last piece stand at the ends of a text, and each of the
others is looked for behind the one before it, at its first place: so a match never goes back, however many `%` there
are. A piece without `_` is found in linear time. One with `_` takes as many steps as text and piece are long,
multiplied, which is why both are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["MAX_SEARCHED", "MAX_TEXT", "BadPattern", "Like", "like"]

MAX_SEARCHED: Final = 256
"""Characters of the pieces with `_` that stand between two `%`, in one selector."""
MAX_TEXT: Final = 8192
"""Characters of a text in which such a piece is looked for; of a longer one, it is unknown whether it matches."""

Like: TypeAlias = "Callable[[str], bool | None]"
"""Whether a text matches; None: it is too long to say."""
_Piece: TypeAlias = "list[str | None]"  # characters; None: any one


class BadPattern(Exception):
    """A pattern that ends with its escape character."""


def like(pattern: str, escape: str | None) -> tuple[Like, int]:
    """The match of a pattern, and how many characters of it have to be searched for in a limited text."""
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        return _whole(pieces[0]), 0
    first, *middle, last = pieces
    searched = sum(len(piece) for piece in middle if None in piece)
    return _parts(first, [piece for piece in middle if piece], last, limited=searched > 0), searched


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    pieces: list[_Piece] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise BadPattern
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return pieces


def _whole(piece: _Piece) -> Like:
    """The match of a pattern without `%`."""
    if None not in piece:
        literal = "".join(map(str, piece))
        return lambda text: text == literal
    compiled = _expression(piece)
    return lambda text: compiled.fullmatch(text) is not None


def _parts(first: _Piece, middle: list[_Piece], last: _Piece, *, limited: bool) -> Like:
    start, end = _expression(first), _expression(last)
    finds = [(_find(piece), len(piece)) for piece in middle]
    ends = len(first) + len(last)

    def matches(text: str) -> bool | None:
        stop = len(text) - len(last)
        if len(text) < ends or start.match(text) is None or end.match(text, stop) is None:
            return False
        if limited and len(text) > MAX_TEXT:
            return None
        at = len(first)
        for find, length in finds:
            at = find(text, at, stop)
            if at < 0:
                return False
            at += length
        return True

    return matches


def _find(piece: _Piece) -> Callable[[str, int, int], int]:
    if None not in piece:
        literal = "".join(map(str, piece))
        return lambda text, at, stop: text.find(literal, at, stop)
    compiled = _expression(piece)

    def find(text: str, at: int, stop: int) -> int:
        match = compiled.search(text, at, stop)
        return -1 if match is None else match.start()

    return find


def _expression(piece: _Piece) -> re.Pattern[str]:
    """What matches a piece, character by character: there is nothing in it to try in two ways."""
    return re.compile("".join("." if each is None else re.escape(each) for each in piece), re.DOTALL)
