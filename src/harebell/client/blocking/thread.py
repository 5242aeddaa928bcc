"""The thread on which blocking connections live: one of a process, with the asyncio client on its loop.

Rules:
1. A thread that touches the loop, or an object of the loop, holds `turn` (the loop's lock). The loop's thread holds it
   except while it waits for the network. Another thread takes it for one plain call, and may then do what a callback of
   the loop may do: a publish or an acknowledgement costs no change of threads. The loop is woken when such a call has
   scheduled something (`TurnLoop`).
2. No thread waits while it holds the turn. A coroutine runs as a task of the loop, and the caller waits for it (`run`);
   or the calling thread runs each of its steps (`drive`): for publishing, whose coroutines await nothing but futures.
3. A signal handler may raise in the main thread anywhere. In a wait, that cancels the call. Elsewhere, `turn` is taken
   by `with` alone, which a signal cannot split; what must stay whole is one call of C, or is taken back (`step`).
4. A program's own code never runs on this thread, so it cannot delay a heartbeat (`callbacks`).
5. A forked child has no such thread. The objects that it inherited raise, and its first `connect` makes a new thread.
6. At the interpreter's end, what was published is written, and open connections are closed.

There is one thread for all connections: Python runs one at a time anyway, and more would only switch more often.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast

from harebell import errors
from harebell.client.blocking.loop import TurnLoop
from harebell.client.channel import Channel
from harebell.defaults import GOODBYE_SECONDS

__all__ = ["IoThread", "Waiter", "io_thread"]

P = ParamSpec("P")
T = TypeVar("T")


SIGNAL_SECONDS: Final = 1.0
"""A signal that comes just before a thread waits for a lock is handled when the wait ends: none is longer than this."""


class Closing(Protocol):
    """An asyncio connection, as the interpreter's end knows it."""

    async def close(self, *, timeout: float | None = None) -> None: ...


class Waiter:
    """What a thread waits for, in the shape of the futures that tasks wait for. Used once."""

    __slots__ = ("_lock", "_loop", "_set")

    def __init__(self, io: IoThread) -> None:
        self._loop = io.loop
        self._set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def done(self) -> bool:
        return self._set

    def set_result(self, result: object) -> None:
        if not self._set:
            self._set = True
            if self._loop.asleep:
                self._lock.release()
            else:
                self._loop.woken.append(self._lock)

    def wait(self, timeout: float = -1) -> bool:
        """Whether it was set within `timeout` seconds; -1 and `math.inf` are for ever."""
        acquire = self._lock.acquire
        if 0 <= timeout <= threading.TIMEOUT_MAX:
            return acquire(True, timeout)
        while not acquire(True, SIGNAL_SECONDS):
            pass
        return True


class _Running(Generic[P, T]):
    """A coroutine that runs as a task of the loop, and what came of it.

    An interrupt in the midst of making a task leaves one that nobody has, or that never runs. So the loop makes it, and
    what is raised in it goes to the caller alone.
    """

    __slots__ = ("_abandoned", "_args", "_call", "_error", "_kwargs", "_task", "_value")

    def __init__(self, call: Callable[P, Coroutine[Any, Any, T]], args: Any, kwargs: Any) -> None:
        self._call, self._args, self._kwargs = call, args, kwargs
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._value: list[T] = []
        self._abandoned = False

    def begin(self, loop: asyncio.AbstractEventLoop, waiter: Waiter) -> None:
        """Run it, unless the caller has been interrupted. Called by the loop."""
        if not self._abandoned:
            self._task = loop.create_task(self._steps())
            self._task.add_done_callback(waiter.set_result)

    async def _steps(self) -> None:
        try:
            self._value.append(await self._call(*self._args, **self._kwargs))
        except BaseException as error:
            self._error = error

    def interrupted(self, undo: Callable[[T], object]) -> None:
        """Cancel it, or undo what came of it."""
        self._abandoned = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
        for value in self._value:
            undo(value)

    def outcome(self) -> T:
        """What it has returned or raised."""
        if self._value:
            return self._value[0]
        error, self._error = self._error, None  # else it would hold itself by its traceback
        try:
            if error is None or isinstance(error, asyncio.CancelledError):
                raise errors.ChannelClosed("the interpreter is ending: no call is answered any more") from None
            raise error
        finally:
            del error


class _Refused(AbstractContextManager[None]):
    """A turn that cannot be taken."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __enter__(self) -> NoReturn:
        raise errors.LocalProtocolError(self._why)

    def __exit__(self, *error: object) -> None:
        pass


class IoThread:
    """The loop, its thread, and how other threads run something there.

    turn         to hold while touching what belongs to the loop; where the loop may be busy, set the hint first:
                 `if not io.loop.asleep: io.loop.wanted = True`
    connections  the open ones, for the interpreter's end
    """

    def __init__(self) -> None:
        self.loop = TurnLoop()
        self.turn: AbstractContextManager[object] = self.loop.lock
        self.connections: weakref.WeakSet[Closing] = weakref.WeakSet()
        self._refused: _Refused | None = None
        self._thread = threading.Thread(target=self._serve, name="harebell-io", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self.loop.lock:
            asyncio.set_event_loop(self.loop)
            try:
                self.loop.run_forever()
            finally:
                self.loop.wake_waiters()
                self.loop.close()

    # -- for the blocking API ----------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether this is the thread of this process, and not yet at its end."""
        return self._refused is None

    def check(self) -> None:
        """LocalProtocolError where waiting would never end, or would block an event loop of the program."""
        if self._refused is not None:
            self._refused.__enter__()
        if asyncio._get_running_loop() is not None:
            raise errors.LocalProtocolError(
                "a blocking call inside a running event loop would stop everything else there: use harebell.connect, "
                "or make this call in a thread, with asyncio.to_thread"
            )
        if self.loop.lock._is_owned():  # type: ignore[attr-defined]
            raise errors.LocalProtocolError(
                "a blocking call from a signal handler or a hook that came in the middle of another call: "
                "have it set a flag, and act on that outside"
            )

    def run(self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the coroutine returns or raises, run as a task of the loop. An interrupt cancels it."""
        return self.run_or_undo(_nobody, call, *args, **kwargs)

    def run_or_undo(
        self, undo: Callable[[T], object], call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `run`; `undo` gets a result that the caller cannot get, because an interrupt came at the same moment."""
        self.check()
        waiter, running = Waiter(self), _Running(call, args, kwargs)
        try:
            with self.turn:
                self.loop.call_soon(running.begin, self.loop, waiter)
            waiter.wait()
        except BaseException:
            with self.turn:
                running.interrupted(undo)
            raise
        return running.outcome()

    def step(self, channel: Channel, work: Callable[[], T], *, at_once: bool = False) -> T:
        """What `work` gives, which may publish on the channel, and nothing else. The caller holds the turn.

        at_once  write to the socket what was published; otherwise the loop does, in its next turn

        Where a signal comes in the midst of a publication, that one has not left, and all before it have: else every
        later confirm would go to the wrong publication.
        """
        connection, core = channel.transport, channel.core
        written, last_tag, due = connection.engine.pending, core.publishes.last_tag, connection.flush_due
        try:
            connection.flush_due = connection.stepped = True
            result = work()
            connection.flush_due, connection.stepped = due, False
            if at_once or connection.large:
                connection.write_stepping()
            else:
                connection.flush()
            return result
        except StopIteration:
            connection.flush_due, connection.stepped = due, False
            if connection.large:
                connection.write_stepping()
            elif connection.engine.pending:
                connection.flush()
            raise
        except BaseException:
            stepped = connection.stepped
            connection.flush_due, connection.stepped = due, False
            if stepped:
                try:
                    core.take_back(written, last_tag)
                except BaseException:
                    connection.lost("a second signal came while the first one's publish was taken back")
                    connection.abort()
                    raise
            if connection.engine.pending:
                connection.flush()
            raise

    def drive(self, channel: Channel, steps: Coroutine[Any, Any, T]) -> T:
        """What a publishing coroutine of the channel returns or raises, its steps taken by the calling thread."""
        loop, work = self.loop, partial(steps.send, None)
        while True:
            if not loop.asleep:
                loop.wanted = True
            try:
                with self.turn:
                    awaited = self.step(channel, work, at_once=True)
                    if awaited is None:  # asyncio.sleep(0): releasing the turn lets the loop run
                        continue
                    waiter = Waiter(self)
                    awaited._asyncio_future_blocking = False
                    awaited.add_done_callback(waiter.set_result)
                waiter.wait()
            except StopIteration as stop:
                return cast(T, stop.value)
            except BaseException:
                with self.turn:
                    channel.transport.flush()  # it may have been interrupted in the midst of that
                    if inspect.getcoroutinestate(steps) != inspect.CORO_CLOSED:
                        _cancel(steps)
                raise

    # -- the end -----------------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        """Let every call raise from now on."""
        self._refused = refused = _Refused(why)
        self.turn = refused

    def leave(self) -> None:
        """Close what is open, and end the thread."""
        waiter = Waiter(self)
        with self.loop.lock:
            self.loop.create_task(self._close_all()).add_done_callback(waiter.set_result)
        waiter.wait(GOODBYE_SECONDS + 1)
        self.refuse("the interpreter is ending: the connection is closed")
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1)

    async def _close_all(self) -> None:
        closing = (connection.close(timeout=GOODBYE_SECONDS) for connection in list(self.connections))
        await asyncio.gather(*closing, return_exceptions=True)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0)


def _nobody(result: object) -> None:
    """There is nothing to undo."""


def _cancel(steps: Coroutine[Any, Any, Any]) -> None:
    try:
        steps.throw(asyncio.CancelledError())
    except (asyncio.CancelledError, StopIteration, errors.HarebellError):
        return
    steps.close()


_io: IoThread | None = None
_making = threading.Lock()
_abandoned: list[IoThread] = []  # a forked child keeps them: collecting them would touch what the parent still uses


def io_thread() -> IoThread:
    """The process's I/O thread, made at the first call. LocalProtocolError where threads are no threads."""
    global _io
    with _making:
        if _io is None:
            _check_threads()
            _io = IoThread()
        return _io


def _check_threads() -> None:
    """LocalProtocolError where `threading` is replaced: its threads share one, which the loop would block."""
    for name, patcher, question, part in (
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ):
        if patcher in sys.modules and getattr(sys.modules[patcher], question)(part):
            raise errors.LocalProtocolError(
                f"{name} has replaced Python's threads in this process, and harebell.blocking needs a thread of its "
                f"own: run the program without {name}'s monkey patching, in a pool or server of threads or processes"
            )


def _leave() -> None:
    if _io is not None:
        _io.leave()


def _forked() -> None:
    global _io, _making
    _making = threading.Lock()
    if _io is not None:
        _io.refuse(
            "this connection was made before a fork, in the parent process: its thread and its socket are the "
            "parent's; connect again in this process"
        )
        _abandoned.append(_io)
        _io = None


atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
