"""A layer in the processes of a Celery worker, which forks them after the layer was used: tasks talk to a group and
to a channel, and take a job.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.conftest import Make

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
celery = pytest.importorskip("celery")  # of the development group
pools = pytest.importorskip("kombu.pools")

TASKS = """
import os
from asgiref.sync import async_to_sync
from celery import Celery
from harebell.channels import ChannelLayer

app = Celery("layer_tasks", broker={url!r}, backend={backend!r})
layer = ChannelLayer({url!r}, prefix={prefix!r}, expiry=60, timeout=60)
# Before the worker forks: what the parent has opened is of no use to its children.
async_to_sync(layer.send)("warm", {{"type": "x"}})

@app.task
def announce(number):
    async_to_sync(layer.group_send)("news", {{"type": "news", "n": number, "pid": os.getpid()}})

@app.task
def answer(channel, number):
    async_to_sync(layer.send)(channel, {{"type": "answer", "n": number}})

@app.task
def fetch(channel):
    return async_to_sync(layer.receive)(channel)["n"]
"""


@pytest.fixture
def worker(broker_url: str, prefix: str, tmp_path: Path) -> Iterator[Any]:
    """The application, with a worker of two processes."""
    results = tmp_path / "results"
    results.mkdir()
    tasks = TASKS.format(url=broker_url, prefix=prefix, backend=results.as_uri())
    (tmp_path / "layer_tasks.py").write_text(tasks)
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "layer_tasks", "worker", "--pool", "prefork", "--concurrency", "2",
             "--queues", prefix, "--without-gossip", "--without-mingle", "--without-heartbeat"],
            cwd=tmp_path, stdout=log, stderr=log,
        )  # fmt: skip
    app = celery.Celery("layer_tasks", broker=broker_url, backend=results.as_uri())
    app.conf.task_default_queue = prefix
    yield app
    app.close()
    pools.reset()
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:  # a signal in the midst of its start is lost
        process.kill()
        process.wait()


async def test_tasks_of_a_celery_worker_use_the_layer(worker: Any, make: Make) -> None:
    layer = make()
    channel = await layer.new_channel()
    await layer.group_add("news", channel)

    def ask(task: str, *calls: tuple[object, ...]) -> list[Any]:
        asked = [worker.send_task(f"layer_tasks.{task}", arguments) for arguments in calls]
        return [each.get(timeout=300) for each in asked]

    await asyncio.to_thread(ask, "announce", *((number,) for number in range(20)))
    heard = [await layer.receive(channel) for _ in range(20)]
    assert sorted(message["n"] for message in heard) == list(range(20))
    await asyncio.to_thread(ask, "answer", (channel, 7))
    assert await layer.receive(channel) == {"type": "answer", "n": 7}
    await layer.send("jobs", {"type": "x", "n": 9})
    assert await asyncio.to_thread(ask, "fetch", ("jobs",)) == [9]
