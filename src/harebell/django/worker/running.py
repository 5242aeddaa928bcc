"""Runs one task as Django's Tasks say, and what becomes of it. Knows no broker.

A task's record goes through READY, RUNNING and SUCCESSFUL or FAILED; each attempt adds the worker's id, each exception
its error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any, Final, cast

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections
from django.utils import timezone

from harebell.django.framework import base, normalize_json, signals
from harebell.django.messages import record_of
from harebell.django.options import Options
from harebell.django.results import Results

__all__ = ["Runner", "Threads", "call"]

logger = logging.getLogger("harebell.django")

_Outcome = tuple[Any, BaseException | None]

MAX_TRACEBACK: Final = 20_000  # characters: of a recursion that has no end, the last ones say enough


class Threads(ThreadPoolExecutor):
    """Threads that tell how many of them run something.

    The interpreter waits for them when it ends, whatever has become of the coroutines that waited for them.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._calls: set[Future[Any]] = set()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **kwargs: Any) -> Future[Any]:
        call = super().submit(function, *arguments, **kwargs)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    @property
    def running(self) -> int:
        return sum(call.running() for call in tuple(self._calls))


class Runner:
    """Runs the tasks of one backend.

    backend  whose class sends the signals; what their receivers raise is logged
    threads  in which synchronous tasks run
    results  where records are kept
    options  the backend's
    """

    def __init__(self, backend: Any, threads: Executor, worker_id: str) -> None:
        self.results: Results = backend.results
        self.options: Options = backend.settings
        self._sender = type(backend)
        self._threads = threads
        self._worker_id = worker_id

    async def run(self, result: Any, attempt: int) -> dict[str, Any]:
        """Run a task; its record afterwards, whose status is READY when it is to be tried again."""
        in_thread = _in(asyncio.get_running_loop(), self._threads)
        await in_thread(call, self._begin, [result])
        value, error = await self._outcome(result)
        if error is None:
            try:
                object.__setattr__(result, "_return_value", normalize_json(value))
            except Exception as unfit:
                error = unfit
        return dict(await in_thread(call, self._end, [result, error, attempt]))

    async def _outcome(self, result: Any) -> _Outcome:
        """What the task returns, or raises. CancelledError when the worker is killed: the task is delivered again."""
        task, own = result.task, _copy_of(result)
        arguments = [base.TaskContext(task_result=own)] if task.takes_context else []
        arguments += own.args
        if not iscoroutinefunction(task.func):
            in_thread = _in(asyncio.get_running_loop(), self._threads)
            return cast(_Outcome, await in_thread(_caught, task.func, arguments, own.kwargs))
        try:
            return await _awaited(task.func, arguments, own.kwargs), None
        except BaseException as error:
            this = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and this is not None and this.cancelling():
                raise
            return None, error

    def _begin(self, result: Any) -> None:
        now = timezone.now()
        object.__setattr__(result, "status", base.TaskResultStatus.RUNNING)
        object.__setattr__(result, "last_attempted_at", now)
        if result.started_at is None:
            object.__setattr__(result, "started_at", now)
        result.worker_ids.append(self._worker_id)
        self.results.save(record_of(result))
        signals.task_started.send_robust(sender=self._sender, task_result=result)

    def _end(self, result: Any, error: BaseException | None, attempt: int) -> dict[str, Any]:
        status = base.TaskResultStatus.SUCCESSFUL
        if error is not None:
            kind = type(error)
            path = f"{kind.__module__}.{kind.__qualname__}"
            text = "".join(format_exception(error))[-MAX_TRACEBACK:]
            result.errors.append(base.TaskError(exception_class_path=path, traceback=text))
            again = attempt < self.options.attempts and not isinstance(error, SystemExit | KeyboardInterrupt)
            status = base.TaskResultStatus.READY if again else base.TaskResultStatus.FAILED
        object.__setattr__(result, "status", status)
        if status != base.TaskResultStatus.READY:
            object.__setattr__(result, "finished_at", timezone.now())
        record = record_of(result)
        self.results.save(record)
        if status != base.TaskResultStatus.READY:
            self._finished(result, error)
        else:
            logger.warning("task %s (%s) is tried again: %s", result.id, result.task.module_path, error)
        return record

    def _finished(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            signals.task_finished.send_robust(self._sender, task_result=result)
            return
        try:
            raise error  # Django's own receiver logs the exception that is being handled
        except BaseException:
            signals.task_finished.send_robust(self._sender, task_result=result)


def _copy_of(result: Any) -> Any:
    """A result for the task's own use: what it changes in its arguments is no part of its record or next attempt."""
    return replace(result, errors=[*result.errors], worker_ids=[*result.worker_ids])  # copies the arguments itself


def _in(loop: asyncio.AbstractEventLoop, threads: Executor) -> Callable[..., Any]:
    """What runs a function in one of the threads, in a copy of the caller's context, and is awaited."""

    def in_thread(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return loop.run_in_executor(threads, copy_context().run, function, *arguments)

    return in_thread


async def _awaited(function: Callable[..., Any], arguments: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the coroutine gives. It reaches the database from a thread of its own, as a request does under ASGI.

    So no other task meets a connection that this one has broken, or has its own closed while it reads.
    """
    async with ThreadSensitiveContext():
        try:
            return await function(*arguments, **kwargs)
        finally:
            await sync_to_async(connections.close_all)()


def _caught(function: Callable[..., Any], arguments: Sequence[Any], kwargs: Mapping[str, Any]) -> _Outcome:
    """What the function returns, or raises, as values: a future does not carry a StopIteration."""
    try:
        return call(function, arguments, kwargs), None
    except BaseException as error:
        return None, error


def call(function: Callable[..., Any], arguments: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """What the function gives, in this thread.

    A connection to the database that has broken is opened again. One that is not to be kept (CONN_MAX_AGE) is closed:
    the next call may be in another thread.
    """
    close_old_connections()
    try:
        return function(*arguments, **(kwargs or {}))
    finally:
        close_old_connections()
