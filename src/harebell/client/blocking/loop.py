"""An event loop that runs under a lock, which its thread releases while it waits for the network.

A thread that holds `TurnLoop.lock` may call what belongs to the loop, as a callback of the loop would: that saves two
changes of threads. The loop is asyncio's own: uvloop has no selector that could release a lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import selectors
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVarTuple

__all__ = ["TurnLock", "TurnLoop"]

logger = logging.getLogger("harebell.client")

Ts = TypeVarTuple("Ts")

GIVE_WAY_SECONDS: Final = 50e-6  # about what a thread takes to wake up and take the turn


class TurnLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that an interrupt never leaves locked.

    Since Python 3.14 a signal's handler may run after a `with` statement has taken a lock and before the statement is
    responsible for it; what the handler raises would leave the lock to its thread for ever.
    """

    def __enter__(self) -> bool:
        before = self._recursion_count()
        try:
            return bool(self.acquire())
        except BaseException:
            if self._recursion_count() > before:
                self.release()
            raise


class _Selector(selectors.DefaultSelector):
    """Releases the lock while it waits for the network."""

    def __init__(self, loop: TurnLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        loop.asleep = True
        loop.lock.release()
        try:
            if loop.woken:
                loop.wake_waiters()
            ready = super().select(timeout)
            if loop.wanted:
                # A free lock goes to the thread that tries first, and a thread that was just woken is never the first.
                loop.wanted = False
                time.sleep(GIVE_WAY_SECONDS)
        finally:
            loop.lock.acquire()
            loop.asleep = False
        return ready

    # Not every kind of selector notices a change while it waits.

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._loop.wake()
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().modify(fileobj, events, data)
        self._loop.wake()
        return key


class TurnLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, also for threads that hold its lock.

    lock    held by the thread that runs what belongs to the loop: the loop's own, or another
    asleep  the loop waits for the network: what another thread schedules must wake it
    wanted  a thread is about to wait for the lock; a hint, set without the lock
    woken   locks of waiters whose wait is over; released when the loop goes to sleep, since they cannot run before that
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = TurnLock() if sys.version_info >= (3, 14) else threading.RLock()
        self.asleep = False
        self.wanted = False
        self.woken: list[threading.Lock] = []
        super().__init__(_Selector(self))
        self.set_debug(False)  # asyncio's debug mode wants one thread only

    def run_forever(self) -> None:
        """Run until `stop`. SystemExit of a task or a callback ends that alone: other connections need the loop."""
        while True:
            try:
                super().run_forever()
                return
            except (SystemExit, KeyboardInterrupt):
                logger.exception("a function that the shared event loop called wanted to end the program")

    def wake_waiters(self) -> None:
        woken, self.woken = self.woken, []
        for lock in woken:
            lock.release()

    def wake(self) -> None:
        if self.asleep:
            self.call_soon(_nothing)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self.asleep:
            handle = super().call_soon_threadsafe(callback, *args, context=context)
            self.asleep = False  # one wake-up is enough; set after it, because a signal may prevent it
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self.wake()  # it has to compute again how long it may sleep
        return handle


def _nothing() -> None:
    pass
