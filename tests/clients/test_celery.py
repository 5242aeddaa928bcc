"""A Celery worker in processes of its own: retries, ETAs, canvases, chords, priorities, events, control and results."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.wire import BrokerThread

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
celery = pytest.importorskip("celery")  # of the development group
kombu = pytest.importorskip("kombu")
pytest.importorskip("kombu.pools")

TASKS = """
import time
from celery import Celery
from kombu import Queue

app = Celery("tasks", broker={url!r}, backend={backend!r})
app.conf.update({settings!r})
app.conf.task_queues = [Queue("celery", queue_arguments={arguments!r}), Queue("ranked", max_priority=10)]
app.conf.worker_prefetch_multiplier = 1
app.conf.task_acks_late = True

@app.task(bind=True, max_retries=3)
def stubborn(self, number):
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return number, self.request.retries

@app.task
def when():
    return time.time()

@app.task
def add(x, y):
    return x + y

@app.task
def echo(value):
    return value

@app.task
def total(numbers):
    return sum(numbers)

@app.task
def fail():
    raise ValueError("no")
"""

RANKED, QUORUM = {"x-max-priority": 10}, {"x-queue-type": "quorum"}


class Application:
    """The application, and its worker with these options."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *options: str,
        backend: str = "rpc://",
        arguments: dict[str, Any] = RANKED,
        settings: dict[str, Any] | None = None,
    ) -> None:
        tasks = TASKS.format(url=url, backend=backend, arguments=arguments, settings=settings or {})
        (folder / "tasks.py").write_text(tasks)
        self._folder, self._options, self._log = folder, options, folder / "worker.log"
        self._worker: subprocess.Popen[bytes] | None = None
        self.app = celery.Celery("tasks", broker=url, backend=backend)
        self.app.conf.update(settings or {})
        self.app.conf.task_queues = [
            kombu.Queue("celery", queue_arguments=arguments), kombu.Queue("ranked", max_priority=10)
        ]  # fmt: skip

    def start(self) -> None:
        with self._log.open("a") as output:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--loglevel", "INFO", *self._options],
                cwd=self._folder, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def stop(self) -> None:
        if hasattr(self.app.backend, "result_consumer"):  # rpc://
            self.app.backend.result_consumer.stop()
        self.app.close()
        kombu.pools.reset()
        if self._worker is not None:
            self._worker.terminate()
            try:
                status: int | str = self._worker.wait(120)
            except subprocess.TimeoutExpired:
                self._worker.send_signal(signal.SIGUSR1)  # its threads go into its log
                with suppress(subprocess.TimeoutExpired):
                    self._worker.wait(5)
                self._worker.kill()
                self._worker.wait()
                status = "it did not stop"
            print(self._log.read_text())
            assert status == 0

    def signature(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.app.signature(f"tasks.{name}", args=arguments, app=self.app, **options)


@pytest.fixture
def application(broker: BrokerThread, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    """With one worker process; a test starts it. `indirect` parameters are other options."""
    application = Application(broker.broker.url, tmp_path, *getattr(request, "param", ("--concurrency", "1", "-E")))
    yield application
    application.stop()


@pytest.fixture
def filed(broker: BrokerThread, tmp_path: Path) -> Iterator[Application]:
    """With its results in files: chords need a backend that everybody can read."""
    folder = tmp_path / "results"
    folder.mkdir()
    application = Application(broker.broker.url, tmp_path, "--concurrency", "2", backend=folder.as_uri())
    yield application
    application.stop()


@pytest.fixture
def prefetching(broker: BrokerThread, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    """With a queue of these arguments, and worker_detect_quorum_queues like that."""
    arguments, detect = request.param
    settings = {"worker_detect_quorum_queues": detect}
    application = Application(broker.broker.url, tmp_path, "--concurrency", "2", arguments=arguments, settings=settings)
    yield application
    application.stop()


@pytest.mark.parametrize("application", [("--concurrency", "2"), ("--autoscale", "3,1")], indirect=True)
def test_retries_an_eta_canvases_and_results(application: Application) -> None:
    application.start()
    app, signature = application.app, application.signature
    retried = app.send_task("tasks.stubborn", [7])
    earliest = datetime.now(UTC) + timedelta(seconds=1)
    later = app.send_task("tasks.when", eta=earliest)
    chained = celery.chain(signature("add", 1, 2), signature("add", 10), signature("add", 100)).apply_async()
    grouped = celery.group(signature("add", n, n) for n in range(5)).apply_async()
    assert retried.get(timeout=60) == [7, 2]
    assert later.get(timeout=60) >= earliest.timestamp()
    assert chained.get(timeout=60) == 113
    assert grouped.get(timeout=60) == [0, 2, 4, 6, 8]


def test_chords(filed: Application) -> None:
    filed.start()
    signature = filed.signature
    header = [signature("add", n, n) for n in range(5)]
    plain = celery.chord(header)(signature("total"))
    behind = celery.chain(celery.group(header), signature("total"), signature("add", 1)).apply_async()
    failed = celery.chord([signature("fail"), signature("add", 1, 1)])(signature("total"))
    assert plain.get(timeout=60) == 20
    assert behind.get(timeout=60) == 21
    with pytest.raises(ValueError, match="no"):  # its header's
        failed.get(timeout=60)


@pytest.mark.parametrize(
    "prefetching", [(QUORUM, True), (QUORUM, False), (RANKED, True), (RANKED, False)], indirect=True
)
def test_prefetch_of_the_channel_and_of_each_consumer(prefetching: Application, broker: BrokerThread) -> None:
    """Celery asks for one or the other by the type of its queues; an ETA makes it ask for more while it consumes."""
    prefetching.start()
    app = prefetching.app
    later = datetime.now(UTC) + timedelta(seconds=1)
    delayed = [app.send_task("tasks.add", [n, 1], eta=later) for n in range(8)]  # more than the window
    at_once = app.send_task("tasks.add", [100, 1])
    assert at_once.get(timeout=60) == 101
    assert [each.get(timeout=60) for each in delayed] == list(range(1, 9))


def test_priorities(application: Application) -> None:
    """What waits when the worker starts is taken by priority."""
    app, order = application.app, []
    results = {
        number: app.send_task("tasks.when", queue="ranked", priority=priority)
        for number, priority in enumerate((0, 9, 3, 9))
    }
    application.start()
    times = {number: result.get(timeout=60) for number, result in results.items()}
    order = sorted(times, key=times.__getitem__)
    assert order == [1, 3, 2, 0]


def test_events(application: Application) -> None:
    app, probing, done = application.app, threading.Event(), threading.Event()
    seen: list[str] = []
    asked: list[str] = []
    app.conf.task_send_sent_event = True

    def note(event: dict[str, Any]) -> None:
        probing.set()  # the receiver's queue is bound
        if asked and event.get("uuid") == asked[0]:
            seen.append(event["type"])
            if "task-succeeded" in seen and "task-sent" in seen:
                done.set()

    def listen() -> None:
        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": note})
            ready = receiver.itercapture(limit=None, timeout=1, wakeup=False)
            while not done.is_set():
                try:
                    next(ready)
                except (TimeoutError, StopIteration):
                    ready = receiver.itercapture(limit=None, timeout=1, wakeup=False)

    application.start()
    assert app.send_task("tasks.echo", [1]).get(timeout=60) == 1  # the worker is up
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    while not probing.wait(0.2):
        app.send_task("tasks.echo", [2])
    asked.append(celery.utils.uuid())
    app.send_task("tasks.echo", [3], task_id=asked[0])
    assert done.wait(120)
    listener.join(60)
    assert [each for each in seen if each != "task-sent"] == ["task-received", "task-started", "task-succeeded"]


def test_remote_control(application: Application) -> None:
    """Ping, rate limit and revoke reach the worker by its control queue and answer by the caller's."""
    application.start()
    app = application.app
    assert app.send_task("tasks.echo", [1]).get(timeout=60) == 1
    assert [list(answer.values()) for answer in app.control.ping(timeout=60, limit=1)] == [[{"ok": "pong"}]]
    limited = app.control.rate_limit("tasks.echo", "100/s", reply=True, timeout=60, limit=1)
    assert [list(answer.values()) for answer in limited] == [[{"ok": "new rate limit set successfully"}]]
    revoked = app.send_task("tasks.echo", [2], countdown=5)
    app.control.revoke(revoked.id, reply=True, timeout=60, limit=1)
    with pytest.raises(celery.exceptions.TaskRevokedError):
        revoked.get(timeout=60)
    assert app.send_task("tasks.echo", [3]).get(timeout=60) == 3
