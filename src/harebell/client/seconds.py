"""What `timeout` may be: a number of seconds. `math.inf` is for ever.

A call may be given what is left until a deadline: below 0, that has passed already. A setting that is stored for later
calls has no such meaning.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from harebell import errors

__all__ = ["check_seconds", "seconds_of", "setting_of", "shown"]


def check_seconds(seconds: object, what: str = "timeout") -> float:
    """The number itself. InvalidArgument for what is no number of seconds, NaN and negative ones among it."""
    number = _number(seconds)
    if number is not None and number >= 0:
        return number
    raise errors.InvalidArgument(f"{what} is {seconds!r}: a number of seconds is needed, 0 or more; math.inf: for ever")


def seconds_of(timeout: float | None, default: float) -> float:
    """The seconds that a call has: its timeout, or the default when that is left out; 0 when the time is over already.

    Programs give what is left until a deadline. InvalidArgument for what is no number.
    """
    if timeout is None:
        return default
    number = _number(timeout)
    return 0.0 if number is not None and number < 0 else check_seconds(timeout)


def setting_of(timeout: float | None, default: float) -> float:
    """The seconds that each call has unless it says otherwise: the setting, or the default when that is left out.

    InvalidArgument for what is no number, and for one below 0: no call could keep it.
    """
    return default if timeout is None else check_seconds(timeout)


def shown(seconds: float) -> str:
    """The number for the text of an error: what is left of 1 second after some microseconds is 1."""
    return f"{round(seconds, 3):g}"


def _number(seconds: object) -> float | None:
    """The number that a clock can be asked for; None for what is none: text, Decimal, a timedelta, True."""
    if isinstance(seconds, float):
        return seconds
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        return None
    number: Any = seconds
    try:
        return float(number)
    except OverflowError:  # more digits than a float has
        return math.inf if number > 0 else -math.inf
