"""Tasks that the tests enqueue."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from harebell.django.framework import base

task = base.task
order: list[Any] = []
begun, gate = threading.Event(), threading.Event()


@task  # type: ignore[untyped-decorator]
def add(one: int, two: int) -> int:
    return one + two


@task  # type: ignore[untyped-decorator]
async def double(text: str) -> str:
    return text * 2


@task(takes_context=True)  # type: ignore[untyped-decorator]
def fail(context: Any, times: int) -> str:
    """Fail in the first attempts."""
    if context.attempt <= times:
        raise ValueError(f"attempt {context.attempt}")
    return f"after {context.attempt}"


@task  # type: ignore[untyped-decorator]
def leave() -> None:
    raise SystemExit("a task")


@task  # type: ignore[untyped-decorator]
def exhaust() -> None:
    next(iter(()))


@task  # type: ignore[untyped-decorator]
async def await_cancelled() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


@task  # type: ignore[untyped-decorator]
def no_json() -> object:
    return object()


@task(takes_context=True)  # type: ignore[untyped-decorator]
def change(context: Any, items: list[Any], *, options: dict[str, Any]) -> list[Any]:
    """Change everything that can be reached in place, to what JSON cannot say; fail in the first attempt."""
    given = [[*items], [*options["list"]], context.attempt, len(context.task_result.errors)]
    options["list"].append(object())
    result = context.task_result
    for each in (items, result.args, result.kwargs["options"]["list"], result.errors):
        each.append(object())
    for mapping in (options, result.kwargs):
        mapping["more"] = object()
    result.worker_ids.append("nobody")
    if given[2] == 1:
        raise ValueError("the first attempt")
    return given


@task  # type: ignore[untyped-decorator]
async def change_in_coroutine(items: list[Any], options: dict[str, Any]) -> str:
    items.append(object())
    options["more"] = object()
    return "done"


@task  # type: ignore[untyped-decorator]
def note(what: Any) -> float:
    order.append(what)
    return time.time()


@task  # type: ignore[untyped-decorator]
def wait() -> bool:
    begun.set()
    return gate.wait(60)
