"""A program's own functions, called one after another on a thread of their own: none holds up the connection.

They are called in the order of what they are told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from harebell.client.blocking.thread import IoThread
from harebell.client.notifications import Stop

__all__ = ["Callbacks"]

logger = logging.getLogger("harebell.client")


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
            stop = notify(*[partial(self.put, function) for function in functions])

        def stop_with_the_turn() -> None:
            with io.turn:
                stop()

        return stop_with_the_turn

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
                callback(argument)
            except Exception:  # a callback's failure is not the connection's
                logger.exception("callback %r failed on %r", callback, argument)
