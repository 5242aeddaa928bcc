"""Tasks whose workers are killed at random: each is done at least once, and none is lost.

    python -m tests.django.kills [--tasks 20000] [--processes 3] [--rabbitmq]

A project of its own in a folder; `manage.py harebell_worker` runs the workers, and one of their processes is killed
(kill -9) every half second or so, at last the parent, too. Each task writes its number into a file.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from harebell.testing import EmbeddedBroker, RabbitMQ

SETTINGS = """
import os
SECRET_KEY = "of a test"
USE_TZ = True
INSTALLED_APPS = ["harebell.django"]
TASKS = {{"default": {{"BACKEND": "harebell.django.TaskBackend", "OPTIONS": {{
    "url": {url!r}, "prefix": {prefix!r}, "results": None, "enqueue": "now"}}}}}}
"""

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

TASKS = """
import os, time
from harebell.django.framework import base

DONE = os.open({done!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@base.task
def do(number):
    time.sleep(0.005)  # so that a kill finds some at work
    os.write(DONE, b"%d\\n" % number)  # one write: lines of several processes do not mix
"""

ENQUEUE = """
import asyncio, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from tasks import do

async def main(count):
    async def some(numbers):
        for number in numbers:
            await do.aenqueue(number)
    await asyncio.gather(*(some(range(first, count, 20)) for first in range(20)))

asyncio.run(main(int(sys.argv[1])))
"""


@dataclass
class Outcome:
    tasks: int = 0
    kills: int = 0
    lost: int = 0
    twice: int = 0
    seconds: float = 0.0


def run(
    url: str, folder: Path, *, tasks: int, processes: int, seed: int, most: int | None = None, patience: float = 600.0
) -> Outcome:
    """Run it against the broker there, with the project in this folder, and with so many kills at most."""
    chance, outcome, done = random.Random(seed), Outcome(tasks=tasks), folder / "done"
    (folder / "settings.py").write_text(SETTINGS.format(url=url, prefix=f"kills{seed}"))
    (folder / "manage.py").write_text(MANAGE)
    (folder / "tasks.py").write_text(TASKS.format(done=str(done)))
    done.touch()
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    began = time.monotonic()

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "manage.py", "harebell_worker", "--processes", str(processes), "--threads", "2"]
        log = (folder / "worker.log").open("ab")
        with log:
            return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    def found() -> Counter[int]:
        return Counter(map(int, done.read_bytes().split()))

    enqueueing = subprocess.Popen([sys.executable, "-c", ENQUEUE, str(tasks)], cwd=folder, env=environment)
    workers = start()
    try:
        next_kill, before = began, 0  # as soon as one is done
        while time.monotonic() - began < patience:
            time.sleep(0.02)
            if enqueueing.poll() is not None:
                assert enqueueing.returncode == 0, "the tasks could not be enqueued"
                if len(found()) == tasks:
                    break
            # Some task is done between two kills: on a busy machine a worker takes longer to start than they are apart.
            if time.monotonic() < next_kill or done.stat().st_size == before or outcome.kills == most:
                continue
            next_kill, before = time.monotonic() + chance.uniform(0.2, 1.0), done.stat().st_size
            children = psutil.Process(workers.pid).children()
            if children:
                chance.choice(children).kill()
                outcome.kills += 1
            if chance.random() < 0.1:  # the parent, too: its children end when they notice
                workers.kill()
                workers.wait()
                workers = start()
    finally:
        enqueueing.kill()
        enqueueing.wait()
        workers.terminate()
        workers.wait(60)
    numbers = found()
    outcome.lost = len(set(range(tasks)) - set(numbers))
    outcome.twice = sum(count > 1 for count in numbers.values())
    outcome.seconds = time.monotonic() - began
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**16))
    parser.add_argument("--rabbitmq", action="store_true")
    arguments = parser.parse_args()
    with RabbitMQ() if arguments.rabbitmq else EmbeddedBroker() as server, tempfile.TemporaryDirectory() as folder:
        settings = {"tasks": arguments.tasks, "processes": arguments.processes, "seed": arguments.seed}
        outcome = run(server.url, Path(folder), **settings)
    print(outcome)
    return bool(outcome.lost)


if __name__ == "__main__":
    sys.exit(main())
