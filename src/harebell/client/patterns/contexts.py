"""Running a program's functions in a context of variables of their own, inside of a task that runs many of them.

A worker processes many messages in one task, and a task has one context: a variable that the handler of one message has
set would be seen by the handlers after it. A task for each message would cost more than most handlers do. So the worker
makes a context for each message, and its task runs the steps of the message's coroutines in there.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["awaited_in", "steps", "within"]

T = TypeVar("T")


@types.coroutine
def within(context: Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """What the coroutine gives. Whatever it runs, it runs in the context."""
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    return (yield from steps(context, coroutine, waits_for))


@types.coroutine
def steps(context: Context, coroutine: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """As `within`, of a coroutine whose first step was run there, and waits for this."""
    run, send = context.run, coroutine.send
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:  # a cancellation: the coroutine is to see it
                waits_for = run(coroutine.throw, error)
            else:
                waits_for = run(send, sent)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def awaited_in(context: Context, given: Awaitable[T]) -> T:
    """What the awaitable gives, which need not be a coroutine. Whatever it runs, it runs in the context."""
    return await within(context, _awaited(given))


async def _awaited(given: Awaitable[T]) -> T:
    return await given
