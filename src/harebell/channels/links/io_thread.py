"""The thread that does all input and output of the channel layers of this process, and the results of its work.

A caller may be any thread, with an event loop or without one, and its loop may end before the result arrives. So
nothing that waits for the network runs in the caller: `IOThread.post` calls a function as if in the thread; while the
thread sleeps the caller itself makes the call (`TurnLoop`). An Answer takes the result to the caller: a future of the
caller's loop, or one that its thread waits for. Many posts wake the thread once, many results for one loop wake that
loop once.

After a fork the child has no such thread: `io_thread` starts a new one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from harebell.client.blocking.loop import TurnLoop

__all__ = ["Answer", "AsyncAnswer", "IOThread", "SyncAnswer", "io_thread", "this_process"]

logger = logging.getLogger("harebell.channels")

_T = TypeVar("_T")
_In = TypeVar("_In", contravariant=True)


class Answer(Protocol[_In]):
    """Receives a result; called in the I/O thread."""

    def give(self, result: _In) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class AsyncAnswer(Generic[_T]):
    """An answer for a coroutine: `await answer.future`."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self, thread: IOThread) -> None:
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[_T] = self._loop.create_future()

    def give(self, result: _T) -> None:
        self._thread.deliver(self._loop, self.future, result, None)

    def fail(self, error: BaseException) -> None:
        self._thread.deliver(self._loop, self.future, None, error)


class SyncAnswer(Generic[_T]):
    """An answer for a thread without a loop: `answer.wait()`."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def give(self, result: _T) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> _T:
        return self._future.result()


class _LoopResults:
    """Results that are to be set in one event loop."""

    __slots__ = ("due", "results")

    def __init__(self) -> None:
        self.results: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self.due = False

    def arrive(self) -> None:
        """Set the results; called in the caller's loop."""
        self.due = False
        results = self.results
        while results:
            future, result, error = results.popleft()
            if future.done():
                continue  # the caller was cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class IOThread:
    """A daemon thread with an event loop."""

    def __init__(self) -> None:
        self.loop = TurnLoop()
        self._work: deque[Callable[[], object]] = deque()
        self._woken = self._doing = False
        self._loop_results: dict[asyncio.AbstractEventLoop, _LoopResults] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="harebell-channels", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self.loop.lock:
            asyncio.set_event_loop(self.loop)
            self.loop.run_forever()

    def post(self, work: Callable[[], object]) -> None:
        """Call `work` as if in the thread, after all earlier posts; at once while the thread sleeps."""
        loop = self.loop
        if loop.asleep and not self._work and loop.lock.acquire(blocking=False):
            try:
                # A signal's handler may come here in the middle of another work of this very thread.
                if loop.asleep and not self._work and not self._doing:
                    self._do(work)
                    return
            finally:
                loop.lock.release()
        self._work.append(work)
        if not self._woken:
            self._woken = True
            loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False  # before reading the work: a later post wakes the thread again
        work = self._work
        while work:
            self._do(work.popleft())

    def _do(self, work: Callable[[], object]) -> None:
        self._doing = True
        try:
            work()
        except Exception:
            logger.exception("the channel layer's thread made a mistake")
        finally:
            self._doing = False

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]], answer: Answer[_T]) -> None:
        """Run a coroutine in the thread; the answer gets its result or exception."""
        self.post(lambda: self.start(self._answered(work(), answer)))

    async def _answered(self, work: Coroutine[Any, Any, _T], answer: Answer[_T]) -> None:
        try:
            result = await work
        except Exception as error:
            answer.fail(error)
        except asyncio.CancelledError:
            answer.fail(ConnectionError("the channel layer was closed"))
            raise
        else:
            answer.give(result)

    def share(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task whose callers, each shielded, have its result or its error; called in the thread.

        When all of them are cancelled, nobody has the error, and asyncio does not complain.
        """
        task = self.loop.create_task(work)
        task.add_done_callback(_retrieved)
        return task

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of the thread, and log its exception; called in the thread."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the channel layer's thread made a mistake", exc_info=error)

    def deliver(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> bool:
        """Set the result of a future of another loop; called in the thread. False when that loop is closed."""
        results = self._loop_results.get(loop)
        if results is None:
            self._forget_ended()
            results = self._loop_results[loop] = _LoopResults()
        results.results.append((future, result, error))
        if results.due and not loop.is_closed():
            return True
        results.due = True
        try:
            loop.call_soon_threadsafe(results.arrive)
        except RuntimeError:  # it was closed
            self._loop_results.pop(loop, None)
            return False
        return True

    def _forget_ended(self) -> None:
        for loop in [loop for loop in list(self._loop_results) if loop.is_closed()]:
            self._loop_results.pop(loop, None)


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


_lock = threading.Lock()
_io_thread: IOThread | None = None
_process = object()


def io_thread() -> IOThread:
    """The I/O thread of this process, started at the first call."""
    global _io_thread
    if _io_thread is None:
        with _lock:
            if _io_thread is None:
                _io_thread = IOThread()
    return _io_thread


def this_process() -> object:
    """An object that identifies this process; every call compares it, and os.getpid() would be a system call."""
    return _process


def _forked() -> None:
    global _io_thread, _lock, _process
    _io_thread, _lock, _process = None, threading.Lock(), object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
