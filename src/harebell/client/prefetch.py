"""What `prefetch` may be: a whole number that basic.qos can carry. 0 is no limit."""

from __future__ import annotations

from numbers import Integral
from typing import Final

from harebell import errors

__all__ = ["MAX_PREFETCH", "check_prefetch"]

MAX_PREFETCH: Final = 65535  # of basic.qos, which has a short for it


def check_prefetch(given: object, what: str = "prefetch", *, least: int = 0) -> int:
    """The number itself. InvalidArgument for what is none: text, a float, True, one that is too large.

    least  1 where a limit is needed
    """
    number = int(given) if isinstance(given, Integral) and not isinstance(given, bool) else -1
    if not least <= number <= MAX_PREFETCH:
        limit = "0 is no limit" if least == 0 else "a limit is needed here"
        raise errors.InvalidArgument(
            f"{what} is {given!r}: a whole number from {least} to {MAX_PREFETCH} is needed; {limit}"
        )
    return number
