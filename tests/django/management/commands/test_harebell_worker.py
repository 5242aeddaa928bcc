"""The command: workers that are killed lose no task, wrong arguments are told, a stop drains."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from harebell.client.blocking import connect
from harebell.django.messages import record_of
from harebell.testing import EmbeddedBroker
from tests.django import jobs, kills
from tests.django.conftest import Configure, wait_for
from tests.torture.server import free_port

OFTEN = """
from django.utils.autoreload import StatReloader

def note(name):
    with open(name, "a") as file:
        file.write(".")

def snapshot_files(self, looked=StatReloader.snapshot_files):
    yield from looked(self)
    note("looks")

StatReloader.SLEEP_TIME = 0.1
StatReloader.snapshot_files = snapshot_files
note("starts")
"""

STOPPED_AT_START = """
import os, signal, subprocess

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)

subprocess.Popen = Popen
"""

BLOCKED = """
import asyncio, os, time
from asgiref.sync import sync_to_async
from harebell.django.framework import base

@base.task
def do():
    open({begun!r}, "w").close()
    time.sleep(3600)

@base.task
async def wait():
    open({begun!r}, "w").close()
    try:
        await asyncio.sleep(3600)
    finally:
        os.rename({begun!r}, {begun!r} + ".left")

@base.task
async def wait_for_thread():
    open({begun!r}, "w").close()
    await sync_to_async(time.sleep)(3600)
"""

CALL = """
import django
from django.core.management import call_command
django.setup()
call_command("harebell_worker", processes=2, queues="default", drain=3600)
"""

VERSION = """
from harebell.django.framework import base

@base.task
def do():
    with open({done!r}, "a") as file:
        file.write("{version}\\n")
"""


@pytest.mark.slow
def test_workers_that_are_killed_lose_no_task(broker_url: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**16)
    outcome = kills.run(broker_url, tmp_path, tasks=200, processes=2, seed=seed, most=3)
    assert outcome.lost == 0, f"python -m tests.django.kills --seed {seed}"
    assert outcome.kills > 0


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--backend", "none"], "none"),
        (["--queues", "default,nowhere"], "nowhere is not among QUEUES"),
        (["--processes", "0"], "--processes 0: at least 1"),
        (["--threads", "0"], "--threads 0: at least 1"),
        (["--prefetch", "-1"], "0 or more"),
        (["--health", "x:y"], "--health x:y"),
        (["--reload", "--processes", "2"], "--reload works with one process"),
    ],
)
def test_wrong_arguments(configure: Configure, arguments: list[str], text: str) -> None:
    configure()
    with pytest.raises(CommandError) as caught:
        call_command("harebell_worker", *arguments)
    assert text in str(caught.value)


def test_several_processes_of_settings_in_no_module(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    configure()
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    with pytest.raises(CommandError, match=r"processes=2: .*: set DJANGO_SETTINGS_MODULE"):
        call_command("harebell_worker", processes=2)


def test_embedded_needs_no_worker(configure: Configure) -> None:
    configure(url="embedded://")
    with pytest.raises(CommandError, match="run in the process that enqueues them"):
        call_command("harebell_worker")


def test_another_backend() -> None:
    from django.test import override_settings

    from harebell.django.framework import base

    params = {"BACKEND": f"{base.__name__.rpartition('.')[0]}.backends.dummy.DummyBackend"}
    with override_settings(TASKS={"default": params}):
        with pytest.raises(CommandError, match="is no harebell"):
            call_command("harebell_worker")


@pytest.mark.parametrize("processes", [1, 2])
def test_probes_and_a_stop(broker_url: str, tmp_path: Path, processes: int) -> None:
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=tmp_path.name))
    (tmp_path / "manage.py").write_text(kills.MANAGE)
    port = free_port()
    command = [sys.executable, "manage.py", "harebell_worker", "--processes", str(processes), "--health", str(port)]
    worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        deadline = time.monotonic() + 60
        while _probe(port) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
    with connect(broker_url) as connection, connection.channel() as channel:
        queue = f"{tmp_path.name}.queue.default"
        info = channel.queue_declare(queue, passive=True) if processes == 1 else None
    assert info is None or info.consumer_count == 0


def _probe(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_several_processes_without_a_broker_are_not_well(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker.url, prefix=tmp_path.name))
        (tmp_path / "manage.py").write_text(kills.MANAGE)
        port = free_port()
        command = [sys.executable, "manage.py", "harebell_worker", "--processes", "2", "--health", str(port)]
        worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"})
        try:
            wait_for(lambda: _probe(port) == 200)
            broker.stop()
            wait_for(lambda: _probe(port) == 503)
            broker.start()
            wait_for(lambda: _probe(port) == 200)
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("task", ["do", "wait", "wait_for_thread"])
def test_a_drain_ends_in_its_time(configure: Configure, broker_url: str, tmp_path: Path, task: str) -> None:
    """What runs a task outlives the drain: the process ends, and says so, as the task is delivered again."""
    backend, begun = configure(url=broker_url, results=None), tmp_path / "begun"
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=backend.settings.prefix))
    (tmp_path / "manage.py").write_text(kills.MANAGE)
    (tmp_path / "tasks.py").write_text(BLOCKED.format(begun=str(begun)))
    command = [sys.executable, "manage.py", "harebell_worker", "--drain", "0.1"]
    worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        backend.publisher.publish({**record_of(backend._new(jobs.note, (), {})), "task": f"tasks.{task}"})
        wait_for(begun.exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 1
        assert (tmp_path / "begun.left").exists() == (task == "wait")
    finally:
        worker.kill()
        worker.wait()


def test_a_stop_while_a_process_is_being_started(broker_url: str, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=tmp_path.name))
    (tmp_path / "manage.py").write_text(STOPPED_AT_START + kills.MANAGE)
    command = [sys.executable, "manage.py", "harebell_worker", "--processes", "2"]
    worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("stops", [1, 2])
@pytest.mark.parametrize(
    "arguments", [["-m", "django", "harebell_worker", "--processes", "2"], ["call.py", "an", "argument"]]
)
def test_several_processes_without_a_manage_py(
    configure: Configure, broker_url: str, tmp_path: Path, stops: int, arguments: list[str]
) -> None:
    """Each runs as the first one was started, or called, and is told of each stop: the second ends a task that runs."""
    backend, begun = configure(url=broker_url, results=None), tmp_path / "begun"
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=backend.settings.prefix))
    (tmp_path / "tasks.py").write_text(BLOCKED.format(begun=str(begun)))
    (tmp_path / "call.py").write_text(CALL)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "DJANGO_SETTINGS_MODULE": "settings"}
    command = [sys.executable, *arguments]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    try:
        for _ in range(2):
            assert worker.stderr.readline().endswith(": queues default\n")
        if stops == 2:
            backend.publisher.publish({**record_of(backend._new(jobs.note, (), {})), "task": "tasks.do"})
            wait_for(begun.exists)
        worker.send_signal(signal.SIGTERM)
        for _ in range(2):
            assert worker.stderr.readline().startswith("stopping: ")
        if stops == 2:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
        worker.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("broker_url", ["harebell"], indirect=True)
def test_reload(configure: Configure, broker_url: str, tmp_path: Path) -> None:
    """Tasks are run by the code as it is now; nothing but the program's own code is changed."""
    backend, done, code = configure(url=broker_url), tmp_path / "done", tmp_path / "tasks.py"
    (tmp_path / "settings.py").write_text(kills.SETTINGS.format(url=broker_url, prefix=backend.settings.prefix))
    (tmp_path / "manage.py").write_text(OFTEN + kills.MANAGE)
    code.write_text(VERSION.format(done=str(done), version="old"))
    for file in (done, tmp_path / "looks", tmp_path / "starts"):
        file.touch()
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    record = {**record_of(backend._new(jobs.note, (), {})), "task": "tasks.do"}
    command = [sys.executable, "manage.py", "harebell_worker", "--reload"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment)

    def run(version: str) -> None:
        backend.publisher.publish({**record, "id": version})
        wait_for(lambda: version in done.read_text().split())

    def looks() -> int:
        return len((tmp_path / "looks").read_bytes())

    try:
        run("old")
        before = looks()
        wait_for(lambda: looks() > before + 1)  # the second look has begun when the task's module was there
        code.write_text(VERSION.format(done=str(done), version="new"))
        wait_for(lambda: (tmp_path / "starts").stat().st_size == 3)  # the reloader, and its children
        run("new")
    finally:
        worker.terminate()  # Django's reloader ends its child at once
        worker.wait(60)
