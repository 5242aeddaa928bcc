"""Option values as Spark hands them over, texts under lower-cased names, checked and turned into Python values.

Each function raises InvalidArgument, whose text names the option as users write it and says what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final, TypeVar

from harebell.errors import InvalidArgument

__all__ = ["choice", "first_patience", "flag", "number", "number_if_given", "suggested"]

N = TypeVar("N", int, float)

FIRST_PATIENCE: Final = 2.5
_NEAR: Final = 0.7  # of difflib's likeness: "prefech" is "prefetch", "offsets" is not "startingOffsets"


def suggested(word: str, known: Mapping[str, str]) -> str:
    """A question after the one of the known words that a wrong one may mean, in brackets; "" where none is near."""
    near = get_close_matches(word, known, 1, _NEAR)
    return f" (is it '{known[near[0]]}'?)" if near else ""


def choice(given: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed values."""
    value = given.get(name.lower(), default).strip().lower()
    if value not in allowed:
        near = suggested(value, dict(zip(allowed, allowed, strict=True)))
        raise InvalidArgument(f"option '{name}' is {value!r}{near}; it takes one of: {', '.join(allowed)}")
    return value


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """True or false."""
    return choice(given, name, str(default).lower(), ("true", "false")) == "true"


def number(
    given: Mapping[str, str],
    name: str,
    kind: Callable[[str], N],
    least: N,
    default: N | None = None,
    most: N | None = None,
) -> N:
    """A number from `least` to `most`; one without a default must be there."""
    text = given.get(name.lower())
    if text is None:
        assert default is not None
        return default
    value: N | None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < math.inf or (most is not None and value > most):
        limit = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidArgument(f"option '{name}' is {text!r}; it takes a number, {limit}")
    return value


def first_patience(given: Mapping[str, str]) -> float:
    """Seconds for a broker that does not answer when a read or write begins: a wrong address is to be said soon.

    `retryTimeout`, where it is given, holds then too.
    """
    return number(given, "retryTimeout", float, 0, FIRST_PATIENCE)


def number_if_given(given: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1; None where the option was not given."""
    return number(given, name, int, 1) if name.lower() in given else None
