"""Tasks that the tests enqueue."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, connections

from harebell.django.framework import base
from harebell.django.models import TaskRecord

task = base.task
order: list[Any] = []
begun, gate = threading.Event(), threading.Event()


@task  # type: ignore[untyped-decorator]
def add(one: int, two: int) -> int:
    return one + two


@task  # type: ignore[untyped-decorator]
async def double(text: str) -> str:
    return text * 2


SEEN: ContextVar[int] = ContextVar("SEEN", default=0)


def _count() -> int:
    SEEN.set(SEEN.get() + 1)
    return SEEN.get()


@task  # type: ignore[untyped-decorator]
def count_in_context() -> int:
    return _count()


@task  # type: ignore[untyped-decorator]
async def count_in_context_of_coroutine() -> int:
    return _count()


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


def _break_connection() -> None:
    connection.ensure_connection()
    connection.connection.close()


@task  # type: ignore[untyped-decorator]
def break_database() -> None:
    _break_connection()


@task  # type: ignore[untyped-decorator]
async def break_database_in_coroutine() -> None:
    await sync_to_async(_break_connection)()


@task  # type: ignore[untyped-decorator]
async def look_into_database(fails: bool) -> None:
    """Leave behind what the connection was."""
    await TaskRecord.objects.acount()
    order.append(await sync_to_async(connections.__getitem__)("default"))
    if fails:
        raise ValueError


@task  # type: ignore[untyped-decorator]
async def count_records() -> int:
    return int(await TaskRecord.objects.acount())


@task  # type: ignore[untyped-decorator]
def count_in_thread() -> int:
    return int(TaskRecord.objects.count())


@task  # type: ignore[untyped-decorator]
def note(what: Any) -> float:
    order.append(what)
    return time.time()


@task  # type: ignore[untyped-decorator]
def wait() -> bool:
    begun.set()
    return gate.wait(60)
