"""An event loop in a thread of its own, for a program whose main thread makes blocking calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs coroutines in the background: `call` waits for the result, `start` returns a future.

    Leaving the `with` block cancels the coroutines that still run, and ends the loop and the thread.
    """

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop_factory = loop_factory
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="loop")

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._ready.result())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. A KeyboardInterrupt meanwhile cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = self._ready.result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def _run(self) -> None:
        # Leaving the runner cancels the remaining tasks and closes the loop.
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            loop = runner.get_loop()
            asyncio.set_event_loop(loop)
            self._ready.set_result(loop)
            loop.run_forever()
