"""A program's own functions, called one after another on a thread of their own: none holds up the connection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ["Callbacks"]

logger = logging.getLogger("harebell.client")


class Callbacks:
    """The callbacks of one connection. The thread begins with the first call, and ends with `end`."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Callable[..., object], Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def put(self, callback: Callable[..., object], argument: object) -> None:
        """Have it called soon, in the order of these calls; what it raises is logged. Called on the loop's thread."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._serve, name="harebell-callbacks", daemon=True)
            self._thread.start()
        self._waiting.put((callback, argument))

    def end(self) -> None:
        """No more calls after those that wait."""
        self._ended = True
        self._waiting.put(None)

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            callback, argument = waiting
            try:
                callback(argument)
            except Exception:  # a callback's failure is not the connection's
                logger.exception("callback %r failed on %r", callback, argument)
