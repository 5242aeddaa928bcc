"""An event loop that takes turns: its thread runs it, and gives the turn away while it waits for the network.

Any thread that holds `TurnLoop.lock` is as good as on the loop for the length of a plain call, and saves two changes of
threads. It is asyncio's own loop underneath; uvloop has no selector in which turns could be taken.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVarTuple

__all__ = ["TurnLoop"]

Ts = TypeVarTuple("Ts")

GIVE_WAY_SECONDS: Final = 50e-6  # about what a thread takes to wake up and take the turn


class _Selector(selectors.DefaultSelector):
    """Gives the turn away while it waits for the network."""

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
                # A free lock goes to whoever tries first, and a thread that was just woken is never the first.
                loop.wanted = False
                time.sleep(GIVE_WAY_SECONDS)
        finally:
            loop.lock.acquire()
            loop.asleep = False
        return ready

    # Not every kind of selector sees a change while it waits.

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

    lock    held by whoever runs what belongs to the loop
    asleep  nobody but a holder of the lock has something to do: what he schedules must wake the loop
    wanted  somebody is about to wait for the lock; advice, not a fact
    woken   locks of those whose wait is over; released when the loop goes to sleep, as nobody can run before that
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.asleep = False
        self.wanted = False
        self.woken: list[threading.Lock] = []
        super().__init__(_Selector(self))
        self.set_debug(False)  # asyncio's debug mode wants one thread only

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
            self.asleep = False  # once is enough; not before it is done, which a signal may prevent
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self.wake()  # to sleep no longer than this
        return handle


def _nothing() -> None:
    pass
