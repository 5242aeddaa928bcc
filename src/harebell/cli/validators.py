"""What the numbers of options may be: validators for cyclopts, which prints their ValueError as one line.

Rules: every number is `plausible`, also where an option names no validator (`harebell.cli.main` sees to that): finite,
and an integer of 64 bits. What waits for seconds takes `Seconds`, and what counts things takes `Number`.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, Final

__all__ = ["MAX_SECONDS", "Number", "Seconds", "plausible"]

MAX_SECONDS: Final = 1_000_000.0  # poll(2) has 2**31 milliseconds, 24 days
MAX_COUNT: Final = 2**31 - 1  # an integer of Java, for Spark
_MAX: Final = 2**63 - 1


def plausible(kind: object, value: object) -> None:
    """Refuse what no machine has: nan, infinity, integers of more than 64 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is not a finite number")
    if isinstance(value, int) and not -_MAX <= value <= _MAX:
        raise ValueError("it is too large a number")
    if is_dataclass(value):  # options that several commands share
        for each in fields(value):
            try:
                plausible(kind, getattr(value, each.name))
            except ValueError as error:
                raise ValueError(f"--{each.name.replace('_', '-')}: {error}") from None


class Number:
    """A number from `gte` on, or above `gt`; up to `lte`, by default a large count for an integer."""

    def __init__(self, *, gte: float | None = None, gt: float | None = None, lte: float | None = None) -> None:
        self._gte, self._gt, self._lte = gte, gt, lte

    def __call__(self, kind: object, value: Any) -> None:
        if not isinstance(value, int | float):
            return
        plausible(kind, value)
        most = MAX_COUNT if self._lte is None and isinstance(value, int) else self._lte
        if self._gte is not None and value < self._gte:
            raise ValueError(f"It must be at least {self._gte:g}")
        if self._gt is not None and value <= self._gt:
            raise ValueError(f"It must be more than {self._gt:g}")
        if most is not None and value > most:
            raise ValueError(f"It must be at most {most}")


class Seconds:
    """A number of seconds to wait, from `least` on."""

    def __init__(self, least: float = 0.001) -> None:
        self._least = least

    def __call__(self, kind: object, value: Any) -> None:
        if isinstance(value, int | float) and not self._least <= value <= MAX_SECONDS:
            raise ValueError(f"It must be a number of seconds from {self._least:g} to {MAX_SECONDS:.0f}")
