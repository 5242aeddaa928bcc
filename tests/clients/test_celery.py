"""A Celery worker with its default settings, in processes of its own: retries, ETAs and results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.wire import BrokerThread

pytestmark = pytest.mark.slow
celery = pytest.importorskip("celery")  # of the development group

TASKS = '''
import time
from celery import Celery

app = Celery("tasks", broker={url!r}, backend="rpc://")

@app.task(bind=True, max_retries=3)
def stubborn(self, number):
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return number, self.request.retries

@app.task
def when():
    return time.time()
'''


@pytest.fixture
def app(broker: BrokerThread, tmp_path: Path) -> Iterator[Any]:
    """The application, with a worker running."""
    (tmp_path / "tasks.py").write_text(TASKS.format(url=broker.broker.url))
    log = tmp_path / "worker.log"
    with log.open("w") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"],
            cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    application = celery.Celery("tasks", broker=broker.broker.url, backend="rpc://")
    yield application
    application.close()
    worker.terminate()
    worker.wait(30)
    print(log.read_text())
    assert worker.returncode == 0


@pytest.mark.filterwarnings("default")
def test_retries_an_eta_and_results(app: Any) -> None:
    retried = app.send_task("tasks.stubborn", [7])
    earliest = datetime.now(UTC) + timedelta(seconds=1)
    later = app.send_task("tasks.when", eta=earliest)
    assert retried.get(timeout=60) == [7, 2]
    assert later.get(timeout=60) >= earliest.timestamp()
    assert app.control.ping(timeout=5)  # by way of the worker's remote control queue
