"""The language of the patterns of policies, permissions and topic permissions, and its reader.

It is the part of PCRE that can be searched without backtracking:

    a  \\.  \\n \\t \\xHH \\x{H}    a character; what is neither letter nor digit may be escaped
    .  \\d \\D \\w \\W \\s \\S        one of many
    [a-z_]  [^...]  [[:alpha:]]  a class
    x*  x+  x?  x{2}  x{2,}  x{2,5}, and the same with ? behind
    xy  x|y  (x)  (?:x)  (?<name>x)  (?i)x  (?i:x)  (?s:x)
    ^  \\A  $  \\z  \\Z  \\b        the start, the end, the edge of a word
    ^(?!x)y                      what y matches, unless the name begins with x: only at the start of the pattern

Rules:

- Classes and cases are those of ASCII, as on RabbitMQ. `$` and `\\Z` are the end, also behind a line feed.
- A pattern is written anew, with nothing in it that engines understand differently: so all give the same verdict.
- The reader counts what a search may cost (`Reading.steps`). It knows no engine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, inf
from typing import Final, NamedTuple, NoReturn

from harebell.errors import InvalidArgument

__all__ = ["MAX_NAME", "BadPattern", "Reading", "literal", "read_pattern"]

MAX_LENGTH: Final = 4096  # characters: the names of some hundred queues, one beside the other
MAX_DEPTH: Final = 30  # groups in groups: far below Python's limit of recursion
MAX_REPEAT: Final = 1000  # RE2's
MAX_SIZE: Final = 5000  # characters and ranges, with all repeats written out: what an engine has to search
MAX_NAME: Final = 255  # characters of what is searched: a shortstr


class BadPattern(InvalidArgument):
    """A pattern that is malformed, too large, or beyond the language: what is wrong, and at which character, from 0."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(f"{problem} at character {at}")
        self.problem = problem
        self.at = at


@dataclass(frozen=True, slots=True)
class Reading:
    """A pattern as it was read: the name must have `wanted`, and must not have `unwanted` unless that is None.

    `steps`: the characters that a backtracking engine may have to compare for one name, at most.
    """

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] | None
    steps: float

    def written(self, end: str) -> tuple[str, str | None]:
        """`wanted` and `unwanted` for an engine that spells the end of the text like `end`."""
        return _joined(self.wanted, end), None if self.unwanted is None else _joined(self.unwanted, end)


def _joined(parts: Sequence[str], end: str) -> str:
    return "".join(end if part == _END else part for part in parts)


def literal(text: str) -> str:
    """A pattern for just this text."""
    return "".join(each if each.isalnum() or not each.isascii() else f"\\{each}" for each in text)


def read_pattern(pattern: str) -> Reading:
    """Read a pattern. Raises BadPattern, in PCRE's words where it has some."""
    if len(pattern) > MAX_LENGTH:
        raise BadPattern(f"more than {MAX_LENGTH} characters", MAX_LENGTH)
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        raise BadPattern("no UTF-8", error.start) from None
    return _Reader(pattern).read()


# Characters

_Ranges = list[tuple[int, int]]

_END: Final = "$"  # no other part is written so
_LAST: Final = 0x10FFFF
_DIGITS: Final = ((0x30, 0x39),)
_UPPER: Final = ((0x41, 0x5A),)
_LOWER: Final = ((0x61, 0x7A),)
_WORD: Final = (*_DIGITS, *_UPPER, (0x5F, 0x5F), *_LOWER)
_SPACE: Final = ((0x09, 0x0D), (0x20, 0x20))
_SHORT: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": 0x07, "t": 0x09, "n": 0x0A, "f": 0x0C, "r": 0x0D, "e": 0x1B}
_POSIX: Final = {
    "alnum": (*_DIGITS, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": _SPACE,
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": (*_DIGITS, (0x41, 0x46), (0x61, 0x66)),
}


def _other_case(ranges: Sequence[tuple[int, int]]) -> _Ranges:
    """The ASCII letters of these ranges in the other case."""
    found: _Ranges = []
    for (first, last), shift in ((_UPPER[0], 0x20), (_LOWER[0], -0x20)):
        found += [(max(a, first) + shift, min(b, last) + shift) for a, b in ranges if a <= last and b >= first]
    return found


def _all_but(ranges: Sequence[tuple[int, int]]) -> _Ranges:
    found, free = _Ranges(), 0
    for first, last in sorted(ranges):
        if first > free:
            found.append((free, first - 1))
        free = max(free, last + 1)
    return [*found, (free, _LAST)] if free <= _LAST else found


def _class(ranges: Sequence[tuple[int, int]], *, negated: bool = False) -> str:
    inside = "".join(_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in sorted(ranges))
    return f"[{'^' if negated else ''}{inside}]"


def _char(code: int) -> str:
    character = chr(code)
    return character if code > 0x7F or character.isalnum() else f"\\x{code:02x}"


def _size(ranges: Sequence[tuple[int, int]]) -> int:
    """What an engine that searches bytes makes of the ranges, about."""
    return sum(1 if last < 0x80 else 4 for _, last in ranges)


# Reading

_QUANTIFIER: Final = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_FLAGS: Final = re.compile(r"\(\?([is]*)(?:-([is]+))?([:)])")
_OPENING: Final = re.compile(r"\((?:\?P?<[A-Za-z_]\w*>|(?!\?))", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\}")
_POSIX_NAME: Final = re.compile(r"\[:(\^?)([a-z]+):\]")


class _Cost(NamedTuple):
    """A part's size with its repeats written out, its endless repeats, and the other ways to match at one place."""

    size: int
    repeats: int = 0
    ways: float = 1

    def then(self, other: _Cost) -> _Cost:
        return _Cost(self.size + other.size, self.repeats + other.repeats, self.ways * other.ways)

    def beside(self, other: _Cost) -> _Cost:
        return _Cost(self.size + other.size, max(self.repeats, other.repeats), self.ways + other.ways)

    def repeated(self, least: int, most: int | None, *, single: bool, last: bool) -> _Cost:
        """The cost of a repeat; `single`: of one character, `last`: nothing follows, so that no way is tried twice."""
        size = self.size * max(least, most or 1, 1)
        if single:
            if last or least == most:
                return _Cost(size)
            return _Cost(size, 1) if most is None else _Cost(size, 0, min(most - least, MAX_NAME) + 1)
        if (least, most) == (0, 1):
            return _Cost(size, self.repeats, self.ways + 1)
        alone = least == most and not self.repeats and self.ways == 1
        return _Cost(size, 0, 1 if alone else inf)

    def steps(self) -> float:
        """The ways to divide a name among the repeats, times the other ways, times the characters of one way."""
        ways = self.ways * comb(MAX_NAME + 1 + self.repeats, self.repeats)
        return ways * min(max(self.size, 1), MAX_NAME)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._written: list[str] = []
        self._any_case = self._dot_is_all = False
        self._branches = 0  # outside of groups

    def read(self) -> Reading:
        while (flags := _FLAGS.match(self._text, self._at)) and flags[3] == ")":
            self._set_flags(flags)
        unwanted, excluded_steps = None, 0.0
        anchored = self._text.startswith(("^", r"\A"), self._at)
        exclusion = self._at if self._text.startswith("^(?!", self._at) else None
        if exclusion is not None:
            self._at += 4
            self._written = ["^(?:"]
            excluded_steps = self._group_body(1).steps()
            unwanted, self._written = (*self._written, ")"), ["^"]
        cost = self._alternatives(0)
        if self._at < len(self._text):
            self._refuse("unmatched parentheses")
        if exclusion is not None and self._branches > 1:
            self._refuse("(?!...) excludes nothing from the branches behind |: write ^(?!x)(?:y|z)", exclusion + 1)
        start = _Cost(0, not anchored or self._branches > 1)  # where the match begins is a choice like a repeat
        return Reading(tuple(self._written), unwanted, excluded_steps + start.then(cost).steps())

    def _refuse(self, problem: str, at: int | None = None) -> NoReturn:
        raise BadPattern(problem, self._at if at is None else at)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    # -- structure

    def _alternatives(self, depth: int) -> _Cost:
        flags = self._any_case, self._dot_is_all
        cost = self._sequence(depth)
        branches = 1
        while self._next() == "|":
            self._at += 1
            self._written.append("|")
            cost = cost.beside(self._sequence(depth))
            branches += 1
        self._any_case, self._dot_is_all = flags
        if depth == 0:
            self._branches = branches
        return cost

    def _sequence(self, depth: int) -> _Cost:
        cost = _Cost(0)
        while self._next() not in ("", "|", ")"):
            cost = cost.then(self._repeat(depth))
            if cost.size > MAX_SIZE:
                self._refuse(f"more than {MAX_SIZE} characters with the repeats written out")
        return cost

    def _repeat(self, depth: int) -> _Cost:
        first = self._at
        before = len(self._written)
        cost = self._piece(depth)
        single = self._text[first] != "("
        start = self._at
        if (bounds := self._bounds()) is None:
            return cost
        if cost.size == 0 and (single or len(self._written) == before):
            self._refuse("nothing to repeat", start)
        least, most = bounds
        quantifier = f"{{{least},{'' if most is None else most}}}"
        if self._next() == "?":
            self._at += 1
            quantifier += "?"
        elif self._next() == "+":
            self._refuse("possessive quantifiers are not supported")
        else:
            again = self._at
            if self._bounds() is not None:
                self._refuse("nothing to repeat", again)
        self._written.append(quantifier)
        last = depth == 0 and self._next() in ("", "|")
        return cost.repeated(least, most, single=single, last=last)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The least and the most of the quantifier that comes next, or None."""
        match self._next():
            case "*":
                self._at += 1
                return 0, None
            case "+":
                self._at += 1
                return 1, None
            case "?":
                self._at += 1
                return 0, 1
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > MAX_REPEAT:
            self._refuse(f"number too big in {{}} quantifier, the most is {MAX_REPEAT},")
        if most is not None and most < least:
            self._refuse("numbers out of order in {} quantifier")
        self._at = found.end()
        return least, most

    def _piece(self, depth: int) -> _Cost:
        """A character, a class, a group, or a place."""
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return self._brackets()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._refuse("nothing to repeat")
            case "{" if _QUANTIFIER.match(self._text, self._at):
                self._refuse("nothing to repeat")
        self._at += 1
        match character:
            case "^":
                return self._place("^")
            case "$":
                return self._place(_END)
            case ".":
                return self._one_of([(0, _LAST)] if self._dot_is_all else [(0, 0x09), (0x0B, _LAST)])
        return self._one(ord(character))

    def _group(self, depth: int) -> _Cost:
        start = self._at
        if depth >= MAX_DEPTH:
            self._refuse(f"more than {MAX_DEPTH} groups in one another")
        before = self._any_case, self._dot_is_all
        flags = _FLAGS.match(self._text, start)
        if flags is not None:
            self._set_flags(flags)
            if flags[3] == ")":
                return _Cost(0)
        else:
            opening = _OPENING.match(self._text, start)
            if opening is None:
                self._refuse(f"{self._text[start : start + 4]} is not supported (look-around only as ^(?!...))", start)
            self._at = opening.end()
        self._written.append("(?:")
        cost = self._group_body(depth + 1)
        self._written.append(")")
        self._any_case, self._dot_is_all = before
        return cost

    def _group_body(self, depth: int) -> _Cost:
        cost = self._alternatives(depth)
        if self._next() != ")":
            self._refuse("missing )", len(self._text))
        self._at += 1
        return cost

    def _set_flags(self, flags: re.Match[str]) -> None:
        for letters, on in ((flags[1], True), (flags[2] or "", False)):
            if "i" in letters:
                self._any_case = on
            if "s" in letters:
                self._dot_is_all = on
        self._at = flags.end()

    # -- characters

    def _place(self, written: str) -> _Cost:
        self._written.append(written)
        return _Cost(0)

    def _one(self, code: int) -> _Cost:
        ranges = [(code, code)]
        if self._any_case and (other := _other_case(ranges)):
            return self._one_of(ranges + other)
        self._written.append(_char(code))
        return _Cost(_size(ranges))

    def _one_of(self, ranges: Sequence[tuple[int, int]], *, negated: bool = False) -> _Cost:
        self._written.append(_class(ranges, negated=negated))
        return _Cost(_size(ranges))

    def _escape(self) -> _Cost:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("A", "Z", "z", "b"):
            self._at += 2
            return self._place({"A": "^", "b": r"\b"}.get(letter, _END))
        ranges = self._escaped()
        return self._one(ranges) if isinstance(ranges, int) else self._one_of(ranges)

    def _escaped(self) -> int | Sequence[tuple[int, int]]:
        """The character or the class that an escape means, in a class of brackets and outside."""
        start = self._at
        letter = self._text[start + 1 : start + 2]
        self._at += 2
        if not letter:
            self._refuse(r"\ at end of pattern", start)
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.lower() in _SHORT:
            return _SHORT[letter] if letter in _SHORT else _all_but(_SHORT[letter.lower()])
        if letter == "x" and (digits := _HEXADECIMAL.match(self._text, self._at)):
            self._at = digits.end()
            code = int(digits[0].strip("{}"), 16)
            if code > _LAST or 0xD800 <= code < 0xE000:
                self._refuse("no character", start)
            return code
        if letter.isalnum() and letter.isascii():
            self._refuse(f"\\{letter} is not supported", start)
        return ord(letter)

    def _brackets(self) -> _Cost:
        start = self._at
        self._at += 1
        negated = self._next() == "^"
        self._at += negated
        ranges: _Ranges = []
        first = self._at
        while self._next() != "]" or self._at == first:
            begin = self._at
            item = self._item(start)
            if (
                isinstance(item, int)
                and self._next() == "-"
                and self._text[self._at + 1 : self._at + 2] not in ("", "]")
            ):
                self._at += 1
                last = self._item(start)
                if not isinstance(last, int) or last < item:
                    self._refuse("range out of order in character class", begin)
                ranges.append((item, last))
            elif isinstance(item, int):
                ranges.append((item, item))
            else:
                ranges += item
        self._at += 1
        if self._any_case:
            ranges += _other_case(ranges)
        return self._one_of(ranges, negated=negated)

    def _item(self, start: int) -> int | Sequence[tuple[int, int]]:
        """One character or named class between brackets that opened at `start`."""
        character = self._next()
        if not character:
            self._refuse("missing terminating ] for character class", start)
        if character == "\\":
            if self._text[self._at + 1 : self._at + 2] == "b":
                self._at += 2
                return 0x08
            return self._escaped()
        if character == "[" and self._text[self._at + 1 : self._at + 2] in (":", ".", "="):
            return self._named_class()
        self._at += 1
        return ord(character)

    def _named_class(self) -> int | Sequence[tuple[int, int]]:
        named = _POSIX_NAME.match(self._text, self._at)
        if named is None:
            self._at += 1
            return ord("[")
        if named[2] not in _POSIX:
            self._refuse("unknown POSIX class name")
        self._at = named.end()
        ranges = _POSIX[named[2]]
        return _all_but(ranges) if named[1] else ranges
