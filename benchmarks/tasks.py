"""Task backends side by side, in turn: Harebell's (on Harebell, on RabbitMQ), Celery on RabbitMQ, django-tasks-db.

    pip install celery django-tasks-db
    python benchmarks/tasks.py [--tasks 2000] [--rounds 3]

Each runs one worker process with as many threads as it is given, and tasks that do nothing. Rows: enqueueing one task
after the other, and running all of them, in tasks a second; in brackets CPU microseconds of that process for each task.
Results are kept nowhere, but for django-tasks-db, whose queue is its table of results, on SQLite.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

# Beside this file are others with the names of packages.
HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(path for path in sys.path if Path(path).resolve() != HERE)]

DJANGO = """
import os
SECRET_KEY = "of a benchmark"
USE_TZ = True
INSTALLED_APPS = {apps!r}
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "database", "OPTIONS": {{"timeout": 60}}}}}}
TASKS = {{"default": {{"BACKEND": {backend!r}, "OPTIONS": {options!r}}}}}
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
COMMON = """
import os
DONE = os.open("done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
"""
DJANGO_TASKS = (
    COMMON
    + """
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

@task
def do(number):
    os.write(DONE, b".")
"""
)
CELERY_TASKS = (
    COMMON
    + """
from celery import Celery
app = Celery("jobs", broker={url!r})
app.conf.update(task_ignore_result=True, task_acks_late=True, broker_transport_options={{"confirm_publish": True}},
                worker_prefetch_multiplier=2, task_default_queue="bench")

@app.task(name="do")
def do(number):
    os.write(DONE, b".")
"""
)
ENQUEUE = """
import os, sys, time
{setup}
from jobs import do
enqueue = {enqueue}
enqueue(-1)
time.sleep(0.2)
cpu, start = time.process_time(), time.perf_counter()
for number in range(int(sys.argv[1])):
    enqueue(number)
print(time.perf_counter() - start, time.process_time() - cpu)
"""
SETUP = 'os.environ["DJANGO_SETTINGS_MODULE"] = "settings"\nimport django\ndjango.setup()'


def project(folder: Path, kind: str, url: str) -> tuple[str, list[str]]:
    """Write the project; the program that enqueues, and the command of its worker."""
    if kind == "celery":
        (folder / "jobs.py").write_text(CELERY_TASKS.format(url=url))
        worker = ["-m", "celery", "-A", "jobs", "worker", "--pool", "threads", "--concurrency", "4", "--without-gossip",
                  "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]  # fmt: skip
        return ENQUEUE.format(setup="", enqueue="do.delay"), worker
    (folder / "jobs.py").write_text(DJANGO_TASKS)
    (folder / "manage.py").write_text(MANAGE)
    if kind == "django-tasks-db":
        settings = DJANGO.format(apps=["django_tasks_db"], backend="django_tasks_db.DatabaseBackend", options={})
        worker = ["manage.py", "db_worker", "--interval", "0"]
    else:
        options = {"url": url, "results": None, "enqueue": "now", "prefix": "bench"}
        settings = DJANGO.format(apps=["harebell.django"], backend="harebell.django.TaskBackend", options=options)
        worker = ["manage.py", "harebell_worker", "--threads", "4"]
    (folder / "settings.py").write_text(settings)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=folder, check=True)
    return ENQUEUE.format(setup=SETUP, enqueue="do.enqueue"), worker


def measure(kind: str, url: str, tasks: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(tasks a second, CPU microseconds) of enqueueing, and of working."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, command = project(folder, kind, url)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tasks)], cwd=folder, check=True, capture_output=True, text=True
        )
        seconds, cpu = map(float, done.stdout.split())
        enqueued = tasks / seconds, cpu / tasks * 1e6
        worker = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            process, count = psutil.Process(worker.pid), 0
            first: tuple[int, float, float] | None = None
            deadline = time.monotonic() + 300
            while count < tasks + 1 and time.monotonic() < deadline:
                time.sleep(0.005)
                count = (folder / "done").stat().st_size if (folder / "done").exists() else 0
                times = process.cpu_times()
                if first is None and count:
                    first = count, time.perf_counter(), times.user + times.system
            assert first is not None
            times = process.cpu_times()
            ran = count - first[0]
            seconds, cpu = time.perf_counter() - first[1], times.user + times.system - first[2]
            return enqueued, (ran / seconds, cpu / max(ran, 1) * 1e6)
        finally:
            worker.kill()
            worker.wait()


@contextlib.contextmanager
def served() -> Iterator[str]:
    """`harebell serve` in a process of its own."""
    from benchmarks.channels import free_port, listening

    port = free_port()
    with listening([sys.executable, "-m", "harebell", "serve", "--port", str(port), "--data", "data"], port):
        yield f"amqp://guest:guest@127.0.0.1:{port}/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from harebell.testing import RabbitMQ

    with served() as ours, RabbitMQ() as rabbitmq:
        kinds = {"harebell": ours, "harebell on RabbitMQ": rabbitmq.url}
        if importlib.util.find_spec("celery"):
            kinds["celery"] = rabbitmq.url
        if importlib.util.find_spec("django_tasks_db"):
            kinds["django-tasks-db"] = ""
        found: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {kind: [] for kind in kinds}
        for number in range(arguments.rounds):
            for kind, url in kinds.items():
                print(f"round {number + 1}: {kind}", file=sys.stderr)
                found[kind].append(measure(kind, url, arguments.tasks))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; medians; CPU us in ()\n")
    print("| row | " + " | ".join(kinds) + " |")
    print("|---" * (1 + len(kinds)) + "|")
    for row, name in enumerate(("enqueued/s", "run/s")):
        cells = [
            f"{statistics.median(one[row][0] for one in found[kind]):,.0f}"
            f" ({statistics.median(one[row][1] for one in found[kind]):,.0f})"
            for kind in kinds
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
