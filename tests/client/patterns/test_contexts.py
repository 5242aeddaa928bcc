"""Coroutines whose steps run in another context than their task's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context

import pytest

from harebell.client.patterns.contexts import awaited_in, within

SET: ContextVar[str] = ContextVar("SET", default="nothing")


async def waits_for_nothing() -> str:
    return SET.get()


async def waits() -> str:
    await asyncio.sleep(0)  # a bare yield
    await asyncio.sleep(0.001)  # a future
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        inherited = group.create_task(waits_for_nothing())
    assert inherited.result() == SET.get()
    return SET.get()


async def is_told_of_an_error() -> str:
    failing = asyncio.get_running_loop().create_future()
    failing.get_loop().call_soon(failing.set_exception, LookupError())
    try:
        await failing
    except LookupError:
        return SET.get()
    raise AssertionError


@pytest.mark.parametrize("function", [waits_for_nothing, waits, is_told_of_an_error])
async def test_every_step_runs_in_the_context(function: Callable[[], Awaitable[str]]) -> None:
    async def sets_and_tells() -> str:
        before = await function()
        SET.set("by the coroutine")
        return f"{before}, {await function()}"

    context = copy_context()
    context.run(SET.set, "inside")
    assert await within(context, sets_and_tells()) == "inside, by the coroutine"
    assert (SET.get(), context[SET]) == ("nothing", "by the coroutine")


async def test_any_awaitable() -> None:
    class Awaited:
        def __await__(self) -> Generator[object, None, str]:
            yield from asyncio.sleep(0).__await__()
            return SET.get()

    context = copy_context()
    context.run(SET.set, "inside")
    assert await awaited_in(context, Awaited()) == "inside"
    done = asyncio.get_running_loop().create_future()
    done.set_result("result")
    assert await awaited_in(context, done) == "result"


async def test_a_cancellation_is_seen_there_and_an_error_leaves_it() -> None:
    seen: list[str] = []

    async def hangs() -> None:
        SET.set("hangs")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(SET.get())

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    task = asyncio.create_task(within_of(hangs()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["hangs"]
    with pytest.raises(LookupError):
        await within(copy_context(), fails())


async def within_of(coroutine: Awaitable[None]) -> None:
    await awaited_in(Context(), coroutine)


def test_what_is_closed_in_the_midst_is_closed_there() -> None:
    seen: list[str] = []

    async def hangs() -> None:
        SET.set("hangs")
        try:
            await asyncio.sleep(0)
        finally:
            seen.append(SET.get())

    async def outer() -> None:
        await within(Context(), hangs())

    coroutine = outer()
    coroutine.send(None)
    coroutine.close()
    assert seen == ["hangs"]
