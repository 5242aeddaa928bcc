"""The parts of a condition as functions of a message, made from the functions of their own parts.

Truth has three values, as in SQL: AND is false if any part is, OR true if any is, and else unknown where a part is; NOT
leaves the unknown as it is. A part that is no truth counts as unknown. Chains of any length are loops, so that only
parentheses nest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from harebell.routing.selectors.identifiers import Facts
from harebell.routing.selectors.like import Like
from harebell.routing.selectors.values import Comparison, Number, Operation, Truth, Value, bounded, is_number

__all__ = [
    "Part",
    "all_of",
    "any_of",
    "between",
    "calculated",
    "compared",
    "constant",
    "is_like",
    "is_null",
    "negated",
    "negative",
    "one_of",
    "positive",
]

Part: TypeAlias = "Callable[[Facts], Value]"


def constant(value: Value) -> Part:
    return lambda facts: value


def any_of(parts: Sequence[Part]) -> Part:
    def truth(facts: Facts) -> Truth:
        known = True
        for part in parts:
            value = part(facts)
            if value is True:
                return True
            if value is not False:
                known = False
        return False if known else None

    return truth


def all_of(parts: Sequence[Part]) -> Part:
    def truth(facts: Facts) -> Truth:
        known = True
        for part in parts:
            value = part(facts)
            if value is False:
                return False
            if value is not True:
                known = False
        return True if known else None

    return truth


def negated(part: Part) -> Part:
    def truth(facts: Facts) -> Truth:
        value = part(facts)
        return not value if isinstance(value, bool) else None

    return truth


def compared(one: Part, compare: Comparison, other: Part) -> Part:
    def truth(facts: Facts) -> Truth:
        left = one(facts)
        if left is None:
            return None
        right = other(facts)
        return None if right is None else compare(left, right)

    return truth


def between(part: Part, low: Part, high: Part, at_least: Comparison, at_most: Comparison) -> Part:
    """As `part >= low AND part <= high`."""

    def truth(facts: Facts) -> Truth:
        value = part(facts)
        if value is None:
            return None
        least, most = low(facts), high(facts)
        if (least is not None and not at_least(value, least)) or (most is not None and not at_most(value, most)):
            return False
        return None if least is None or most is None else True

    return truth


def one_of(part: Part, others: Sequence[Part], equal: Comparison) -> Part:
    """As `part = one OR part = another OR ...`."""

    def truth(facts: Facts) -> Truth:
        value = part(facts)
        if value is None:
            return None
        known = True
        for other in others:
            candidate = other(facts)
            if candidate is None:
                known = False
            elif equal(value, candidate):
                return True
        return False if known else None

    return truth


def is_null(part: Part) -> Part:
    return lambda facts: part(facts) is None


def is_like(part: Part, matches: Like) -> Part:
    def truth(facts: Facts) -> Truth:
        value = part(facts)
        return matches(value) if isinstance(value, str) else None

    return truth


def calculated(first: Part, steps: Sequence[tuple[Operation, Part]]) -> Part:
    """The result of operations from left to right."""

    def number(facts: Facts) -> Value:
        total: Value = first(facts)
        for operation, part in steps:
            if not is_number(total):
                return None
            value = part(facts)
            if not is_number(value):
                return None
            total = operation(total, value)  # type: ignore[arg-type]
        return total

    return number


def positive(part: Part) -> Part:
    def number(facts: Facts) -> Value:
        value = part(facts)
        return value if is_number(value) else None

    return number


def negative(part: Part) -> Part:
    def number(facts: Facts) -> Number | None:
        value = part(facts)
        if type(value) is int:
            return bounded(-value)
        return -value if type(value) is float else None

    return number
