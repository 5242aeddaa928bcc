"""Calls of a program's own functions on threads and loops that are not the program's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

__all__ = ["call_contained", "result_contained"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def call_contained(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """What the function returns. What it raises is an Exception that a future can hold; anything else: RuntimeError.

    SystemExit would end the loop that hears of it, and StopIteration would leave the caller waiting for ever.
    """
    try:
        return function(*args)
    except StopIteration as error:
        raise _contained(function, error) from error
    except Exception:
        raise
    except BaseException as error:
        raise _contained(function, error) from error


async def result_contained(given: Awaitable[T]) -> T:
    """What the awaitable gives. SystemExit, which would end the loop, and KeyboardInterrupt are a RuntimeError."""
    try:
        return await given
    except (SystemExit, KeyboardInterrupt) as error:
        raise _contained(given, error) from error


def _contained(function: object, error: BaseException) -> RuntimeError:
    return RuntimeError(f"{getattr(function, '__qualname__', None) or repr(function)} raised {error!r}")
