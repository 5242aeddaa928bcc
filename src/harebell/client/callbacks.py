"""A program's own functions: checked where they are given, and called on threads that are not the program's."""

from __future__ import annotations

import asyncio
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, TypeVarTuple

from harebell import errors

__all__ = ["awaited", "call_contained", "check_callable", "check_methods", "check_plain", "result_contained"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def check_callable(what: str, function: object, *arguments: str) -> None:
    """InvalidArgument when the function cannot be called with these arguments, or calling it would run nothing.

    what       its role, for the text: "the handler"
    arguments  what it is called with, for the text: "delivery"
    """
    shown = f"{what} {getattr(function, '__qualname__', None) or repr(function)}"
    if not callable(function):
        raise errors.InvalidArgument(f"{shown} cannot be called: give a function of ({', '.join(arguments)})")
    bodies = (function, getattr(type(function), "__call__", None))  # noqa: B004  the method, and not whether it is there
    if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
        raise errors.InvalidArgument(f"{shown} is a generator: calling it runs nothing; leave out `yield`")
    try:
        signature = inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise errors.InvalidArgument(
            f"{shown}{signature} cannot be called with ({', '.join(arguments)}): {error}"
        ) from None


def check_plain(what: str, function: object, *arguments: str) -> None:
    """As `check_callable`, and InvalidArgument for a coroutine function: what it gives is not awaited."""
    check_callable(what, function, *arguments)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        shown = f"{what} {getattr(function, '__qualname__', None) or repr(function)}"
        raise errors.InvalidArgument(
            f"{shown} is a coroutine function, and is called as a plain one: leave out `async`"
        )


async def awaited(given: object) -> Any:
    """What a program's function gave; of a coroutine function, what that gives.

    RuntimeError when something that it awaited was cancelled: a CancelledError would end this task, which nobody has
    cancelled.
    """
    if not inspect.isawaitable(given):
        return given
    try:
        return await given
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(f"{getattr(given, '__qualname__', None) or repr(given)} was cancelled") from error


def check_methods(what: str, given: object, methods: Mapping[str, str], hint: str) -> None:
    """InvalidArgument for what lacks one of these plain methods, and for the class in place of an object of it.

    what     the argument, for the text: "codec"
    methods  what each is called with, by its name
    hint     what to give instead
    """
    shown = reprlib.repr(given)
    for name, argument in methods.items():
        method = getattr(given, name, None)
        if method is None:
            raise errors.InvalidArgument(f"{what} is {shown}, which has no {name}: {hint}")
        try:
            check_plain(f"the {what}'s {name}", method, argument)
        except errors.InvalidArgument as error:
            if not isinstance(given, type):
                raise
            raise errors.InvalidArgument(
                f"{what} is the class {given.__name__}: give an object of it, as {given.__name__}() ({error})"
            ) from None


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
