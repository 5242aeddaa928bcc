"""What `timeout` may be: a number of seconds, 0 or more. `math.inf` is for ever."""

from __future__ import annotations

from harebell import errors

__all__ = ["check_seconds", "seconds_of"]


def check_seconds(seconds: float, what: str = "timeout") -> float:
    """The same. InvalidArgument for what is no number of seconds, NaN among it; `math.inf` is for ever."""
    try:
        if seconds >= 0:
            return seconds
    except TypeError:
        pass  # text, and whatever else is no number
    raise errors.InvalidArgument(f"{what} is {seconds!r}: a number of seconds is needed, 0 or more; math.inf: for ever")


def seconds_of(timeout: float | None, default: float) -> float:
    """The seconds that a call has: its timeout, or the default when that is left out. InvalidArgument."""
    return default if timeout is None else check_seconds(timeout)
