"""What arguments may be: validators for cyclopts, whose ValueError becomes one line (`harebell.cli.main`).

Rules: every argument is `plausible`, also where it names no validator (`harebell.cli.main` sees to that). A number is
finite, and an integer has 64 bits and no point. A text is in UTF-8, the form in which everything goes to a broker, and
it is not empty: in the path of a request an empty name means the list of all. What may be empty takes `maybe_empty`,
and a file, whose name may have any bytes, is a Path (`as_written`) or takes `file_name`. What waits for seconds takes
`Seconds`, and what counts things takes `Number`.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args, get_type_hints

if TYPE_CHECKING:
    from cyclopts import ArgumentCollection

__all__ = [
    "LIMIT",
    "MAX_SECONDS",
    "Number",
    "Seconds",
    "any_text",
    "as_written",
    "file_name",
    "in_utf8",
    "maybe_empty",
    "plausible",
]

MAX_SECONDS: Final = 1_000_000.0  # poll(2) has 2**31 milliseconds, 24 days
MAX_COUNT: Final = 2**31 - 1  # an integer of Java, for Spark
_MAX: Final = 2**63 - 1


def plausible(kind: object, value: object) -> None:
    """Refuse what no machine has (nan, infinity, integers of more than 64 bits), and texts that name nothing."""
    if isinstance(value, str):
        file_name(kind, value)
        maybe_empty(kind, value)
    if isinstance(value, tuple | list):
        for each in value:
            plausible(kind, each)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is not a finite number")
    if isinstance(value, int) and not -_MAX <= value <= _MAX:
        raise ValueError("it is too large a number")
    if is_dataclass(value):  # options that several commands share
        checked = _checked(type(value))
        for each in fields(value):
            if each.name in checked:
                continue
            try:
                plausible(kind, getattr(value, each.name))
            except ValueError as error:
                raise ValueError(f"--{each.name.replace('_', '-')}: {error}") from None


def _checked(kind: object) -> frozenset[str]:
    """The fields of options that name a validator, which cyclopts calls; it does not hand them the default one."""
    hints = get_type_hints(cast("type", kind), include_extras=True)
    return frozenset(
        name
        for name, hint in hints.items()
        if any(getattr(each, "validator", None) for each in getattr(hint, "__metadata__", ()))
    )


def maybe_empty(kind: object, value: object) -> None:
    """Refuse texts that have no UTF-8 form: argv may have any bytes."""
    for each in value if isinstance(value, tuple | list) else (value,):
        if isinstance(each, str) and not in_utf8(each):
            raise ValueError("It has no UTF-8 form")


def in_utf8(text: str) -> bool:
    """Whether the text has a UTF-8 form: bytes that have none are halves of surrogate pairs in argv and environment."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def file_name(kind: object, value: object) -> None:
    """Refuse an empty text; one that is not UTF-8 may be the name of a file."""
    if value == "":
        raise ValueError("It is empty")


def as_written(app: object, words: object, arguments: ArgumentCollection) -> None:
    """Refuse an empty text where a Path is taken, which would be the current folder, and a fraction where an integer
    is taken, which cyclopts would round. For `App.config` of cyclopts.
    """
    for each in arguments:
        kinds = {each.hint, *get_args(each.hint)}
        for token in each.tokens:
            problem = None
            if Path in kinds and token.value == "":
                problem = "It is empty"
            elif int in kinds and float not in kinds and "." in token.value:
                problem = "It must be a whole number"
            if problem is not None:
                from cyclopts import ValidationError  # the base install has no cyclopts

                raise ValidationError(argument=each, exception_message=problem, value=token.value)


def any_text(kind: object, value: object) -> None:
    """Refuse nothing: the command checks its texts itself."""


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


LIMIT: Final = Number(gte=-1, lte=_MAX)
"""A limit of a user or of a virtual host, where -1 is none."""


class Seconds:
    """A number of seconds to wait, from `least` on."""

    def __init__(self, least: float = 0.001) -> None:
        self._least = least

    def __call__(self, kind: object, value: Any) -> None:
        if isinstance(value, int | float) and not self._least <= value <= MAX_SECONDS:
            raise ValueError(f"It must be a number of seconds from {self._least:g} to {MAX_SECONDS:.0f}")
