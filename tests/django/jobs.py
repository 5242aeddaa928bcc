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


@task  # type: ignore[untyped-decorator]
def note(what: Any) -> float:
    order.append(what)
    return time.time()


@task  # type: ignore[untyped-decorator]
def wait() -> bool:
    begun.set()
    return gate.wait(60)
