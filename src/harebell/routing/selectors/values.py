"""What the values of a selector do: types, comparisons, arithmetic.

A value is a truth, an exact number, an approximate one, a text, or None for what is not known (SQL's NULL and UNKNOWN).

Rules (JMS 2.0, section 3.8.1, with Qpid's C++ broker where that says nothing):

- With an unknown value, a comparison and a sum are unknown.
- Numbers of both kinds compare with each other, by their value. Values of other types are neither equal nor unequal,
  nor less, nor greater: the comparison is false.
- Texts and truths are equal or unequal; none is less than another.
- A sum of exact numbers is exact, and so is a quotient, which is cut off: 17/4 is 4. One beyond 64 bits becomes
  approximate (Java's would wrap around). With an approximate operand the result is approximate.
- A division of an exact number by an exact 0 is unknown; that of approximate ones is infinite, or no number.
- Arithmetic with what is no number is unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import copysign, inf, nan
from typing import Final, TypeAlias

__all__ = ["COMPARISONS", "MAX_EXACT", "OPERATIONS", "Comparison", "Number", "Operation", "Truth", "Value", "is_number"]

Number: TypeAlias = "int | float"
Value: TypeAlias = "bool | int | float | str | None"
Truth: TypeAlias = "bool | None"
Comparison: TypeAlias = "Callable[[Value, Value], bool]"
"""What two known values are to each other."""
Operation: TypeAlias = "Callable[[Number, Number], Number | None]"

MAX_EXACT: Final = 2**63 - 1

_KIND: Final = {bool: "truth", int: "number", float: "number", str: "text"}


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def _alike(one: Value, other: Value) -> bool:
    return type(one) is type(other) or (is_number(one) and is_number(other))


def _equal(one: Value, other: Value) -> bool:
    return one == other and _alike(one, other)


def _unequal(one: Value, other: Value) -> bool:
    return one != other and _alike(one, other)


def _ordered(compare: Callable[[Number, Number], bool]) -> Comparison:
    def ordered(one: Value, other: Value) -> bool:
        return is_number(one) and is_number(other) and compare(one, other)  # type: ignore[arg-type]

    return ordered


COMPARISONS: Final[dict[str, Comparison]] = {
    "=": _equal,
    "<>": _unequal,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}


def bounded(result: Number) -> Number:
    """The result of exact numbers, which is approximate when it has more than 64 bits."""
    return result if -MAX_EXACT - 1 <= result <= MAX_EXACT else float(result)


def _calculated(calculate: Callable[[Number, Number], Number]) -> Operation:
    def calculated(one: Number, other: Number) -> Number:
        result = calculate(one, other)
        return bounded(result) if type(result) is int else result

    return calculated


def _divide(one: Number, other: Number) -> Number | None:
    if isinstance(one, int) and isinstance(other, int):
        if not other:
            return None
        quotient = abs(one) // abs(other)
        return bounded(quotient if (one < 0) is (other < 0) else -quotient)
    if other:
        return one / other
    if not one or one != one:
        return nan
    return copysign(inf, one) * copysign(1.0, other)


OPERATIONS: Final[dict[str, Operation]] = {
    "+": _calculated(operator.add),
    "-": _calculated(operator.sub),
    "*": _calculated(operator.mul),
    "/": _divide,
}
