"""Django, set up once for these tests: a database and a cache in a folder, and tasks on each broker.

The database is SQLite; where HAREBELL_TEST_POSTGRES is set, it is that one: "folder of the socket, user, name".
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings

from tests.client.conftest import broker_url, harebell_url  # noqa: F401

FOLDER = Path(tempfile.mkdtemp(prefix="harebell-django-"))


def database() -> dict[str, Any]:
    """Django's settings of the tests' database."""
    if where := os.environ.get("HAREBELL_TEST_POSTGRES"):
        host, user, name = where.split(",")
        return {"ENGINE": "django.db.backends.postgresql", "HOST": host, "USER": user, "NAME": name}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(FOLDER / "database"),
        "OPTIONS": {"timeout": 30},
    }


if not settings.configured:
    settings.configure(
        SECRET_KEY="of a test",
        USE_TZ=True,
        INSTALLED_APPS=["harebell.django"],
        DATABASES={"default": database()},
        CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        TASKS={"default": {"BACKEND": "harebell.django.TaskBackend", "OPTIONS": {"url": "amqp://127.0.0.1:9/"}}},
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)

from harebell.django.backend import TaskBackend  # noqa: E402  Django has to be set up before
from harebell.django.framework import task_backends  # noqa: E402
from harebell.django.worker.process import WorkerProcess  # noqa: E402

Configure = Callable[..., TaskBackend]


@pytest.fixture
def configure(broker_url: str) -> Iterator[Configure]:  # noqa: F811
    """The backend with these options, under a prefix of its own."""
    from django.test import override_settings

    overrides: list[Any] = []
    backends: list[TaskBackend] = []

    def make(*, queues: tuple[str, ...] = ("default", "other"), **options: Any) -> TaskBackend:
        options = {"url": broker_url, "prefix": f"t{uuid.uuid4().hex[:10]}", **options}
        params = {"BACKEND": "harebell.django.TaskBackend", "QUEUES": list(queues), "OPTIONS": options}
        override = override_settings(TASKS={"default": params})
        override.enable()
        overrides.append(override)
        backend: TaskBackend = task_backends["default"]
        backends.append(backend)
        return backend

    yield make
    for backend in backends:
        backend.close()
    for override in reversed(overrides):
        override.disable()


class Worker:
    """A worker of this process, in a thread."""

    def __init__(self, backend: TaskBackend, concurrency: int = 2, prefetch: int = 2) -> None:
        self.started = threading.Event()
        self.process: WorkerProcess
        self._backend, self._concurrency, self._prefetch = backend, concurrency, prefetch
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self.started.wait(60)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        queues = sorted(self._backend.queues)
        # As in a process of its own: Django's backends are each thread's.
        task_backends["default"].__dict__["results"] = self._backend.results
        self.process = WorkerProcess(self._backend, queues, self._concurrency, self._prefetch)
        self.started.set()
        await self.process.run()

    def begin_stop(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self.process.stop)

    def stop(self) -> None:
        self.begin_stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def work() -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(backend: TaskBackend, **options: Any) -> Worker:
        workers.append(Worker(backend, **options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


def finished(result: Any, seconds: float = 60.0) -> Any:
    """The result, once it is finished."""
    deadline = time.monotonic() + seconds
    while True:
        result.refresh()
        if result.is_finished:
            return result
        assert time.monotonic() < deadline, result
        time.sleep(0.02)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once that is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
