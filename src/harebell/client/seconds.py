"""What `timeout` may be: a number of seconds. `math.inf` is for ever; one below 0 has passed already."""

from __future__ import annotations

from harebell import errors

__all__ = ["check_seconds", "seconds_of"]


def check_seconds(seconds: float, what: str = "timeout") -> float:
    """The same. InvalidArgument for what is no number of seconds, NaN and negative ones among it."""
    try:
        if seconds >= 0:
            return seconds
    except TypeError:
        pass  # text, and whatever else is no number
    raise errors.InvalidArgument(f"{what} is {seconds!r}: a number of seconds is needed, 0 or more; math.inf: for ever")


def seconds_of(timeout: float | None, default: float) -> float:
    """The seconds that a call has: its timeout, or the default when that is left out; 0 when the time is over already.

    Programs give what is left until a deadline. InvalidArgument for what is no number.
    """
    if timeout is None:
        return default
    return 0.0 if isinstance(timeout, int | float) and timeout < 0 else check_seconds(timeout)
