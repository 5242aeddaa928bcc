"""A program's own functions, called on threads: they may block, and the I/O thread must not.

Callbacks are called one after another, in the order of what they are told, on one thread; `in_a_thread` calls what the
client waits for.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

from harebell.client.blocking.thread import IoThread
from harebell.client.callbacks import call_contained, check_plain, result_contained
from harebell.client.notifications import Stop

__all__ = ["Callbacks", "in_a_thread"]

logger = logging.getLogger("harebell.client")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def in_a_thread(io: IoThread, function: Callable[[*Ts], T | Awaitable[T]]) -> Callable[[*Ts], Awaitable[T]]:
    """The same function, for the asyncio client: a call of it holds up no connection.

    It is called in a copy of the context of what waits for it.
    """

    async def ask(*args: *Ts) -> T:
        call = partial(call_contained, function, *args)
        given = await io.loop.run_in_executor(None, copy_context().run, call)
        return await result_contained(given) if inspect.isawaitable(given) else given

    return ask


class Callbacks:
    """The callbacks of one connection. The thread begins with the first call, and ends with `end`."""

    def __init__(self, io: IoThread) -> None:
        self._io = io
        self._waiting: SimpleQueue[tuple[Callable[..., object], Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def register(self, notify: Callable[..., Stop], *functions: Callable[[Any], None]) -> Stop:
        """Ask for notifications by a method of the asyncio API. Any thread may end them, with what this gives."""
        io = self._io
        with io.turn:
            stop = notify(*[self.later("the callback", function, "event") for function in functions])

        def stop_with_the_turn() -> None:
            with io.turn:
                stop()

        return stop_with_the_turn

    def later(self, what: str, function: Callable[..., object], argument: str) -> Callable[[Any], None]:
        """What calls the function soon. InvalidArgument when that would run nothing.

        what, argument  for the text: its role, and what it is called with
        """
        check_plain(what, function, argument)
        return partial(self.put, function)

    def put(self, callback: Callable[..., object], argument: object) -> None:
        """Call it soon, in the order of these calls; what it raises is logged. Called on the loop's thread."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._serve, name="harebell-callbacks", daemon=True)
            self._thread.start()
        self._waiting.put((callback, argument))

    def end(self) -> None:
        """Call nothing more after what waits now."""
        self._ended = True
        self._waiting.put(None)

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            callback, argument = waiting
            try:
                copy_context().run(partial(call_contained, callback, argument))
            except Exception:  # a callback's failure is not the connection's
                logger.exception("callback %r failed on %r", callback, argument)
