"""One connection of a process for publishing: for all its threads and backends, and anew after a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harebell import errors
from harebell.client.blocking import connect
from harebell.django.framework import task_backends
from harebell.django.options import Options
from harebell.django.publishing import Broker
from harebell.django.topology import Names
from tests.django import jobs, kills
from tests.django.conftest import Configure, wait_for

CALLERS = 3


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of each attempt to connect."""
    made: list[Options] = []
    real = Broker.connect

    async def connect(options: Options) -> Broker:
        made.append(options)
        return await real(options)

    monkeypatch.setattr(Broker, "connect", connect)
    return made


def in_threads(function: Any, count: int = CALLERS) -> list[Any]:
    """What the function returns or raises in so many threads, which call it at once."""
    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(function())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def test_all_threads_share_one_connection(configure: Configure, connects: list[Options]) -> None:
    backend = configure(results=None)
    in_threads(lambda: jobs.add.enqueue(1, 2))
    assert set(in_threads(lambda: id(task_backends["default"].publisher))) == {id(backend.publisher)}
    in_threads(lambda: task_backends["default"].close(), 1)
    assert [options.prefix for options in connects] == [backend.settings.prefix]
    assert [thread.name for thread in threading.enumerate()].count("harebell-tasks") == 1
    jobs.add.enqueue(1, 2)
    assert len(connects) == 2  # close was for the whole process


def test_other_options_have_a_connection_of_their_own(configure: Configure) -> None:
    one, other = configure(), configure()
    assert one.publisher is not other.publisher


def test_threads_wait_for_one_attempt_to_connect(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer: none waits for the attempts of the others first."""
    backend = configure(results=None)
    attempts = 0

    async def connect(options: Options) -> Broker:
        nonlocal attempts
        attempts += 1
        while attempts == 1 and len(backend.publisher._publishing) < CALLERS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        raise errors.ConnectionLost("no answer")

    monkeypatch.setattr(Broker, "connect", connect)
    outcomes = in_threads(lambda: jobs.add.enqueue(1, 2))
    assert [type(outcome) for outcome in outcomes] == [errors.ConnectionLost] * CALLERS
    assert attempts == 1


def test_a_close_waits_for_what_is_being_published(
    configure: Configure, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = configure(results=None)
    publishing, go_on = threading.Event(), threading.Event()
    real = Broker.publish

    async def publish(self: Broker, record: dict[str, Any], **arguments: Any) -> None:
        publishing.set()
        await asyncio.to_thread(go_on.wait, 60)
        await real(self, record, **arguments)

    monkeypatch.setattr(Broker, "publish", publish)
    with ThreadPoolExecutor(2) as threads:
        enqueueing = threads.submit(jobs.add.enqueue, 1, 2)
        assert publishing.wait(60)
        closing = threads.submit(backend.close)
        wait_for(lambda: backend.publisher._connecting is None)
        go_on.set()
        enqueueing.result(60)
        closing.result(60)
    with connect(broker_url) as amqp, amqp.channel() as channel:
        assert channel.message_count(Names(backend.settings.prefix).queue("default")) == 1


FORK = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from harebell.django import publishing
from harebell.django.framework import base, task_backends

@base.task
def do():
    pass

do.enqueue()
publishing._process._lock.acquire()  # as by another thread
child = os.fork()
if not child:
    do.enqueue()
    task_backends["default"].close()
    os._exit(0)
publishing._process._lock.release()
assert os.waitpid(child, 0)[1] == 0
do.enqueue()
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_connects_for_itself(broker_url: str, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=tmp_path.name))
    (tmp_path / "program.py").write_text(FORK)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "program.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.returncode) == ("done\n", 0), run.stderr
    with connect(broker_url) as amqp, amqp.channel() as channel:
        assert channel.message_count(Names(tmp_path.name).queue("default")) == 3
