"""The thread on which blocking connections live: one of a process, with the asyncio client on its loop.

Rules:
1. Whoever touches the loop, or what lives on it, holds `turn`. The loop's thread holds it all the time, but for the
   moments in which it waits for the network. Any other thread takes it for the length of a plain call, and is then as
   good as on the loop: a publish or an acknowledgement costs no change of threads. The loop is woken when such a call
   has left it something to do (`TurnLoop`).
2. Nobody waits while holding it. A coroutine is a task of the loop that the caller waits for (`run`), or the caller
   takes each of its steps himself (`drive`): for publishing, whose coroutines await nothing but futures.
3. A signal's exception may strike the main thread anywhere. In a wait it cancels the call. Elsewhere: `turn` is taken
   by `with` alone, which a signal cannot divide; what must not be torn apart is one call of C, or put right (`step`).
4. A program's own code never runs here, so nothing of it starves a heartbeat (`callbacks`).
5. A forked child has no such thread. What it inherited raises, and its first `connect` makes a thread of its own.
6. The interpreter's end says goodbye on what is still open, after writing what was published.

One thread for all connections: Python runs one at a time anyway, and more would only change places more often.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeVar, cast

from harebell import errors
from harebell.client.blocking.loop import TurnLoop
from harebell.client.channel import Channel

__all__ = ["IoThread", "Waiter", "io_thread"]

P = ParamSpec("P")
T = TypeVar("T")

LEAVE_SECONDS: Final = 2.0  # for all goodbyes together when the interpreter ends


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
        """Whether it was set within `timeout` seconds; -1 is for ever."""
        return self._lock.acquire(True, timeout)


class _Refused(AbstractContextManager[None]):
    """A turn that is never given."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __enter__(self) -> NoReturn:
        raise errors.LocalProtocolError(self._why)

    def __exit__(self, *error: object) -> None:
        pass


class IoThread:
    """The loop, its thread, and how other threads get something done there.

    turn         to hold while touching what belongs to the loop; where a call may meet a busy loop, ask for it first:
                 `if not io.loop.asleep: io.loop.wanted = True`
    connections  those that are open, for the interpreter's end
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
        """LocalProtocolError where waiting would never end, or hold up somebody else's loop."""
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
        """As `run`; a result that came at the moment of an interrupt, which nobody will see, is given to `undo`."""
        self.check()
        waiter = Waiter(self)
        task: asyncio.Task[T] | None = None
        try:
            with self.turn:
                task = self.loop.create_task(call(*args, **kwargs))
                task.add_done_callback(waiter.set_result)
            waiter.wait()
        except BaseException:
            with self.turn:
                if task is not None and not task.done():
                    task.cancel()
                elif task is not None and not task.cancelled() and task.exception() is None:
                    undo(task.result())
            raise
        try:
            return task.result()
        except asyncio.CancelledError:
            raise errors.ChannelClosed("the interpreter is ending: no call is answered any more") from None

    def step(self, channel: Channel, work: Callable[[], T]) -> T:
        """What `work` gives, something that may publish on the channel. With the turn in hand.

        What it published is the caller's to flush. A publication that was numbered and not written, because a signal
        came between, would give every later confirm to the wrong one: then the transport is dropped, and what
        is unconfirmed is told as orphaned.
        """
        connection, publishes = channel._connection, channel._core.publishes
        engine = connection.engine
        tag, written, due = publishes.last_tag, engine.pending, connection.flush_due
        try:
            connection.flush_due = True  # `drive` may write it at once
            return work()
        except StopIteration:
            raise
        except BaseException:
            # Each publication is two entries, method and content, and one number.
            if publishes.confirming and engine.pending - written != 2 * (publishes.last_tag - tag):
                connection.lost("a signal interrupted a publish")
                connection.abort()
            raise
        finally:
            connection.flush_due = due

    def drive(self, channel: Channel, steps: Coroutine[Any, Any, T]) -> T:
        """What a publishing coroutine of the channel returns or raises, its steps taken by the calling thread."""
        loop = self.loop
        while True:
            if not loop.asleep:
                loop.wanted = True
            with self.turn:
                connection = channel._connection
                try:
                    awaited = self.step(channel, lambda: steps.send(None))
                except StopIteration as stop:
                    if connection.engine.pending:
                        connection.flush()
                    return cast(T, stop.value)
                if awaited is None:  # asyncio.sleep(0): others have their turn now
                    continue
                connection.flush_now()
                waiter = Waiter(self)
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(waiter.set_result)
            try:
                waiter.wait()
            except BaseException:
                with self.turn:
                    _cancel(steps)
                raise

    # -- the end -----------------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        """No call is taken any more."""
        self._refused = refused = _Refused(why)
        self.turn = refused

    def leave(self) -> None:
        """Close what is open, and end the thread."""
        waiter = Waiter(self)
        with self.loop.lock:
            self.loop.create_task(self._close_all()).add_done_callback(waiter.set_result)
        waiter.wait(LEAVE_SECONDS + 1)
        self.refuse("the interpreter is ending: the connection is closed")
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1)

    async def _close_all(self) -> None:
        closing = (connection.close(timeout=LEAVE_SECONDS) for connection in list(self.connections))
        await asyncio.gather(*closing, return_exceptions=True)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0)


def _nobody(result: object) -> None:
    """Nothing has to be undone."""


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
    """The process's own; made when it is first asked for."""
    global _io
    with _making:
        if _io is None:
            _io = IoThread()
        return _io


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
