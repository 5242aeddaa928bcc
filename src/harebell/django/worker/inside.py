"""A worker inside the program's own process, for "embedded://": development and tests need no service."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from harebell.django.options import Options
from harebell.django.worker.process import WorkerProcess

__all__ = ["run_here"]

CONCURRENCY: Final = 2
_workers: dict[tuple[str, str], _Inside] = {}
_starting = threading.Lock()


class _Inside:
    """One worker in a thread, until the process ends."""

    def __init__(self, backend: Any, options: Options) -> None:
        self._backend = backend
        self._options = options
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._worker: WorkerProcess
        threading.Thread(target=lambda: asyncio.run(self._run()), name="harebell-worker", daemon=True).start()
        self._ready.wait()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._backend.__dict__["connected"] = self._options
        self._worker = WorkerProcess(self._backend, sorted(self._backend.queues), CONCURRENCY, 0)
        self._ready.set()
        await self._worker.run()

    def add(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._worker.add, name)


def run_here(backend: Any, options: Options, queue: str) -> None:
    """Have the tasks of a Django queue run in a thread of this process."""
    key = options.url, options.prefix
    with _starting:
        if key not in _workers:
            _workers[key] = _Inside(backend, options)
    _workers[key].add(queue)
